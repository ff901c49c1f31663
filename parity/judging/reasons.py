"""One function a reason that can decide: its sentence with numbers where it holds, else None. `decision` says in which order they count."""

import re

from parity.judging.measurements import Measurements
from parity.judging.pairing import SAME_ORDER
from parity.judging.resolution import MAX_LAG_SHARE, MIN_COVERAGE, SMOOTHED_WEIGHT
from parity.judging.spikes import MAX_MASKED_SHARE, diverged_late
from parity.judging.warnings import noise_assumed
from parity.judging.window import COMPLETE_SHARE
from parity.judging.window_statistics import Late
from parity.wording import count, interval_words, percent, sentence_decimals

MAX_NONFINITE_SHARE = 0.01
MIN_POINTS_TO_FAIL = 50  # common points in the window; below the policy's min_points only a fail is possible
MAX_LEVEL_NATS = 20.0  # above ln of any vocabulary: a relative margin or run floor would be meaningless
KEYS_SHOWN, DIGEST_SHOWN = 3, 8  # of the keys that differ, and of a digest's characters; the document has all of both
_DIGEST = re.compile(r"\b[0-9a-fA-F]{16,}\b")
DRIFT_Z, DRIFT_REACH = 1.96, 1.5


def empty(m: Measurements) -> str | None:
    """A run has no steps."""
    for arm in (m.arms.baseline, m.arms.candidate):
        for number, run in enumerate(arm.runs, 1):
            if len(run.steps) == 0:
                return f"Run {run.label or number} of {arm.name} has no steps."
    return None


def no_common_steps(m: Measurements) -> str | None:
    """No step was logged by every run."""
    if m.common_logged_steps:
        return None
    spans = [f"{run.completeness.first} to {run.completeness.last} every {run.completeness.stride or 1}" for run in m.arms.runs]
    return f"The runs have no step in common: {'; '.join(dict.fromkeys(spans))}."


def data_order(m: Measurements) -> str | None:
    """The arms read other data or another order (S1)."""
    if m.criteria.pairing == "unpaired":
        return None
    if not m.arms.share_seeds:
        return "The arms have no seed in common, so no two runs read the same data in the same order."
    if m.r_pair is None or m.r_pair >= SAME_ORDER or m.same_data_recorded:
        return None
    return f"The arms did not read the same data in the same order: their batch noise correlates {m.r_pair:.2f} (above 0.9 expected)."


def baseline_invalid(m: Measurements) -> str | None:
    """The baseline has NaN or infinite losses beyond isolated ones (S0)."""
    return _nonfinite(m, baseline=True)


def nonfinite_candidate(m: Measurements) -> str | None:
    """The candidate has NaN or infinite losses beyond isolated ones (S0)."""
    return _nonfinite(m, baseline=False)


def _nonfinite(m: Measurements, *, baseline: bool) -> str | None:
    arm = m.arms.baseline if baseline else m.arms.candidate
    bad = arm.nonfinite
    if not bad.at_end and bad.worst_share <= MAX_NONFINITE_SHARE:
        return None
    where = "and a run ends in one" if bad.at_end else f"{percent(bad.worst_share)} of a run's steps"
    return f"{arm.name} has {count(bad.count, 'NaN or infinite loss').replace('losss', 'losses')} from step {bad.first_step:,} on, {where}."


def not_nats(m: Measurements) -> str | None:
    """The loss is no cross-entropy in nats, so relative margins and run floors mean nothing."""
    if m.late is None:
        return None
    level = m.late.baseline.level
    absolute = m.late.margin is not None and _all_absolute(m)
    if absolute or 0.0 < level <= MAX_LEVEL_NATS:
        return None
    return f"The baseline's loss in the window is {level:.4g}; expected a cross-entropy in nats, above 0 and at most {MAX_LEVEL_NATS:g}."


def _all_absolute(m: Measurements) -> bool:
    c = m.criteria
    amounts = (c.margin, c.baseline_run_floor, c.candidate_run_floor)
    return c.profile is None and all(amount is not None and amount.unit == "nats" for amount in amounts)


