"""The path of a verdict: its gap with its interval, as of steps on the way to its end. The last
point is the verdict.

at step t         the judge's gap and interval for the runs cut at t, over the window that its rule
                  gives there: the last fraction of the steps so far, of a decay phase that part,
                  and at least 8 common points
run-to-run noise  tau_A(t) = tau_A L(t) / L: the verdict's own run-to-run noise as shares of the
                  baseline's loss L, with their degrees of
freedom, and what the verdict leaves of them where runs are capped; nothing is estimated or borrowed
    anew
as it was         which runs count, their pairs, the state of the schedule, the rounding and the
                  confidence are the verdict's

Assumption that can fail: run-to-run noise is the same share of the loss on the way as at the end.
Runs of an unfinished schedule differ more (4 to 20 times as much at 8B), so an early point says
where the gap was, not how surely a verdict on the cut runs would have stood there. Points hold one
by one, not all at once.
"""

import bisect
import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from parity.judging.curves.curve import IntArray
from parity.judging.curves.window import Window, decay_phase, make_window
from parity.judging.document_types import EvaluationPathDocument, PathPointDocument, VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.clusters import ClusteredGap
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.gap import Losses, gap_interval
from parity.judging.evaluations.measured import MeasuredEvaluations, over_clusters
from parity.judging.evaluations.question import EvaluationQuestion
from parity.judging.evaluations.side import clustered
from parity.judging.gap.robust_bounds import noise_of
from parity.judging.gap.window_statistics import PairInWindow, WindowStatistics, gap_with_noise
from parity.judging.measurements import Measurements
from parity.judging.policy import POINTS_TO_FAIL
from parity.judging.verdict.deciding_interval import deciding_levels
from parity.judging.verdict.verdict import Verdict

POINTS, FEWEST = 40, 26  # of a path: 26 and more wherever as many common steps have an interval


def path_of(verdict: Verdict) -> list[PathPointDocument]:
    """The path of a verdict on training curves, nats; empty without a gap, and where its window has
    fewer than 8 points.
    """
    measurements = verdict.measurements
    if (
        measurements.statistics is None
        or measurements.bounds is None
        or measurements.statistics.n < POINTS_TO_FAIL
    ):
        return []
    steps = measurements.aligned.steps[: measurements.window.part(measurements.aligned.steps).stop]
    levels = deciding_levels(measurements, verdict.verdict)
    with np.errstate(over="ignore", invalid="ignore"):
        earlier = _earlier_points(measurements, measurements.statistics, steps, levels)
    gap = measurements.statistics.interval
    return _finite([*earlier, _point(int(steps[-1]), gap.mean, gap.bounds(*levels))])


def _earlier_points(
    measurements: Measurements,
    statistics: WindowStatistics,
    steps: IntArray,
    levels: tuple[float, float],
) -> list[PathPointDocument]:
    """The points before the verdict's own, which is at the last of the common steps (n,) of its
    window and before, with intervals at the levels of the one that decided.
    """
    pair = PairInWindow(
        aligned=measurements.aligned,
        means=measurements.aligned.arm_means(),
        part=measurements.window.part(measurements.aligned.steps),
        arms=measurements.arms,
        controls=measurements.controls,
        policy=measurements.policy,
        rounding_step=measurements.resolution.rounding_step,
        multiplicity=measurements.multiplicity,
        exact=measurements.identical.rounding if measurements.identical else None,
    )
    noise = noise_of(statistics.interval, statistics.baseline.level)

    def cut(step: int) -> tuple[Window, slice]:
        window = _window_at(measurements, step)
        return window, window.part(steps)

    def has_interval(index: int) -> bool:
        return _points(cut(int(steps[index]))[1]) >= POINTS_TO_FAIL

    first = bisect.bisect_left(range(len(steps)), True, key=has_interval)
    points = []
    for step in some_of(steps[first:])[:-1].tolist():
        window, part = cut(step)
        if _points(part) >= POINTS_TO_FAIL:
            gap = gap_with_noise(dataclasses.replace(pair, part=part), window, noise)
            points.append(_point(step, gap.mean, gap.bounds(*levels)))
    return points


def _points(part: slice) -> int:
    return int(part.stop) - int(part.start)


def _window_at(measurements: Measurements, step: int) -> Window:
    """The window that the verdict's rule gives for runs which end at this step."""
    rule = measurements.window
    window = make_window(
        rule.planned_steps,
        rule.origin,
        rule.fraction,
        rule.plan,
        last=step,
        unreached=rule.unreached,
    )
    return decay_phase(window, measurements.arms.baseline.given[0], measurements.policy.min_points)


