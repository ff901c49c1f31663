"""One function a remark: what a reader should know beside the verdict, as a sentence with its numbers; none of them decides."""

from parity.judging.alignment import same_series
from parity.judging.measurements import Measurements
from parity.judging.pairing import SAME_ORDER, SURELY_SAME_ORDER
from parity.judging.resolution import COARSE_QUANTUM, SMOOTHED_WEIGHT
from parity.wording import count, percent


def noise_assumed(m: Measurements) -> str | None:
    """A run floor is assumed, not measured (S4)."""
    if m.late is None or m.late.interval.run.seeds > 1:
        return None
    sides = ((m.arms.baseline.name, m.late.baseline), (m.arms.candidate.name, m.late.candidate))
    level = abs(m.late.baseline.level)
    assumed = [(name, arm.floor.prior.tau / level) for name, arm in sides if arm.floor.measured_df == 0 and level]
    if not assumed:
        return None
    shares = {percent(share) for _, share in assumed}
    which = (
        f"{shares.pop()} of the loss for each arm"
        if len(assumed) == 2 and len(shares) == 1
        else " and ".join(f"{percent(share)} of the loss for {name}" for name, share in assumed)
    )
    return f"Run noise was assumed ({which}), not measured: add replicates or an A/A control to replace the assumption."


def identical(m: Measurements) -> str | None:
    """Runs are copies of another run (S4)."""
    total = m.arms.baseline.identical + m.arms.candidate.identical
    if total == 0:
        return None
    word = "repeats" if total == 1 else "repeat"
    return f"{count(total, 'run')} {word} another run (to 0.0001 nats at every step) and {'counts' if total == 1 else 'count'} for nothing."


def arms_identical(m: Measurements) -> str | None:
    """Every run of the candidate is a run of the baseline, value for value."""
    if not all(any(same_series(run, other) for other in m.arms.baseline.runs) for run in m.arms.candidate.runs):
        return None
    return f"{m.arms.candidate.name} equals {m.arms.baseline.name} value for value: was one file given twice?"


def pairing_unproven(m: Measurements) -> str | None:
    """Equal data digests, but the batch noise does not agree (S1)."""
    if m.criteria.pairing == "unpaired" or m.r_pair is None or m.r_pair >= SAME_ORDER or not m.same_data_recorded:
        return None
    return f"The data digests agree, but the batch noise of the arms correlates only {m.r_pair:.2f}."


def pairing_weak(m: Measurements) -> str | None:
    """The batch noise agrees less than usual (S1)."""
    if m.criteria.pairing == "unpaired" or m.r_pair is None or not SAME_ORDER <= m.r_pair < SURELY_SAME_ORDER:
        return None
    return f"The batch noise of the arms correlates {m.r_pair:.2f}; the same data order usually gives above 0.9."


def window_sensitive(m: Measurements) -> str | None:
    """Another window would decide otherwise (C3)."""
    if m.late is None or m.late.margin is None:
        return None
    margin = m.late.margin.nats
    sides = {_side(entry.lo, entry.hi, margin): entry.fraction for entry in m.late.sensitivity}
    if len(sides) < 2:
        return None
    said = ", ".join(f"last {100 * fraction:g} %: {side}" for side, fraction in sorted(sides.items(), key=lambda item: item[1]))
    return f"Another window would decide otherwise ({said})."


def _side(lo: float, hi: float, margin: float) -> str:
    return "above the margin" if lo > margin else "below the margin" if hi < margin else "straddles it"


def rounded(m: Measurements) -> str | None:
    """Losses are visibly rounded."""
    if m.resolution.quantum < COARSE_QUANTUM:
        return None
    return f"The losses are rounded to multiples of {m.resolution.quantum:.2g} nats."


def smooth(m: Measurements) -> str | None:
    """Losses are visibly smoothed."""
    if m.resolution.smoothing < SMOOTHED_WEIGHT:
        return None
    return f"A series looks smoothed (weight about {m.resolution.smoothing:.2f})."


def unpaired_runs(m: Measurements) -> str | None:
    """Runs without a partner of the same seed were left out."""
    if m.arms.unpaired == 0 or not m.arms.share_seeds:
        return None
    return f"{count(m.arms.unpaired, 'run')} of a seed that the other arm lacks: not used."


def controls_left_out(m: Measurements) -> str | None:
    """Controls that are no reruns of the baseline were left out."""
    return f"Controls not used: {'; '.join(m.controls.left_out)}." if m.controls.left_out else None


def beyond_plan(m: Measurements) -> str | None:
    """A run goes on after the planned last step."""
    beyond = [int(run.steps[-1]) for run in m.arms.runs if len(run.steps) and int(run.steps[-1]) > m.window.last]
    return f"Steps after the plan's last ({m.window.last:,}) are not judged; a run goes on to {max(beyond):,}." if beyond else None
