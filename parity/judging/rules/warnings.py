"""Warnings: what a reader should know next to the verdict.

None decides here; `plan` and `noise` use three of these sentences where the same fact does decide:
`as_of`, `goes_beyond_plan` and `noise_assumed`.
"""

from collections.abc import Callable
from functools import partial

from parity.judging.curves.context import DEVICE_CLASS, ENGINE, PARAMETERS, RECIPE
from parity.judging.curves.curve import DATA_DIGEST, Curve, completeness_of
from parity.judging.curves.data_order import SAME_ORDER, SURELY_SAME_ORDER
from parity.judging.curves.independence import Relation
from parity.judging.curves.learning_rates import recorded_rates
from parity.judging.curves.outside_plan import beyond_plan, late_start
from parity.judging.curves.resolution import COARSE_ROUNDING_STEP, SMOOTHED_WEIGHT
from parity.judging.gap.window_statistics import MIN_MEASURED_DF
from parity.judging.measurements import Measurements
from parity.judging.noise.family_spread import MAX_DF
from parity.judging.noise.noise_source import BorrowedNoise, NoiseSource
from parity.judging.policy import ASSUMED_DF
from parity.judging.secondary.validation import evaluated_apart, is_evaluated
from parity.wording import count, first_few, percent, signed

FEW_MISSING = 0.01  # of the window's steps
USUAL_CONFIDENCE = 0.95
LEAST_WINDOW = 0.1  # of the plan
# of the loss; the least of finished decoders on record (public.csv) is 0.028 %, of 350 M parameters
LEAST_NOISE = 0.0003
RUNS_SHOWN = 3  # of those that were left out; the document has all


def noise_assumed(measurements: Measurements) -> str | None:
    """The sentence of `RUN_NOISE_ASSUMED`, which a policy may also let decide."""
    if measurements.statistics is None or not measurements.statistics.noise_is_assumed:
        return None
    sides = zip(measurements.arms.both, measurements.statistics.noises, strict=True)
    level = abs(measurements.statistics.baseline.level)
    df = int(measurements.statistics.data_df)
    prior = [
        (arm.name, noise.prior.tau / level)
        for arm, noise in sides
        if level
        and measurements.statistics.interval.run.seeds == 1
        and not noise.has_reruns
        and not (noise.prior.borrowed and noise.prior.borrowed.is_data)
    ]
    if not prior:
        of_data = "measured or borrowed" if measurements.statistics.borrowed_df else "measured"
        return (
            f"Run-to-run noise rests mostly on an assumption: {count(df, 'degree')} of freedom "
            f"{of_data}, {MIN_MEASURED_DF} needed."
        )
    shares = {percent(share) for _, share in prior}
    if len(prior) == 2 and len(shares) == 1:
        which = f"{shares.pop()} of the loss for each arm"
    else:
        which = " and ".join(f"{percent(share)} of the loss for {name}" for name, share in prior)
    others = {
        borrowed.noise_source.name
        for _, borrowed in _borrowed_noise(measurements)
        if not borrowed.is_data
    }
    if measurements.without_assumed_noise is not None:
        return f"The interval takes the run-to-run noise of other models ({which})."
    words = (
        f"Run-to-run noise was assumed ({which}{f', as in {others.pop()}' if others else ''}), not "
        "measured"
    )
    if (
        all(PARAMETERS in run.context for run in measurements.arms.runs)
        or None not in measurements.policy.declared_noise
    ):
        return f"{words}."
    return (
        f"{words}; the size of the model is not stated, and 10 million parameters or more are "
        "assumed."
    )


def _borrowed_noise(measurements: Measurements) -> list[tuple[str, BorrowedNoise]]:
    """What each arm borrows, by the arm's name."""
    if measurements.statistics is None:
        return []
    sides = zip(measurements.arms.both, measurements.statistics.noises, strict=True)
    return [
        (arm.name, noise.prior.borrowed) for arm, noise in sides if noise.prior.borrowed is not None
    ]