def some_of(steps: IntArray) -> IntArray:
    """At most 40 of the sorted steps (n,), evenly apart, the last one among them; evenly by number
    where a log is uneven.
    """
    last = len(steps) - 1
    if last < POINTS:
        return steps
    apart = np.searchsorted(steps, np.linspace(float(steps[0]), float(steps[last]), POINTS))
    chosen = np.unique(np.append(np.minimum(apart, last), last))
    if len(chosen) < FEWEST:
        chosen = np.unique(np.linspace(0, last, POINTS).astype(np.int64))
    some: IntArray = steps[chosen]
    return some


def evaluation_path_of(case: EvaluationCase, candidate: str) -> EvaluationPathDocument:
    """The path of a comparison of evaluations, over runs and over clusters, nats; each empty where
    the document has no such gap.

    At a common evaluation it compares those in the last fraction of the steps so far, at least that
    one; where the case declares its points, the last of as many. Raises ValueError where a declared
    point has no evaluation of every run.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        measurements, question = case.measured(candidate)
        if not measurements.points:
            return {"over_runs": [], "over_clusters": []}
        earlier = some_of(measurements.steps[measurements.steps <= measurements.points[-1]])[
            :-1
        ].tolist()
        over_runs = _over_runs(case, measurements, question, earlier)
        return {
            "over_runs": over_runs,
            "over_clusters": _over_clusters(case, measurements, question, earlier),
        }


def with_evaluation_paths(
    case: EvaluationCase, documents: Sequence[EvaluationDocument]
) -> list[EvaluationDocument]:
    """The documents of a comparison of evaluations with their paths, as pages and figures show
    them.
    """
    return [
        {**document, "path": evaluation_path_of(case, document["candidate"]["name"])}
        for document in documents
    ]


def _over_runs(
    case: EvaluationCase,
    measurements: MeasuredEvaluations,
    question: EvaluationQuestion,
    earlier: Iterable[int],
) -> list[PathPointDocument]:
    if measurements.over_runs is None:
        return []
    noise = noise_of(measurements.over_runs, float(measurements.baseline.mean()))
    points = []
    for step in earlier:
        losses = _compared_at(case, measurements, step)
        known = noise.at(float(losses[0].mean()))
        gap = gap_interval(
            losses, measurements.priors, measurements.seeds, measurements.rounding, known
        )
        points.append(_point(step, gap.mean, gap.bounds(question.confidence)))
    return _finite(
        [
            *points,
            _point(
                measurements.points[-1],
                measurements.over_runs.mean,
                measurements.over_runs.bounds(question.confidence),
            ),
        ]
    )


def _over_clusters(
    case: EvaluationCase,
    measurements: MeasuredEvaluations,
    question: EvaluationQuestion,
    earlier: Iterable[int],
) -> list[PathPointDocument]:
    clusters, key = measurements.over_clusters, case.cluster
    if clusters is None or key is None:
        return []
    level = float(measurements.baseline.mean())

    def as_known(over: ClusteredGap, at: float) -> ClusteredGap:
        share = abs(at / level) if level else 1.0
        return dataclasses.replace(
            over,
            estimate=dataclasses.replace(
                clusters.estimate, mean=over.estimate.mean, se=clusters.estimate.se * share
            ),
        )

    points = []
    for step in earlier:
        losses = _compared_at(case, measurements, step)
        over = over_clusters(
            measurements.runs, (losses[0].mean(axis=1), losses[1].mean(axis=1)), key
        )
        if over is not None:
            gap = clustered(measurements, as_known(over, float(losses[0].mean())))
            points.append(_point(step, gap.mean, gap.bounds(question.confidence)))
    gap = clustered(measurements, clusters)
    return _finite(
        [*points, _point(measurements.points[-1], gap.mean, gap.bounds(question.confidence))]
    )


def _compared_at(case: EvaluationCase, measurements: MeasuredEvaluations, step: int) -> Losses:
    """The losses of both arms at the evaluations that are compared as of a common step."""
    end = int(np.searchsorted(measurements.steps, step, side="right"))
    window = make_window(
        measurements.window.planned_steps,
        measurements.window.origin,
        measurements.window.fraction,
        measurements.window.plan,
        last=step,
    )
    first = end - len(measurements.points) if case.at else window.part(measurements.steps).start
    compared = slice(max(min(first, end - 1), 0), end)
    return measurements.losses[0][:, compared], measurements.losses[1][:, compared]


def _point(step: int, mean: float, ends: tuple[float, float]) -> PathPointDocument:
    return {"step": step, "mean": mean, "lo": ends[0], "hi": ends[1]}


def _finite(points: list[PathPointDocument]) -> list[PathPointDocument]:
    """The points whose numbers are finite; none where the last, which is the verdict, is not."""
    finite = [
        point for point in points if all(math.isfinite(point[key]) for key in ("mean", "lo", "hi"))
    ]
    if finite and finite[-1] is points[-1]:
        return finite
    return []


def with_path(verdicts: Iterable[Verdict]) -> list[VerdictDocument]:
    """The documents of verdicts with their paths, as they are shown."""
    return [{**verdict.document(), "path": path_of(verdict)} for verdict in verdicts]
