"""Does one run of the candidate alone end above the margin? Other runs of the arm must not average
it away, nor must it be left out.

d      the run's losses minus those of its own pair: the baseline's run of its seed (their mean,
       where it has several), nats
half   hypot(t tau0 hypot(r_A, r_B), t SE_within(d)): what one run and its pair differ by chance;
       tau0 is the prior of `arm_noise`, never what the candidate's runs show, which a broken one
       would widen; r = 1.5 where an arm rounds stochastically
above  lo* of the mean of d (`capped`) is above the margin, over the window or, from 16 points on,
       over its last half

A run without a pair is compared with the baseline's mean, and read other batches: the noise of both
is then in d, and in its error, once the trend is taken away. Every given run counts here, also one
of a seed that the baseline lacks, and one that depends on another run. Measured on three seeds of a
byte-level trainer, AA7 and AA38: no honest run is above; one of three at two margins is found in 88
% to 100 % with its pair, and in 15 % to 52 % of 200 points without. Can fail: a prior that is too
small for the recipe.
"""

from collections.abc import Sequence

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.arms import Arms
from parity.judging.curves.curve import Curve, FloatArray, mean
from parity.judging.curves.step_noise import mean_se
from parity.judging.curves.window import Window, detrended
from parity.judging.gap.interval import interval
from parity.judging.gap.robust_bounds import NO_CHANGES, NOTHING_UNLOGGED, robust_interval
from parity.judging.noise.arm_noise import RunTerm, priors_for
from parity.judging.policy import Policy

LAST_HALF_FROM = 16  # points of the window


@frozen
class RunGap:
    """The candidate's run that is furthest above its pair, and the most that one run may be;
    nats.
    """

    label: str
    gap: float
    limit: float

    @property
    def is_above(self) -> bool:
        """Whether the run alone is above the margin by more than noise."""
        return self.gap > self.limit


def worst_run(
    arms: Arms, window: Window, policy: Policy, slope: float | None, level: float, margin: float
) -> RunGap | None:
    """The worst of all given runs of the candidate; None for a single run, which the interval
    judges.

    `slope` is that of an unfinished run (`schedule.state`), `level` the baseline's loss in the
    window, `margin` the deciding one in nats.
    """
    given = arms.candidate.given
    if len(given) < 2:
        return None
    noises = priors_for(arms.both, policy, level, slope)
    term = RunTerm(
        variance=noises[0].tau ** 2 + noises[1].tau ** 2, df=policy.run_noise_df, seeds=1
    )
    gaps = []
    for number, run in enumerate(given, 1):
        for part in _parts(run, arms.baseline.runs, window, paired=policy.is_paired):
            plain = interval(mean(part), mean_se(part), term)
            lo = robust_interval(part, plain, NOTHING_UNLOGGED, NO_CHANGES).bounds(
                policy.confidence
            )[0]
            gaps.append((lo, plain.mean, run.label or f"run {number}"))
    if not gaps:
        return None
    lo, gap, label = max(gaps)
    return RunGap(label=label, gap=gap, limit=margin + gap - lo)


def _parts(
    run: Curve, baseline: Sequence[Curve], window: Window, *, paired: bool
) -> list[FloatArray]:
    """The run's gap to its pair over the window and over its last half; none without a common point
    there.
    """
    pair = [other for other in baseline if other.seed == run.seed] if paired else []
    both = align(pair or baseline, [run], window.last)
    part = window.part(both.steps)
    gap: FloatArray = both.candidate[0, part] - both.baseline[:, part].mean(axis=0)
    if not len(gap):
        return []
    parts = [(gap, both.steps[part])]
    if len(gap) >= LAST_HALF_FROM:
        half = len(gap) // 2
        parts.append((gap[half:], both.steps[part][half:]))
    return [gaps if pair else detrended(gaps, steps) for gaps, steps in parts]
