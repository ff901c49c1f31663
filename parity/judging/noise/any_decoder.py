"""How much families differ, and so what run-to-run noise a model that belongs to none of them
starts from: the family `any-decoder`.

per family f, with its groups' e_g, t_g (`model`) and their variance between groups v_f = max(0, v):
    e_f = sum w_g e_g, w_g ~ 1/(t_g + v_f), t_f = 1/sum 1/(t_g + v_f)      the family's log
    variance, and its error's variance
v   = max(0, var(e_f) - mean t_f) between families (Hedges 1983), each counting once
m   = mean e_f
V   = v + t(F - 1, 95 %) se + median v_f + var(e_f)/F se of v by the jackknife over the F families
d0  = 2 trigamma^-1(V), at most 30; ln s0^2 = m + digamma(d0/2) - ln(d0/2)
stochastic rounding: 1.5 s0

Evidence are families of decoders that were trained from scratch to the end of their schedule,
rounding to nearest, with at least 8 degrees of freedom. A noisy family is not drawn in, because
that is what a user may have. A quiet one is, to 2.5 standard deviations below the median: a family
of nearly equal reruns would make d0, and with it s0, collapse. Below 1.5 degrees of freedom nothing
can be borrowed. Where the schedule is not at its end, runs of one model differ 4 to 20 times as
much (0.17 to 1.3 % of the loss at 8B): nothing can be borrowed there.

1.5 is more than what rounding stochastically adds at 8B between runs of different seeds, 1.15 (p =
0.46). Between emulated reruns of one seed at 0.3 to 1M parameters it is 1.79 (1.26 to 2.54).

Can fail: few families are on record, all below 1B parameters and several of one code base. A model
unlike them is covered only as far as the heavy tail (2 to 3 degrees of freedom) reaches, and one
run per arm can't contradict it. Sources: Hedges 1983 (variance between studies); Smyth 2004;
docs/design/noise.md#any-decoder.
"""

import math

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray, Rounding
from parity.judging.noise.family_spread import (
    MAX_DF,
    MIN_FAMILY_DF,
    MIN_GROUPS,
    ONE_SIDED,
    FamilyNoise,
    drawn_in,
    inverse_trigamma,
    jackknife_se,
    log_bias,
    log_variances,
    moments,
)
from parity.judging.noise.noise_table import NoiseTable, RerunGroup
from parity.judging.policy import STOCHASTIC_FACTOR
from parity.wording import count

MIN_FAMILIES = 4
MIN_DF = 1.5
_BOUND = 0.95  # one-sided


@frozen
class FamilyEvidence:
    """One family that counts here: its groups, its log variance e_f with the variance t_f of that,
    and v_f between its groups.
    """

    name: str
    groups: tuple[RerunGroup, ...]
    log_variance: float
    error: float
    within: float

    @property
    def share(self) -> float:
        """The family's run-to-run noise as a share of the loss."""
        return math.exp(self.log_variance / 2.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval, from the normal distribution of the logarithm."""
        reach = float(special.ndtri(ONE_SIDED)) * math.sqrt(self.error) / 2.0
        return self.share * math.exp(-reach), self.share * math.exp(reach)


def evidence_families(noise_table: NoiseTable) -> tuple[FamilyEvidence, ...]:
    """The families of the table that count here, with their groups that do; a family with an
    unusable row does not count.
    """
    families = [family for family in noise_table.families.values() if not family.problems]
    counted = {
        family.name: tuple(
            g
            for g in family.groups
            if (g.start, g.schedule, g.rounding) == ("scratch", "finished", "nearest")
        )
        for family in families
    }
    return tuple(
        _noise(name, groups)
        for name, groups in counted.items()
        if sum(group.df for group in groups) >= MIN_FAMILY_DF
    )


def fit_between(noise_table: NoiseTable, rounding: Rounding) -> FamilyNoise:
    """Fit the families of the table. Raises ValueError with fewer than 4 that count."""
    families = evidence_families(noise_table)
    if len(families) < MIN_FAMILIES:
        raise ValueError(
            f"{count(len(families), 'family', 'families')} of decoders trained from scratch to the "
            f"end of their schedule, rounding to nearest, with {MIN_FAMILY_DF} degrees of freedom; "
            f"expected at least {MIN_FAMILIES}, to see how far families differ"
        )
    given, errors, within = np.array(
        [(family.log_variance, family.error, family.within) for family in families]
    ).T
    logs = np.maximum(given, drawn_in(given, errors))
    between = _variance_between_groups(logs, errors)
    bound = between + float(special.stdtrit(len(logs) - 1, _BOUND)) * jackknife_se(
        logs, errors, _variance_between_groups
    )
    df = min(
        2.0
        * inverse_trigamma(
            bound + float(np.median(within)) + float(np.var(logs, ddof=1)) / len(logs)
        ),
        MAX_DF,
    )
    if df < MIN_DF:
        raise ValueError(
            f"its {len(families)} families differ too much ({df:.2f} degrees of freedom; expected "
            f"{MIN_DF})"
        )
    share = math.exp((float(logs.mean()) + log_bias(df)) / 2.0)
    every = [group for family in families for group in family.groups]
    return FamilyNoise(
        share=share * (STOCHASTIC_FACTOR if rounding == "stochastic" else 1.0),
        df=df,
        estimated_df=2.0 * inverse_trigamma(between),
        groups=len(every),
        runs=sum(group.runs for group in every),
        outliers=(),
        levels=None,
        families=len(families),
    )


def _variance_between_groups(logs: FloatArray, errors: FloatArray) -> float:
    return max(0.0, float(np.var(logs, ddof=1)) - float(errors.mean()))


def _noise(name: str, groups: tuple[RerunGroup, ...]) -> FamilyEvidence:
    logs, errors = log_variances(
        sorted(groups, key=lambda group: (group.share, group.df, group.group))
    )
    within = 0.0
    if len(groups) >= MIN_GROUPS:
        logs = drawn_in(logs, errors)
        within = max(0.0, moments(logs, errors)[1])
    weights = 1.0 / (errors + within)
    total = float(weights.sum())
    return FamilyEvidence(
        name=name,
        groups=groups,
        log_variance=float(weights @ logs) / total,
        error=1.0 / total,
        within=within,
    )