def noise_borrowed(measurements: Measurements) -> str | None:
    if measurements.statistics is None or measurements.statistics.noise_basis != "borrowed":
        return None
    families: dict[str, list[str]] = {}
    for name, borrowed in _borrowed_noise(measurements):
        noise, equal = borrowed.noise, borrowed.noise_source.bit_equal
        left_out = f", {count(equal, 'group')} of bit-equal reruns left out" if equal else ""
        seen = (
            f"{noise.groups} groups, {noise.runs:,} runs{left_out}, worth {noise.df:.0f} degrees "
            "of freedom"
        )
        where = f"{borrowed.noise_source.family} ({percent(noise.share)} of the loss, {seen})"
        families.setdefault(where, []).append(name)
    which = " and ".join(
        where if len(names) == 2 else f"{where} for {names[0]}" for where, names in families.items()
    )
    return f"Run-to-run noise was borrowed from {which}, not measured here."


def noise_contradicted(measurements: Measurements) -> str | None:
    contradicted = {
        f"{borrowed.agreement.ratio:.1f} times as much as those of "
        f"{borrowed.noise_source.family} (p = {borrowed.agreement.p:.2g}; "
        f"the family has a weight of {borrowed.agreement.weight:.2f} instead of 1)"
        for _, borrowed in _borrowed_noise(measurements)
        if borrowed.agreement.contradicted and borrowed.agreement.ratio is not None
    }
    if not contradicted:
        return None
    return f"The runs differ {' and '.join(sorted(contradicted))}."


def family_unused(measurements: Measurements) -> str | None:
    unused: dict[tuple[str, str], list[str]] = {}
    for arm, noise_source in zip(measurements.arms.both, measurements.noise_sources, strict=True):
        if noise_source is not None and (
            reason := noise_source.refused or _other_level(measurements, noise_source)
        ):
            unused.setdefault((ascii(noise_source.family)[1:-1], reason), []).append(arm.name)
    lines = [
        f"Family {family} was not used for {' and '.join(arms)}: {reason}."
        for (family, reason), arms in unused.items()
    ]
    return " ".join(lines) or None


def _other_level(measurements: Measurements, noise_source: NoiseSource) -> str:
    """Why a usable family is not used at this loss, "" where it is."""
    noise = noise_source.noise
    if (
        noise is None
        or noise.levels is None
        or measurements.statistics is None
        or noise_source in [borrowed.noise_source for _, borrowed in _borrowed_noise(measurements)]
    ):
        return ""
    low, high = noise.levels
    return (
        f"its groups end at losses of {low:.3f} to {high:.3f} nats, and this baseline at "
        f"{measurements.statistics.baseline.level:.3f}, more than a "
        "tenth away: another model, other data or another length"
    )


def identical(measurements: Measurements) -> str | None:
    return _left_out(measurements, ("copy",))


def equal(measurements: Measurements) -> str | None:
    runs = [
        run for arm in measurements.arms.both for run in arm.left_out if run.relation == "equal"
    ]
    if not runs:
        return None
    shown = first_few([run.label for run in runs], RUNS_SHOWN)
    return (
        f"{count(len(runs), 'run')} equal to another one as printed: "
        f"{'it counts' if len(runs) == 1 else 'they count'} once ({shown})."
    )


def dependent(measurements: Measurements) -> str | None:
    return _left_out(measurements, ("fork", "late"))


def _left_out(measurements: Measurements, relations: tuple[Relation, ...]) -> str | None:
    runs = [
        run for arm in measurements.arms.both for run in arm.left_out if run.relation in relations
    ]
    if not runs:
        return None
    whys = first_few([f"{run.label}: {run.why}" for run in runs], RUNS_SHOWN, "; ")
    return (
        f"{count(len(runs), 'run')} not counted as "
        f"{'an independent run' if len(runs) == 1 else 'independent runs'} ({whys})."
    )


def nonfinite_points_dropped(measurements: Measurements) -> str | None:
    arms = [arm for arm in measurements.arms.both if arm.nonfinite.count]
    if not arms:
        return None
    parts = [
        f"{arm.name} {arm.nonfinite.count:,} from step {arm.nonfinite.first_step:,} on"
        for arm in arms
    ]
    return f"NaN, infinite or blank losses (or above 1,000,000) were left out: {', '.join(parts)}."


