"""A comparison of evaluations as a JSON-able document: everything that is needed to argue with it
and to compute it again.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from parity.canonical_json import fields_of, json_value
from parity.judging.codes import BY_CODE
from parity.judging.curves.curve import Curve
from parity.judging.decision import Decision
from parity.judging.evaluations.advice import EvaluationAdvice
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.group_means import spread
from parity.judging.evaluations.hardware_speed import speeds
from parity.judging.evaluations.measured import MIN_RUNS, MeasuredEvaluations
from parity.judging.evaluations.question import EvaluationQuestion, Ground
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.evaluations.samples_to_target import Reached, arm_time, samples_to, token_tax
from parity.judging.evaluations.side import clustered, judged, side
from parity.judging.gap.interval import Interval
from parity.version import JUDGE_VERSION

EVALUATION_SCHEMA = "parity.evaluations/1"


def evaluation_document(
    measurements: MeasuredEvaluations,
    question: EvaluationQuestion,
    decision: Decision,
    advice: EvaluationAdvice,
    *,
    grounds: Sequence[Ground],
    target: float | None,
    times: tuple[Sequence[RunTimes], Sequence[RunTimes]],
) -> EvaluationDocument:
    """The document of one comparison, keys sorted, safe for JSON."""
    if target is not None and measurements.points:
        reached = [[samples_to(run, target) for run in arm] for arm in measurements.runs]
    else:
        reached = None
    arms = [
        _arm(
            question.arms[number],
            measurements,
            number,
            reached[number] if reached else None,
            times[number],
            question,
        )
        for number in range(len(measurements.runs))
    ]
    document: EvaluationDocument = json_value(
        {
            "schema": EVALUATION_SCHEMA,
            "engine_version": JUDGE_VERSION,
            "verdict": decision.state,
            "codes": decision.codes,
            "reasons": [decision.deciding, *decision.others],
            "advice": advice,
            "profile": question.policy.profile_name,
            "policy": question.policy.document(),
            "margin": question.margin,
            "baseline": arms[0],
            "candidate": arms[1],
            "as_of": _as_of(measurements, question),
            "schedule": {
                "step": measurements.schedule.step,
                "finished": measurements.schedule.finished,
                "stated": measurements.schedule.stated,
                "slope": measurements.schedule.slope,
            },
            "gap": _gap(measurements, question),
            **_chance(measurements, question, decision),
            "curve": {"steps": measurements.steps, **fields_of(measurements.bands)}
            if measurements.bands
            else None,
            "grounds": [
                {**fields_of(ground), "confounded": ground.confounded} for ground in grounds
            ],
            "target": _target(reached, target, question),
            "speed": speeds(*times, question.policy.confidence),
            "planned_steps": question.planned_steps,
            "notes": _notes([run for arm in measurements.runs for run in arm]),
        }
    )
    return document


def _notes(runs: Sequence[Curve]) -> list[dict[str, object]]:
    """What a reader noted of the runs, each note once with the number of its runs."""
    counted = Counter(note for run in runs for note in run.notes)
    return [{"note": note, "runs": number} for note, number in counted.items()]


def _arm(
    name: str,
    measurements: MeasuredEvaluations,
    number: int,
    reached: Sequence[Reached] | None,
    times: Sequence[RunTimes],
    question: EvaluationQuestion,
) -> dict[str, object]:
    """The baseline (number 0) or the candidate (1)."""
    runs, values = (
        measurements.runs[number],
        (measurements.baseline, measurements.candidate)[number],
    )
    mean = float(values.mean()) if len(values) and np.isfinite(values).all() else None
    between = (
        spread(values, question.policy.confidence) if len(values) >= MIN_RUNS and mean else None
    )
    by_label = {run_times.run: run_times for run_times in times}
    described = []
    for place, run in enumerate(runs):
        to_target = reached[place] if reached else None
        described.append(
            {
                "label": run.label,
                "cluster": run.context.get(question.cluster) if question.cluster else None,
                "last_step": run.steps[-1] if len(run.steps) else 0,
                "loss": values[place] if mean is not None else None,
                "samples_to_target": to_target.samples if to_target else None,
                "beyond": to_target.beyond if to_target else None,
                "times": {
                    "hardware": run_times.hardware,
                    "step_seconds": run_times.step_seconds,
                    "seconds_to_target": run_times.seconds_to_target,
                }
                if (run_times := by_label.get(run.label)) is not None
                else None,
                "sha256": run.digest(),
            }
        )
    level = float(measurements.baseline.mean()) if len(measurements.baseline) else 0.0
    if between and mean and level:
        share = {"rel": between.sd / mean, "assumed_rel": measurements.priors[number].tau / level}
    else:
        share = {}
    return {
        "name": name,
        "recipe": runs[0].recipe,
        "mean": mean,
        "spread": {"sd": between.sd, "lo": between.lo, "hi": between.hi, **share}
        if between
        else None,
        "runs": described,
    }


def _as_of(
    measurements: MeasuredEvaluations, question: EvaluationQuestion
) -> dict[str, object] | None:
    if not measurements.points:
        return None
    last = measurements.points[-1]
    return {
        "points": measurements.points,
        "words": question.point(last),
        "tokens": last * question.tokens_per_step if question.tokens_per_step else None,
    }


def _gap(measurements: MeasuredEvaluations, question: EvaluationQuestion) -> dict[str, object]:
    over = measurements.over_clusters
    clusters = None
    if over is not None and question.cluster:
        counted = {
            "key": question.cluster,
            "baseline": over.clusters[0],
            "candidate": over.clusters[1],
            "crossed": over.crossed,
        }
        clusters = {**_interval(clustered(measurements, over), measurements, question), **counted}
    return {
        "confidence": question.confidence,
        "over_runs": _interval(measurements.over_runs, measurements, question)
        if measurements.over_runs
        else None,
        "over_clusters": clusters,
        "judged": _interval(gap, measurements, question)
        if (gap := judged(measurements, question))
        else None,
        "pairs": measurements.pairs,
    }


def _chance(
    measurements: MeasuredEvaluations, question: EvaluationQuestion, decision: Decision
) -> dict[str, float]:
    gap, margin = judged(measurements, question), question.margin
    if gap and margin and BY_CODE[decision.deciding.code].shows_chance:
        return {"chance_of_parity": gap.chance_below(margin.nats)}
    return {}


def _interval(
    gap: Interval, measurements: MeasuredEvaluations, question: EvaluationQuestion
) -> dict[str, object]:
    lo, hi = gap.bounds(question.confidence)
    code = side(gap, question.margin.nats, question).code if question.margin else None
    level = float(measurements.baseline.mean())
    share = gap.mean / level if level else None
    return {
        "mean": gap.mean,
        "se": gap.se,
        "df": gap.df,
        "rel": share,
        "lo": lo,
        "hi": hi,
        "against_margin": code,
    }


def _target(
    reached: Sequence[Sequence[Reached]] | None, target: float | None, question: EvaluationQuestion
) -> dict[str, object] | None:
    if reached is None:
        return None
    times = [arm_time(arm) for arm in reached]
    tax = (
        token_tax(times[0], times[1], question.policy.confidence) if times[0] and times[1] else None
    )
    return {
        "nats": target,
        "baseline_samples": tax.geometric[0] if tax else None,
        "candidate_samples": tax.geometric[1] if tax else None,
        "reached": [sum(run.beyond is None for run in arm) for arm in reached],
        "tax": {"estimate": tax.estimate, "lo": tax.lo, "hi": tax.hi} if tax else None,
    }
