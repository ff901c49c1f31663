"""What to do next about held-out losses, each step with options that their comparison takes.

A code's own next step is about training curves. Where that is another one for held-out losses, or
where the record says more, it is written here.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from parity.frozen import frozen
from parity.judging.codes import (
    AS_OF,
    BY_CODE,
    CI_STRADDLES_MARGIN,
    CONFOUNDED,
    DOWNSAMPLED,
    MARGIN_UNDETERMINED,
    NONFINITE_CAND,
    NUMBERS_ALONE,
    ROUNDED,
    RUN_NOISE_ASSUMED,
    RUN_NOISE_UNKNOWN,
    RUNS_UNPAIRED,
)
from parity.judging.decision import FAIL, Decision
from parity.judging.evaluations.rules import EvaluationEvidence, points_are_last
from parity.judging.evaluations.side import judged
from parity.judging.gap.interval import Interval, t_quantile
from parity.judging.gap.window_statistics import MIN_MEASURED_DF
from parity.judging.noise.arm_noise import RunTerm, arm_noise, run_term
from parity.judging.policy import NOISE_FLOOR_DF
from parity.judging.recipe_changes import is_in_bf16, words_after_fail
from parity.judging.statements.offer import Offer, offer_words
from parity.wording import count

MAX_ADDED_RUNS = 16  # of each arm
_BEFORE_NAN = (
    "Look at the training before the first evaluation that is not finite: loss, gradient norm and "
    "learning rate."
)


@frozen
class EvaluationAdvice:
    """Sentences; the first are those of `offers`."""

    sentences: tuple[str, ...]
    offers: tuple[Offer, ...] = ()


def advise(
    evidence: EvaluationEvidence, decision: Decision, offer: Offer | None
) -> EvaluationAdvice:
    """What to do about one decided comparison; what can be stated for nothing comes first."""
    if decision.state == FAIL:
        return EvaluationAdvice(sentences=_after_fail(evidence, decision))
    steps = [_step(code, evidence, decision, offer) for code in decision.codes]
    offers = (offer,) if offer else ()
    first = [offer_words(one, job=False) for one in offers]
    listed = [step for step in steps if step]
    return EvaluationAdvice(sentences=tuple(dict.fromkeys([*first, *listed])), offers=offers)


def _step(
    code: str, evidence: EvaluationEvidence, decision: Decision, offer: Offer | None
) -> str | None:
    is_deciding = code == decision.deciding.code
    if code == AS_OF.code:
        # numbers have no plan to state
        return None if NUMBERS_ALONE.code in decision.codes else _finish(evidence, offer)
    if code in _ONLY_DECIDING and not is_deciding:
        return None
    if code == MARGIN_UNDETERMINED.code and not evidence.measured.points:
        return None  # it follows from there being no point to compare
    if code == CI_STRADDLES_MARGIN.code and _only_the_end_decides(evidence, decision):
        return None
    words = _STEPS.get(code)
    return BY_CODE[code].next_step if words is None else words(evidence)


def _only_the_end_decides(evidence: EvaluationEvidence, decision: Decision) -> bool:
    """Whether more runs would leave a gap that is below the margin open, because it is as of a
    point, or that of numbers alone.
    """
    if evidence.measured.typed:
        return True
    gap = judged(evidence.measured, evidence.question)
    is_below = gap is not None and gap.mean < evidence.margin_nats
    return AS_OF.code in decision.codes and evidence.question.policy.as_of != "accept" and is_below


def _after_fail(evidence: EvaluationEvidence, decision: Decision) -> tuple[str, ...]:
    if CONFOUNDED.code in decision.codes:  # no layer is blamed while another cause is on record
        return (_confounds(evidence),)
    if decision.deciding.code == NONFINITE_CAND.code:
        return (_BEFORE_NAN,)
    base, cand = (runs[0].recipe for runs in evidence.measured.runs)
    recipe = (cand or "").lower()
    of_recipe = recipe and cand != base and not is_in_bf16(recipe)
    return (
        _first_above(evidence),
        *((words_after_fail(recipe, None),) if of_recipe else ()),
    )


def _first_above(evidence: EvaluationEvidence) -> str:
    """From which evaluation on the gap stays above the margin."""
    bands = evidence.measured.bands
    if bands is None or len(bands.gap) < 2:
        return "Compare the training losses of both arms: they show from which step on they part."
    above = bands.gap > evidence.margin_nats
    first = next((place for place in range(len(above)) if above[place:].all()), len(above) - 1)
    point = evidence.question.point(int(evidence.measured.steps[first]))
    if first == 0:
        return (
            f"The gap is above the margin from the first evaluation on, {point}: compare data, "
            "start and loss of the arms before the recipe."
        )
    return f"Look at the training before {point}: from there on the gap is above the margin."


def _confounds(evidence: EvaluationEvidence) -> str:
    cluster = evidence.question.cluster
    keys = [
        ground.key for ground in evidence.grounds if ground.confounded and ground.key != cluster
    ]
    return f"Train both arms with the same {' and '.join(keys)}, so that only the recipe differs."


def _unpaired(_evidence: EvaluationEvidence) -> str:
    return (
        "Train the missing runs, so that every seed is in both arms, or compare unpaired arms "
        "(without --seeds and --pair-by)."
    )


def _noise_unknown(evidence: EvaluationEvidence) -> str:
    runs = evidence.measured.runs
    missing = MIN_MEASURED_DF - sum(len(arm) - 1 for arm in runs)
    added = max(math.ceil(missing), sum(len(arm) == 1 for arm in runs))
    return (
        f"Add {count(added, 'run')} in all, so that each arm has at least two, or "
        "state baseline_run_noise and candidate_run_noise in the policy."
    )


def _noise_assumed(evidence: EvaluationEvidence) -> str:
    bare = [
        name
        for name, arm in zip(evidence.question.arms, evidence.measured.runs, strict=True)
        if len(arm) == 1
    ]
    return f"Add a run of {' and one of '.join(bare)}, so that the run-to-run noise is measured."


def _margin_undetermined(evidence: EvaluationEvidence) -> str:
    missing = NOISE_FLOOR_DF + 1 - len(evidence.measured.runs[0])
    if missing > 0:
        return f"Add {count(missing, 'run')} of the baseline, or state a margin (--margin 1%)."
    return "State a margin (--margin 1%)."


def _more_digits(_evidence: EvaluationEvidence) -> str:
    return "Log the loss with more digits."


def _every_evaluation(_evidence: EvaluationEvidence) -> str:
    return "Give every evaluation of each run: where one is missing, a worse loss may be left out."


def _finish(evidence: EvaluationEvidence, offer: Offer | None) -> str:
    """How evaluations of a training that is not finished get a verdict at its end."""
    measurements, question = evidence.measured, evidence.question
    last = question.point(int(measurements.steps[-1])) if len(measurements.steps) else "its end"
    if not points_are_last(measurements):
        return f"Compare the last points that all runs have, which end at {last}: leave out --at."
    until = f"Until then read the gap as of {last}."
    if measurements.window.unreached:
        end = question.point(measurements.window.at_plan.last)
        return f"Train every run to its planned last step, {end}, and evaluate it there. {until}"
    if measurements.schedule.finished:
        return f"Give the later evaluations of the runs that end at {last}. {until}"
    return (
        f"{'Else train' if offer else 'Train'} every run to the end of its schedule, and evaluate "
        f"it there. {until}"
    )


def _more_runs(evidence: EvaluationEvidence) -> str:
    cluster, gap = evidence.question.cluster, judged(evidence.measured, evidence.question)
    if cluster:
        return f"Add runs on further {cluster}s, in both arms."
    added = runs_that_decide(evidence, gap) if gap else None
    if added is None:
        return (
            f"The gap is so near the margin that {MAX_ADDED_RUNS} more runs of each arm would not "
            "decide it: treat the recipes as at the margin. A margin that is chosen now decides "
            "nothing."
        )
    what = "seed in both arms" if evidence.measured.pairs is not None else "run of each arm"
    number = f"{added:,} more {what.replace(' ', 's ', 1)}" if added > 1 else f"one more {what}"
    return f"Add {number} to decide."


def runs_that_decide(evidence: EvaluationEvidence, gap: Interval) -> int | None:
    """The fewest runs to add to each arm (seeds to both) so that the interval would leave the
    margin, with run-to-run noise as it is; None up to 16.
    """
    measurements, question = evidence.measured, evidence.question
    distance = abs(evidence.margin_nats - gap.mean)
    noises = [
        arm_noise(prior, means, [0] * len(means))
        for prior, means in zip(
            measurements.priors, (measurements.baseline, measurements.candidate), strict=True
        )
    ]
    for added in range(1, MAX_ADDED_RUNS + 1):
        if gap.run.seeds > 1:
            seeds = gap.run.seeds + added
            term = RunTerm(
                variance=gap.run.variance * gap.run.seeds / seeds,
                df=gap.run.df + added,
                seeds=seeds,
            )
        else:
            more = [
                dataclasses.replace(
                    noise,
                    runs=noise.runs + added,
                    df=noise.df + added,
                    measured_df=noise.measured_df + added,
                )
                for noise in noises
            ]
            term = run_term(more[0], more[1])
        half = (
            t_quantile(question.confidence, term.df) * math.sqrt(term.variance)
            + measurements.rounding
        )
        if half < distance:
            return added
    return None


_ONLY_DECIDING = (RUN_NOISE_ASSUMED.code, RUNS_UNPAIRED.code, ROUNDED.code)
_STEPS: Mapping[str, Callable[[EvaluationEvidence], str | None]] = {
    CONFOUNDED.code: _confounds,
    RUNS_UNPAIRED.code: _unpaired,
    RUN_NOISE_UNKNOWN.code: _noise_unknown,
    RUN_NOISE_ASSUMED.code: _noise_assumed,
    MARGIN_UNDETERMINED.code: _margin_undetermined,
    ROUNDED.code: _more_digits,
    DOWNSAMPLED.code: _every_evaluation,
    CI_STRADDLES_MARGIN.code: _more_runs,
}
