"""When can a comparison be decided? The half-width of the gap's interval against the steps, as it would be had the plan ended there.

A look at step s takes the window of a plan that ends at s (its last 20 %, by the policy) and the judge's own interval on it, so the
look at the end of the plan is the verdict's interval. What remains is forecast with h(K, n) of `advice`: step noise shrinks with the
window, run noise with the runs that are still to come. A look decides where its half-width is below |margin - gap|.

Use: `widths = half_widths(...)`, later `half_widths(..., known=widths.looks)`: known looks are not made again, so a call costs what is new.
Can fail: early looks. A gap that still moves, or a run floor that is a guess, makes them narrower or wider than the end will be.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from parity.judging.advice import predicted
from parity.judging.arms import Arms, make_arms, usable_controls
from parity.judging.criteria import Criteria
from parity.judging.curve import Curve, FloatArray
from parity.judging.inputs.alignment import Aligned, align
from parity.judging.inputs.resolution import SAMPLE, quantum
from parity.judging.interval import t_quantile
from parity.judging.margin import determine_margin
from parity.judging.window import COMPLETE_SHARE, Window, decay_phase, make_window, plan_window, planned_share
from parity.judging.window_statistics import PairInWindow, WindowGap, window_gap
from parity.wording import count, sentence_decimals, signed

LOOKS = 60  # evenly over the plan: closer ones share most of their points
MIN_POINTS = 20  # in a look's window


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The interval had the plan ended at `step`, from so many runs of each arm; nats.

    `run_half_width` is the part of run-to-run noise, which no step can shrink; `margin` is None where the policy gives none yet.
    """

    step: int
    gap: float
    half_width: float
    run_half_width: float
    margin: float | None
    baseline_runs: int
    candidate_runs: int

    @property
    def distance(self) -> float | None:
        """How far the gap is from the margin, nats."""
        return None if self.margin is None else abs(self.margin - self.gap)

    @property
    def decides(self) -> bool:
        """Whether the interval leaves the margin."""
        return self.distance is not None and self.half_width < self.distance


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfWidths:
    """Looks in order of their steps, and for the looks still to come (step, half-width in nats) as forecast from the last one."""

    looks: tuple[Look, ...]
    forecast: tuple[tuple[int, float], ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """Runs that have come equally far, aligned once for all looks at them."""

    baseline: tuple[Curve, ...]
    arms: Arms
    aligned: Aligned
    means: tuple[FloatArray, FloatArray]
    quantum: float


def half_widths(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    criteria: Criteria,
    *,
    planned_steps: int,
    controls: Sequence[Curve] = (),
    runs: tuple[int, int] | None = None,
    known: Sequence[Look] = (),
    ended: bool = False,
) -> HalfWidths:
    """Looks at a pair of arms, finished or not, at 60 steps of the plan and at the last that both arms have reached.

    Args:
        baseline, candidate: the arms' runs, losses in nats; a run counts at the looks that it has reached (95 %, as for the judge).
        criteria: the policy; its margin, confidence, window and run floors are used.
        planned_steps: registered length of a run, at least 1.
        controls: reruns of the baseline, which measure its run noise.
        runs: how many runs of each arm are planned, for the forecast; by default those given.
        known: looks of an earlier call with the same runs and policy.
        ended: whether the runs train no further, so that nothing is left to forecast.
    """
    given = [[run for run in arm if len(run.steps)] for arm in (baseline, candidate)]
    whole = plan_window((*given[0], *given[1]), planned_steps, False, criteria.window_fraction)
    steps = [whole.origin - 1 + -(-planned_steps * number // LOOKS) for number in range(1, LOOKS + 1)]
    last = min((max((int(run.steps[-1]) for run in arm), default=-1) for arm in given), default=-1)
    last = min(last, whole.last)
    made: dict[int, Look] = {}
    newest: WindowGap | None = None
    pairs: dict[tuple[int, ...], _Pair | None] = {}
    remembered = {look.step: look for look in known}
    for step in sorted(step for step in {*steps, last} if whole.origin <= step <= last):
        window = make_window(step - whole.origin + 1, whole.origin, criteria.window_fraction, "declared")
        reached = tuple(tuple(i for i, run in enumerate(arm) if planned_share([run], window) >= COMPLETE_SHARE) for arm in given)
        old = remembered.get(step)
        if old is not None and step < last and (old.baseline_runs, old.candidate_runs) == tuple(map(len, reached)):
            made[step] = old
            continue
        key = (*reached[0], -1, *reached[1])
        if key not in pairs:
            pairs[key] = _pair([given[0][i] for i in reached[0]], [given[1][i] for i in reached[1]], criteria, whole)
        pair = pairs[key]
        measured = _look(pair, criteria, window, controls, tuple(map(len, reached))) if pair else None
        if measured:
            made[step], newest = measured
    looks = tuple(made.values())
    forecast = (
        _forecast(looks[-1], newest, steps, criteria, runs or (len(baseline), len(candidate)), whole)
        if newest and looks and not ended
        else ()
    )
    return HalfWidths(looks=looks, forecast=forecast, sentence=_sentence(looks, forecast, runs, whole))


def _pair(baseline: Sequence[Curve], candidate: Sequence[Curve], criteria: Criteria, window: Window) -> _Pair | None:
    if not baseline or not candidate:
        return None
    arms = make_arms(("baseline", "candidate"), baseline, candidate, criteria, window)
    if not arms.share_seeds:
        return None
    aligned = align(arms.baseline.runs, arms.candidate.runs, window.last)
    late = [row[-SAMPLE:] for arm in (aligned.baseline, aligned.candidate) for row in arm]
    return _Pair(baseline=tuple(baseline), arms=arms, aligned=aligned, means=aligned.arm_means(), quantum=max(quantum(row) for row in late))


def _look(
    pair: _Pair, criteria: Criteria, window: Window, controls: Sequence[Curve], runs: tuple[int, ...]
) -> tuple[Look, WindowGap] | None:
    judged = decay_phase(window, pair.baseline[0], criteria.min_points)
    part = judged.part(pair.aligned.steps)
    if part.stop - part.start < MIN_POINTS:
        return None
    usable = usable_controls(pair.arms, controls, criteria, judged)
    in_window = PairInWindow(
        aligned=pair.aligned, means=pair.means, part=part, arms=pair.arms, controls=usable, criteria=criteria, quantum=pair.quantum
    )
    measured = window_gap(in_window)
    level = float(in_window.baseline[measured.keep].mean())
    margin = determine_margin(criteria, level, measured.floors[0])
    run, half = measured.interval.run, measured.interval.half_width(criteria.confidence)
    look = Look(
        step=window.last,
        gap=measured.interval.mean,
        half_width=half,
        run_half_width=min(half, t_quantile(criteria.confidence, run.df) * run.variance**0.5),
        margin=margin.nats if margin else None,
        baseline_runs=runs[0],
        candidate_runs=runs[1],
    )
    return look, measured


def _forecast(
    last: Look, measured: WindowGap, steps: Sequence[int], criteria: Criteria, runs: tuple[int, int], whole: Window
) -> tuple[tuple[int, float], ...]:
    """Half-widths of the steps to come with all runs that are planned; nothing where all of it is there."""
    added = max(0, runs[0] - last.baseline_runs), max(0, runs[1] - last.candidate_runs)
    ahead = [step for step in steps if step > last.step] or ([whole.last] if any(added) else [])
    if not ahead:
        return ()
    done = last.step - whole.origin + 1
    widths = [predicted(measured.interval, measured.floors, *added, (step - whole.origin + 1) / done) for step in ahead]
    return tuple((step, width.half_width(criteria.confidence)) for step, width in zip(ahead, widths, strict=True))


def _sentence(looks: Sequence[Look], forecast: Sequence[tuple[int, float]], runs: tuple[int, int] | None, whole: Window) -> str:
    """What the looks say, in words."""
    if not looks:
        return f"Not known yet: the first look needs {MIN_POINTS} common steps in the last {100 * whole.fraction:g} % of what was trained."
    last = looks[-1]
    places = sentence_decimals(last.margin)
    few = runs is not None and runs != (last.baseline_runs, last.candidate_runs)
    so_far = f", with {count(last.candidate_runs, 'run')} against {last.baseline_runs}," if few else ""
    gap = signed(last.gap, places)
    here = f"After step {last.step:,}{so_far} the interval reaches {last.half_width:.{places}f} nats to each side of the gap of {gap}"
    if last.distance is None or last.margin is None:
        return f"{here}; the policy's margin is not known yet."
    away = f"the {last.distance:.{places}f} between the gap and the margin of {last.margin:.{places}f}"
    floor = (
        "Run-to-run noise alone is wider than that: more runs would decide it, more steps would not."
        if last.run_half_width >= last.distance
        else "More runs or more steps would decide it."
    )
    if not forecast and last.step < whole.last:
        return f"{here}; the runs ended there, before the planned last step {whole.last:,}."
    if last.decides and not forecast:
        return f"{here}, less than {away}: narrow enough to decide, since step {_since(looks):,}."
    if last.decides:
        return f"{here}, less than {away}: narrow enough to decide, if the gap stays where it is; the verdict waits for the planned end."
    if not forecast:
        return f"{here}, more than {away}: too wide to decide. {floor}"
    enough = next((step for step, half in forecast if half < last.distance), None)
    end = f"{forecast[-1][1]:.{places}f} at the planned end" + (f" with {count(runs[1], 'run')} against {runs[0]}" if runs else "")
    if enough is None:
        return f"{here}, more than {away}. If gap and noise stay as they are it will be {end}: still too wide. {floor}"
    return f"{here}, more than {away}. If gap and noise stay as they are it will be {end}: narrow enough from about step {enough:,} on."


def _since(looks: Sequence[Look]) -> int:
    """The first step from which on every look decides."""
    first = looks[-1].step
    for look in reversed(looks):
        if not look.decides:
            break
        first = look.step
    return first