def spikes_masked(measurements: Measurements) -> str | None:
    if measurements.statistics is None or measurements.statistics.spikes.masked_share == 0.0:
        return None
    s = measurements.statistics.spikes
    return (
        f"Spikes cover {percent(s.masked_share)} of the window and are left out: "
        f"{measurements.arms.candidate.name} {s.candidate}, {measurements.arms.baseline.name} "
        f"{s.baseline}. With them "
        f"the gap is {signed(measurements.statistics.raw_gap)} nats."
    )


def validation_not_compared(measurements: Measurements) -> str | None:
    if only := _only_arm(measurements, is_evaluated):
        return f"The validation losses were not compared: only {only} has them."
    if not evaluated_apart(*measurements.arms.both_runs, measurements.window):
        return None
    return (
        "The validation losses were not compared: the arms evaluated at no common step of the "
        "window."
    )


def _only_arm(measurements: Measurements, has: Callable[[Curve], bool]) -> str | None:
    """The name of the arm of which alone a run has something; None where a run of each arm has it,
    or none.
    """
    having = [arm.name for arm in measurements.arms.both if any(map(has, arm.runs))]
    return having[0] if len(having) == 1 else None


def _has_recorded(key: str, run: Curve) -> bool:
    return key in run.context


def context_in_one_arm(measurements: Measurements) -> str | None:
    keys = [
        key
        for key in (ENGINE, DEVICE_CLASS, DATA_DIGEST)
        if key not in measurements.policy.may_differ
    ]
    parts = [
        f"{key} of {only}"
        for key in keys
        if (only := _only_arm(measurements, partial(_has_recorded, key)))
    ]
    if not parts:
        return None
    return f"On record for one arm only: {', '.join(parts)}."


def steps_missing(measurements: Measurements) -> str | None:
    if measurements.resolution.coverage >= 1.0 - FEW_MISSING:
        return None
    missing = 1.0 - min(
        completeness_of(run.steps[measurements.window.part(run.steps)]).coverage
        for run in measurements.arms.runs
    )
    if missing > FEW_MISSING:
        return (
            f"A log lacks {percent(missing)} of its steps in the window; what was not logged is "
            "not judged."
        )
    return None


def policy_unusual(measurements: Measurements) -> str | None:
    c = measurements.policy
    parts = [f"confidence {percent(c.confidence)}"] if c.confidence < USUAL_CONFIDENCE else []
    usual_df = ASSUMED_DF if None in c.declared_noise else MAX_DF
    parts += (
        [f"run-to-run noise on {c.run_noise_df:,.6g} degrees of freedom"]
        if c.run_noise_df > usual_df
        else []
    )
    parts += (
        [f"window {percent(c.window_fraction)} of the plan"]
        if c.window_fraction < LEAST_WINDOW
        else []
    )
    if measurements.statistics is not None:
        level = abs(measurements.statistics.baseline.level)
        parts += [
            f"run-to-run noise {percent(f.prior.tau / level)} of the loss"
            for f in measurements.statistics.noises
            if level and f.prior.tau < LEAST_NOISE * level and f.prior.borrowed is None
        ]
    if not parts:
        return None
    return f"The policy makes a pass easier than usual: {', '.join(dict.fromkeys(parts))}."


def better_than_noise(measurements: Measurements) -> str | None:
    if (
        measurements.statistics is None
        or measurements.bounds is None
        or not measurements.bounds[1] < 0.0
    ):
        return None
    better = (
        f"{measurements.arms.candidate.name} is better by "
        f"{-measurements.statistics.interval.mean:.4f} nats, more than "
        "noise explains"
    )
    if measurements.compares != RECIPE:
        return f"{better}: a gain, or another loss or data."
    return (
        f"{better}: if the arms differ in more than the precision, that may hide a loss of the "
        "same size."
    )


def pairing_unproven(measurements: Measurements) -> str | None:
    if (
        measurements.policy.pairing == "unpaired"
        or measurements.r_pair is None
        or measurements.r_pair >= SAME_ORDER
        or not measurements.same_data_recorded
    ):
        return None
    if measurements.policy.pairing == "stated":
        what = "The order of the data is stated"
    else:
        what = "The data digests agree"
    return f"{what}, but the batch noise of the arms correlates only {measurements.r_pair:.2f}."


