"""How much the groups of a family differ, and so what a further group's run-to-run noise is
expected to be: s_g^2 ~ s0^2 F(d_g, d0).

e_g = ln s_g^2 - digamma(d_g/2) + ln(d_g/2), t_g = trigamma(d_g/2)        unbiased for the group's
    log variance, and its error's variance
v = (sum w_g (e_g - m)^2 - sum w_g (1 - w_g) t_g) / (1 - sum w_g^2)       w_g ~ 1/t_g with sum 1, m
    = sum w_g e_g
d0 = 2 trigamma^-1(v),  ln s0^2 = m + digamma(d0/2) - ln(d0/2)            v <= 0: d0 infinite, ln
    s0^2 = m
bound = min(2 trigamma^-1(v + t(G - 1, 97.5 %) se), 30)                   se of v by the jackknife
    over the G groups
df = 1/(1/bound + 1/sum d_g)                                              s0 itself is only known on
    sum d_g

Before that each e_g is drawn in to median -+ 2.5 sqrt(v' + t_g), v' from the median absolute
deviation: one broken or mislabelled group must not set the family's noise. Those groups are named
as outliers. s is a share of the loss.

Can fail: the next group is unlike the recorded ones, whatever their number; hence the bound on d0,
which is never the estimate itself. Drawing in is not corrected for, so on simulated families the
bound lies below the true d0 in 86 to 88 % instead of 97.5 %. Sources: Smyth 2004 (moments);
DerSimonian and Laird 1986 (weights); Phipson et al. 2016 (robustness, there by other quantiles).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray
from parity.judging.noise.noise_table import RerunGroup
from parity.wording import count

MIN_GROUPS = 3  # the jackknife needs two after leaving one out
MAX_DF = 30.0
MIN_FAMILY_DF = 8
REACH = 2.5  # standard deviations
LEVEL_REACH = 0.1  # of the loss; twice the tokens lower it by some 5 %
_MAD_TO_SD = 1.4826
ONE_SIDED = 0.975


@frozen
class FamilyNoise:
    """What groups of one family and class of rounding say of a further group: the noise as a share
    of the loss, worth `df`.

    `estimated_df` is d0 without its bound. `outliers` are the names of the groups that were drawn
    in, `levels` the smallest and the largest mean loss of the groups in nats; None: any loss will
    do. `families` counts the families where it is the noise between families, and is 0 for that
    of one.
    """

    share: float
    df: float
    estimated_df: float
    groups: int
    runs: int
    outliers: tuple[str, ...]
    levels: tuple[float, float] | None
    families: int = 0

    def is_near(self, level: float) -> bool:
        """Whether a loss is within a tenth of those of the groups: far from them it is another
        model, other data or another length.
        """
        if self.levels is None:
            return True
        return (1.0 - LEVEL_REACH) * self.levels[0] <= level <= (1.0 + LEVEL_REACH) * self.levels[1]


def fit_family(groups: Sequence[RerunGroup], *, one_level: bool = True) -> FamilyNoise:
    """Fit the groups of a family; without `one_level` their losses may differ, and the noise
    holds at any loss.

    Raises ValueError with fewer than 3 groups, 8 degrees of freedom in all, or losses too far
    apart.
    """
    if len(groups) < MIN_GROUPS:
        raise ValueError(
            f"{count(len(groups), 'usable group')}; expected at least {MIN_GROUPS}, to see how far "
            "groups differ"
        )
    levels = levels_of(groups)
    if one_level and (1.0 - LEVEL_REACH) * levels[1] > (1.0 + LEVEL_REACH) * levels[0]:
        raise ValueError(
            f"its groups end at losses of {levels[0]:.3g} to {levels[1]:.3g} nats; expected losses "
            "within a tenth of a common one"
        )
    total = sum(group.df for group in groups)
    if total < MIN_FAMILY_DF:
        raise ValueError(
            f"{count(total, 'degree')} of freedom in all groups; expected at least {MIN_FAMILY_DF}"
        )
    ordered = sorted(groups, key=lambda group: (group.share, group.df, group.group))
    logs, errors = log_variances(ordered)
    kept = drawn_in(logs, errors)
    mean, between = moments(kept, errors)
    estimated = 2.0 * inverse_trigamma(between)
    se = jackknife_se(kept, errors, lambda *left: moments(*left)[1])
    bound = 2.0 * inverse_trigamma(
        between + float(special.stdtrit(len(ordered) - 1, ONE_SIDED)) * se
    )
    return FamilyNoise(
        share=math.exp((mean + log_bias(estimated)) / 2.0),
        df=1.0 / (1.0 / min(bound, MAX_DF) + 1.0 / total),
        estimated_df=estimated,
        groups=len(ordered),
        runs=sum(group.runs for group in ordered),
        levels=levels if one_level else None,
        outliers=tuple(
            sorted(
                group.group
                for group, log, value in zip(ordered, logs, kept, strict=True)
                if log != value
            )
        ),
    )


def levels_of(groups: Sequence[RerunGroup]) -> tuple[float, float]:
    """The smallest and the largest mean loss of the groups, nats."""
    losses = [group.mean_loss for group in groups]
    return min(losses), max(losses)


def inverse_trigamma(value: float) -> float:
    """x > 0 with trigamma(x) = value, by Newton's method; infinite at or below 0."""
    if value <= 0.0:
        return math.inf
    if value > 1e7:
        return 1.0 / math.sqrt(value)
    if value < 1e-6:
        return 1.0 / value
    x = 0.5 + 1.0 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        change = trigamma * (1.0 - trigamma / value) / float(special.polygamma(2, x))
        x += change
        if abs(change) < 1e-13 * x:
            break
    return x


def log_variances(groups: Sequence[RerunGroup]) -> tuple[FloatArray, FloatArray]:
    """e_g and t_g of groups, (n,) each."""
    half_df = np.array([group.df for group in groups]) / 2.0
    logs: FloatArray = (
        2.0 * np.log([group.share for group in groups]) - special.psi(half_df) + np.log(half_df)
    )
    errors: FloatArray = special.polygamma(1, half_df)
    return logs, errors


def drawn_in(logs: FloatArray, errors: FloatArray) -> FloatArray:
    """e_g (n,), each within 2.5 standard deviations of their median."""
    centre = float(np.median(logs))
    between = max(
        0.0, (_MAD_TO_SD * float(np.median(np.abs(logs - centre)))) ** 2 - float(np.median(errors))
    )
    reach = REACH * np.sqrt(between + errors)
    return np.clip(logs, centre - reach, centre + reach)


def moments(logs: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """m and v; v may be negative."""
    weights = 1.0 / errors
    weights /= weights.sum()
    mean = float(weights @ logs)
    within = float(weights @ ((1.0 - weights) * errors))
    return mean, (float(weights @ (logs - mean) ** 2) - within) / (1.0 - float(weights @ weights))


def jackknife_se(
    logs: FloatArray, errors: FloatArray, estimate: Callable[[FloatArray, FloatArray], float]
) -> float:
    """The standard error of an estimate from (n,) logs and errors, by leaving each out in turn."""
    n = len(logs)
    left_out = np.array(
        [estimate(np.delete(logs, index), np.delete(errors, index)) for index in range(n)]
    )
    return math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))


def log_bias(df: float) -> float:
    """digamma(df/2) - ln(df/2)."""
    if math.isinf(df):
        return 0.0
    return float(special.psi(df / 2.0)) - math.log(df / 2.0)