def diverged(m: Measurements) -> str | None:
    """The gap ends far above the margin and above its own first half (S3)."""
    if m.late is None or m.late.margin is None or not diverged_late(m.late.spikes.divergence_gap, m.late.margin.nats):
        return None
    return f"{m.arms.candidate.name} diverges late: over the last tenth of the window its gap is above 3 x {_margin(m.late)} nats."


def candidate_unstable(m: Measurements) -> str | None:
    """The candidate alone spikes, over more than a tenth of the window (S3)."""
    if m.late is None or m.late.spikes.masked_share <= MAX_MASKED_SHARE or not m.late.spikes.candidate_alone:
        return None
    s = m.late.spikes
    return f"{m.arms.candidate.name} spikes alone: {s.candidate} times against {s.baseline}, over {percent(s.masked_share)} of the window."


def incomplete(m: Measurements) -> str | None:
    """A run ended before 95 % of the plan (C0)."""
    if m.planned_share >= COMPLETE_SHARE:
        return None
    last = min(int(run.steps[-1]) if len(run.steps) else 0 for run in m.arms.runs)
    return f"A run stops at step {last:,} of {m.window.planned_steps:,} ({percent(m.planned_share)} of the plan, 95 % needed)."


def too_few(m: Measurements) -> str | None:
    """Too few common points in the window (S2), and no clear fail that they suffice for."""
    return None if _few_suffice_to_fail(m) else _few_points(m)


def few_for_a_pass(m: Measurements) -> str | None:
    """Too few common points in the window for a pass, though they suffice for the fail (decision 0012)."""
    return _few_points(m) if _few_suffice_to_fail(m) else None


def _few_suffice_to_fail(m: Measurements) -> bool:
    return m.late is not None and m.late.n >= MIN_POINTS_TO_FAIL and gap_exceeds(m) is not None


def _few_points(m: Measurements) -> str | None:
    points = m.late.n if m.late else 0
    if points >= m.criteria.min_points:
        return None
    return f"The window has {count(points, 'common step')}; {m.criteria.min_points} are needed for a pass."


def margin_undetermined(m: Measurements) -> str | None:
    """The noise-floor margin has no measured run floor to stand on (S6)."""
    if m.late is None or m.late.margin is not None:
        return None
    return "The noise-floor margin needs a measured run floor of the baseline: at least 4 baseline runs or controls of one seed."


def unstable(m: Measurements) -> str | None:
    """Spikes cover more than a tenth of the window (S3)."""
    if m.late is None or m.late.spikes.masked_share <= MAX_MASKED_SHARE:
        return None
    s = m.late.spikes
    return f"Spikes cover {percent(s.masked_share)} of the window (baseline {s.baseline}, candidate {s.candidate}); 10 % at most."


def confounded(m: Measurements) -> str | None:
    """The arms differ in more than the recipe."""
    if not m.differing_context:
        return None
    named = [_DIGEST.sub(lambda digest: digest[0][:DIGEST_SHOWN], entry) for entry in m.differing_context[:KEYS_SHOWN]]
    more = len(m.differing_context) - KEYS_SHOWN
    tail = f"; and {more} more" if more > 0 else ""
    return f"The runs differ in more than the recipe: {'; '.join(named)}{tail}."


def not_converged(m: Measurements) -> str | None:
    """An arm still declines too much over the window (C1)."""
    if m.late is None:
        return None
    for name, arm in ((m.arms.baseline.name, m.late.baseline), (m.arms.candidate.name, m.late.candidate)):
        if not arm.converged:
            return f"{name} still falls by {arm.decline:.3f} nats over the window; a late phase falls by at most {arm.decline_limit:.3f}."
    return None


def gap_exceeds(m: Measurements) -> str | None:
    """The whole interval is above the margin (S7)."""
    lo, _ = _bounds(m)
    if m.late is None or m.late.margin is None or not lo > m.late.margin.nats:
        return None
    return f"The whole interval ({_interval(m)}) is above the margin of {_margin(m.late)} nats."