def pairing_weak(measurements: Measurements) -> str | None:
    if (
        measurements.policy.pairing == "unpaired"
        or measurements.r_pair is None
        or not SAME_ORDER <= measurements.r_pair < SURELY_SAME_ORDER
    ):
        return None
    return (
        f"The batch noise of the arms correlates {measurements.r_pair:.2f}; the same data order "
        "usually gives "
        "above 0.9."
    )


def window_sensitive(measurements: Measurements) -> str | None:
    if measurements.statistics is None or measurements.statistics.margin is None:
        return None
    margin = measurements.statistics.margin.nats
    sides = {
        _side(entry["lo"], entry["hi"], margin): entry["fraction"]
        for entry in measurements.statistics.sensitivity
    }
    if len(sides) < 2:
        return None
    windows = ", ".join(
        f"last {100 * fraction:g} %: {side}"
        for side, fraction in sorted(sides.items(), key=lambda item: item[1])
    )
    return f"Another window would decide otherwise ({windows})."


def _side(lo: float, hi: float, margin: float) -> str:
    if lo > margin:
        return "above the margin"
    if hi < margin:
        return "below the margin"
    return "straddles it"


def rounded(measurements: Measurements) -> str | None:
    if measurements.resolution.rounding_step < COARSE_ROUNDING_STEP:
        return None
    return (
        f"The losses are rounded to multiples of {measurements.resolution.rounding_step:.2g} nats."
    )


def smooth(measurements: Measurements) -> str | None:
    if measurements.resolution.smoothing < SMOOTHED_WEIGHT:
        return None
    return f"A series looks smoothed (weight about {measurements.resolution.smoothing:.2f})."


def unpaired_runs(measurements: Measurements) -> str | None:
    if measurements.arms.unpaired == 0 or not measurements.arms.share_seeds:
        return None
    return (
        f"{count(measurements.arms.unpaired, 'run')} of a seed that the other arm lacks: not used."
    )


def controls_left_out(measurements: Measurements) -> str | None:
    if not measurements.controls.left_out:
        return None
    return f"Controls not used: {'; '.join(measurements.controls.left_out)}."


def short_reruns_left_out(measurements: Measurements) -> str | None:
    left_out = [why for early in measurements.early for why in early.left_out]
    if not left_out:
        return None
    return f"Short reruns not used: {first_few(left_out, RUNS_SHOWN, '; ')}."


def goes_beyond_plan(measurements: Measurements) -> str | None:
    """The sentence of `BEYOND_PLAN`, which also decides where those steps could hide something."""
    beyond = beyond_plan(*measurements.arms.both_runs, measurements.window)
    if beyond is None:
        return None
    what = (
        f"Steps after the last one that is compared ({measurements.window.last:,}) are not in the "
        "window; a "
        f"run goes on to {beyond.last:,}"
    )
    if beyond.nonfinite_step is not None:
        return (
            f"{what}, and {measurements.arms.candidate.name} has a NaN or infinite loss at step "
            f"{beyond.nonfinite_step:,}."
        )
    if beyond.gap is not None:
        return f"{what}, with a mean gap of {beyond.gap:+.4f} nats there."
    return f"{what}."


def log_starts_late(measurements: Measurements) -> str | None:
    first = late_start(measurements.arms.runs, measurements.window)
    if first is None:
        return None
    return (
        f"A log begins at step {first:,} of {measurements.window.planned_steps:,}: what came "
        "before it was "
        "not judged."
    )


def as_of(measurements: Measurements) -> str | None:
    """The sentence of `AS_OF`, which also decides where the gap would pass."""
    if measurements.schedule.finished:
        return None
    return (
        f"The gap is known as of step {measurements.schedule.step:,}, not of a finished training: "
        f"{measurements.schedule.why}."
    )


def schedule_stated(measurements: Measurements) -> str | None:
    if measurements.schedule.stated:
        return (
            f"That the schedule ended at step {measurements.schedule.step:,} is stated, not "
            "recorded."
        )
    return None


def rate_in_one_arm(measurements: Measurements) -> str | None:
    only = _only_arm(measurements, lambda run: recorded_rates(run) is not None)
    if not only:
        return None
    return (
        f"Only {only} recorded its learning rate, so the schedules of the arms cannot be compared."
    )