def better(m: Measurements) -> str | None:
    """The whole interval is below minus the margin (S7)."""
    _, hi = _bounds(m)
    if m.late is None or m.late.margin is None or not hi < -m.late.margin.nats:
        return None
    return f"{m.arms.candidate.name} is better by more than the margin ({_interval(m)}): something else than the precision has changed."


def gap_growing(m: Measurements) -> str | None:
    """The gap rises toward the margin (C2)."""
    if m.late is None or m.late.margin is None:
        return None
    late = m.late
    rises = late.drift - DRIFT_Z * late.drift_se > 0.0
    if not rises or not late.interval.mean + DRIFT_REACH * late.drift > m.late.margin.nats:
        return None
    return f"The gap is growing: by {late.drift:+.4f} nats over the window, toward the margin of {_margin(late)}."


def plan_unknown(m: Measurements) -> str | None:
    """Nobody said how long the runs were meant to be (S2)."""
    if m.window.plan != "unknown":
        return None
    return "How long the runs were meant to be is not known: two curves cut at the same step look complete. State the planned steps."


def downsampled(m: Measurements) -> str | None:
    """A series is a sample of its run."""
    if m.resolution.coverage >= MIN_COVERAGE:
        return None
    return f"A series is a sample of its run: the window holds {percent(m.resolution.coverage)} of the steps its own stride promises."


def smoothed(m: Measurements) -> str | None:
    """A series is averaged over more than the window can forget."""
    if m.resolution.smoothing < SMOOTHED_WEIGHT or m.resolution.memory_share <= MAX_LAG_SHARE:
        return None
    return f"A series is smoothed (weight about {m.resolution.smoothing:.2f}): it remembers more than 5 % of the window. Use the raw loss."


def rounding_hides(m: Measurements) -> str | None:
    """Rounding could carry the interval across the margin."""
    _, hi = _bounds(m)
    if m.late is None or m.late.margin is None or m.resolution.rounding == 0.0 or hi + m.resolution.rounding < m.late.margin.nats:
        return None
    if hi >= m.late.margin.nats:
        return None
    return (
        f"Losses are rounded to {m.resolution.quantum:.2g}: that can move the gap by {m.resolution.rounding:.2g} nats, across the margin."
    )


def spikes_hide(m: Measurements) -> str | None:
    """The raw gap is not below the margin (S3)."""
    if m.late is None or m.late.margin is None or m.late.spikes.masked_share == 0.0 or m.late.raw_gap < m.late.margin.nats:
        return None
    if within_margin(m) is None:
        return None
    return f"Only without its spikes is the gap below the margin: {m.late.raw_gap:+.4f} nats with them."


def noise_rejected(m: Measurements) -> str | None:
    """The policy rejects an assumed run floor."""
    return noise_assumed(m) if m.criteria.assumed_noise == "reject" else None


def within_margin(m: Measurements) -> str | None:
    """The upper end of the interval is below the margin (S7)."""
    lo, hi = _bounds(m)
    if m.late is None or m.late.margin is None or not hi < m.late.margin.nats:
        return None
    if m.criteria.two_sided and not lo > -m.late.margin.nats:
        return None
    return f"The upper end of the interval ({_interval(m)}) is below the margin of {_margin(m.late)} nats."


def straddles(m: Measurements) -> str | None:
    """The interval contains the margin (S7)."""
    if m.late is None or m.late.margin is None or within_margin(m) or gap_exceeds(m) or better(m):
        return None
    return f"The interval ({_interval(m)}) straddles the margin of {_margin(m.late)} nats."


def _bounds(m: Measurements) -> tuple[float, float]:
    return m.late.interval.bounds(m.criteria.confidence) if m.late else (float("nan"), float("nan"))


def _interval(m: Measurements) -> str:
    decimals = sentence_decimals(m.late.margin.nats if m.late and m.late.margin else None)
    return interval_words(*_bounds(m), decimals)


def _margin(late: Late) -> str:
    nats = late.margin.nats if late.margin else float("nan")
    return f"{nats:.{sentence_decimals(nats)}f}"
