"""What could be stated for nothing, and what it would make of an open verdict.

Each statement that the record allows is tried: the pair is judged again as if it had been stated.
It is offered as a question, with the verdict that a yes gives. What the record contradicts is never
offered, and a fail is never argued with.

contradicted  planned length   a source states another one, or a learning rate moves at the end
              decayed rate     that, a last rate above 20 % of the peak, or a loss that still falls
                               as at a constant rate (`decline.shows_no_decay`)
              recipe           a run has one on record; only a name that is a recipe is asked about
              nearest rounding another one is on record, or the arm's name is of four bits
              same order       some part of the runs shows it, and another one does not
              one quantity     the first losses are 4 standard deviations of a step's gap apart
              loaded weights   a start is on record, or the first loss is that of an untrained model

Can fail: nothing in a short log without rates shows that it was cut. Therefore it is a question.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from parity.effective_recipe import base_of, is_written
from parity.frozen import frozen
from parity.judging.codes import (
    DATA_ORDER_MISMATCH,
    LOSS_NOT_NATS,
    LOSSES_DIFFER,
    ORDER_UNSHOWN,
    SEEDS_UNSTATED,
    START_DIFFERS,
    TREATMENT_UNSHOWN,
)
from parity.judging.curves.arms import Arm
from parity.judging.curves.context import RECIPE
from parity.judging.curves.curve import (
    LOADED,
    LOSS_MEANING,
    RECORDED_RECIPE,
    START,
    START_PRECISION,
    Curve,
)
from parity.judging.curves.reading import TRAINING_LOSS, in_bits, second_loss
from parity.judging.curves.schedule import FROM_SCRATCH
from parity.judging.decision import INCONCLUSIVE
from parity.judging.measurements import Measurements
from parity.judging.statements.end_of_training import end_of_training
from parity.judging.statements.offer import Offer, is_narrower
from parity.judging.statements.statement_words import PossibleStatement
from parity.judging.verdict.pair import JudgedPair, PairQuestion, judge_pair
from parity.recipes import RECIPES, UNSTATED, width_of

FIRST_SDS = 4.0  # standard deviations of the steps' gap
# what rounds stochastically unless it says so
_FOUR_BITS = re.compile(r"(?i)fp4(?!_no_sr)|4.?bit")
_LEFT_OPEN = (None, UNSTATED)


@frozen(eq=False)
class _Free:
    """One thing to ask, the statements of a yes, and the pair with them."""

    question: str
    statements: tuple[PossibleStatement, ...]
    apply: Callable[[PairQuestion], PairQuestion]


def free_offers(question: PairQuestion, judged: JudgedPair) -> tuple[Offer, ...]:
    """What could be stated of an inconclusive pair so that it is decided, the shortest statements
    first; else what makes its interval narrower. Nothing where the record allows no statement.
    """
    if judged.decision.state != INCONCLUSIVE:
        return ()
    free = _allowed(question, judged)
    if not free:
        return ()
    together = _judged_with(question, free)
    if together.decision.state == INCONCLUSIVE:
        ends = together.measurements.bounds, judged.measurements.bounds
        return (_offer(free, together),) if is_narrower(*ends) else ()
    alone = [
        _offer([one], tried)
        for one in free
        if (tried := _judged_with(question, [one])).decision.state != INCONCLUSIVE
    ]
    if alone or len(free) == 1:
        return tuple(alone)
    needed = list(free)
    for one in reversed(free):
        fewer = [other for other in needed if other is not one]
        if fewer and _judged_with(question, fewer).decision.state != INCONCLUSIVE:
            needed = fewer
    return (_offer(needed, _judged_with(question, needed)),)


def _judged_with(question: PairQuestion, free: Sequence[_Free]) -> JudgedPair:
    for one in free:
        question = one.apply(question)
    return judge_pair(question)


def _offer(free: Sequence[_Free], judged: JudgedPair) -> Offer:
    lo, hi = judged.measurements.bounds or (None, None)
    return Offer(
        question=" ".join(one.question for one in free),
        statements=tuple(statement for one in free for statement in one.statements),
        verdict=judged.decision.state,
        code=judged.decision.deciding.code,
        lo=lo,
        hi=hi,
    )


def _allowed(question: PairQuestion, judged: JudgedPair) -> list[_Free]:
    """Every statement that would change something and that nothing on record contradicts."""
    measurements, codes = judged.measurements, judged.decision.codes
    found = [
        _decided_end(question, measurements),
        _recipes(measurements),
        _rounding(measurements),
        _loaded(measurements)
        if START_DIFFERS.code in codes or not measurements.schedule.finished
        else None,
        _seeds(question) if SEEDS_UNSTATED.code in codes else None,
        _same_order() if ORDER_UNSHOWN.code in codes and not measurements.batches_proven else None,
        _other_order() if DATA_ORDER_MISMATCH.code == codes[0] else None,
        _one_quantity(measurements) if LOSSES_DIFFER.code in codes else None,
        _other_loss(measurements) if LOSS_NOT_NATS.code in codes else None,
        _first_steps(measurements) if TREATMENT_UNSHOWN.code in codes else None,
    ]
    return [one for one in found if one is not None]


def _decided_end(question: PairQuestion, measurements: Measurements) -> _Free | None:
    asked = end_of_training(
        measurements.arms.runs,
        measurements.window,
        question.policy,
        finished=measurements.schedule.finished,
    )
    if asked is None:
        return None
    if asked.statement.key == "planned_steps":
        length = int(asked.statement.value)

        def state(pair: PairQuestion) -> PairQuestion:
            return dataclasses.replace(pair, planned_steps=length)

    else:
        state = partial(_with_policy, schedule="decayed")
    return _Free(question=asked.question, statements=(asked.statement,), apply=state)


def _recipes(measurements: Measurements) -> _Free | None:
    """The recipes of arms that are called by one, and have none on record."""
    named = (
        [arm.name for arm in _unstated(measurements) if _may_be(arm)]
        if measurements.compares == RECIPE
        else []
    )
    if not named:
        return None
    first, *others = named
    also = "".join(f", and {name} with {name}" for name in others)

    def state(run: Curve, arm: str) -> Curve:
        return dataclasses.replace(run, recipe=arm) if arm in named else run

    return _Free(
        question=f"Did {first} train with the recipe {first}{also}?",
        statements=tuple(PossibleStatement(key="recipe", value=name, arm=name) for name in named),
        apply=partial(_with_runs, state),
    )


def _rounding(measurements: Measurements) -> _Free | None:
    """Rounding to nearest of arms whose name says nothing of it."""
    named = [
        arm.name
        for arm in _unstated(measurements)
        if not _may_be(arm) and not _FOUR_BITS.search(f"{arm.name} {arm.recipe or ''}")
    ]
    if not named:
        return None

    def state(run: Curve, arm: str) -> Curve:
        return dataclasses.replace(run, rounding="nearest") if arm in named else run

    return _Free(
        question=f"Were the gradients of {' and '.join(named)} rounded to nearest?",
        statements=tuple(
            PossibleStatement(key="rounding", value="nearest", arm=name) for name in named
        ),
        apply=partial(_with_runs, state),
    )


def _unstated(measurements: Measurements) -> list[Arm]:
    """Arms whose rounding is assumed, because neither the record nor the policy says it."""
    arms = zip(measurements.arms.both, measurements.policy.declared_noise, strict=True)
    return [arm for arm, declared in arms if arm.rounding_unstated and declared is None]


def _may_be(arm: Arm) -> bool:
    """Whether an arm without a recipe is called by one, and no run recorded another precision."""
    if arm.recipe not in _LEFT_OPEN or base_of(arm.name) not in RECIPES or not is_written(arm.name):
        return False
    recorded = {width_of(run.context.get(RECORDED_RECIPE, arm.name)) for run in arm.runs}
    return recorded == {width_of(arm.name)}


def _loaded(measurements: Measurements) -> _Free | None:
    """Trained weights at the start of both arms, where their first losses are below those of
    untrained ones.
    """
    level = measurements.statistics.baseline.level if measurements.statistics else None
    if (
        measurements.policy.start == LOADED
        or level is None
        or any(START in run.context for run in measurements.arms.runs)
    ):
        return None
    if any(
        not len(run.loss) or run.loss[0] >= FROM_SCRATCH * level for run in measurements.arms.runs
    ):
        return None
    return _Free(
        question="Did both arms begin with trained weights?",
        statements=(PossibleStatement(key="start", value=LOADED),),
        apply=partial(_with_policy, start=LOADED),
    )


def _seeds(question: PairQuestion) -> _Free | None:
    """The order of the runs as the order of their seeds, where both arms have as many."""
    number = len(question.baseline)
    if number != len(question.candidate):
        return None
    seeds = range(number)

    def state(arm: Sequence[Curve]) -> tuple[Curve, ...]:
        return tuple(
            dataclasses.replace(run, seed=seed, replicate=0, seed_stated=True)
            for run, seed in zip(arm, seeds, strict=True)
        )

    return _Free(
        question="Were the runs of both arms given in one order of their seeds?",
        statements=(PossibleStatement(key="seeds", value=",".join(map(str, seeds))),),
        apply=lambda pair: dataclasses.replace(
            pair, baseline=state(pair.baseline), candidate=state(pair.candidate)
        ),
    )


def _same_order() -> _Free:
    return _Free(
        question="Did both arms read the same data in the same order?",
        statements=(PossibleStatement(key="pairing", value="stated"),),
        apply=partial(_with_policy, pairing="stated"),
    )


def _other_order() -> _Free:
    return _Free(
        question="Were the arms meant to read their data in other orders?",
        statements=(PossibleStatement(key="pairing", value="unpaired"),),
        apply=partial(_with_policy, pairing="unpaired"),
    )


def _one_quantity(measurements: Measurements) -> _Free | None:
    """One quantity under two names, unless the first losses are further apart than steps are; it
    does not say which of two losses in one file is the training loss.
    """
    arms = [(arm.name, arm.runs) for arm in measurements.arms.both]
    if measurements.statistics is None or second_loss(arms) is not None:
        return None
    baseline, candidate = measurements.aligned.arm_means()
    if abs(float(candidate[0] - baseline[0])) > FIRST_SDS * measurements.statistics.sd_paired:
        return None

    def state(run: Curve, _arm: str) -> Curve:
        if LOSS_MEANING not in run.context:
            return run
        context = {**run.context, LOSS_MEANING: TRAINING_LOSS}
        return dataclasses.replace(run, context=context)

    return _Free(
        question="Are both columns one quantity, the training loss with the same terms?",
        statements=(PossibleStatement(key="loss_is", value="training"),),
        apply=partial(_with_runs, state),
    )


def _other_loss(measurements: Measurements) -> _Free | None:
    """A loss that is no cross-entropy, unless its source shows that it is one, in bits."""
    if in_bits(measurements.arms.runs) is not None:
        return None
    return _Free(
        question="Is the loss no cross-entropy, but such as a mean squared error?",
        statements=(PossibleStatement(key="loss_unit", value="other"),),
        apply=partial(_with_policy, loss_unit="other"),
    )


def _first_steps(measurements: Measurements) -> _Free | None:
    """First steps of the candidate in bf16, unless their precision is on record."""
    name, runs = measurements.arms.candidate.name, measurements.arms.candidate.runs
    if any(START_PRECISION in run.context for run in runs):
        return None

    def state(run: Curve, arm: str) -> Curve:
        if arm != name:
            return run
        return dataclasses.replace(run, context={**run.context, START_PRECISION: "bf16"})

    return _Free(
        question=f"Were the first steps of {name} meant to run in bf16?",
        statements=(PossibleStatement(key="start_precision", value="bf16", arm=name),),
        apply=partial(_with_runs, state),
    )


def _with_policy(pair: PairQuestion, **stated: Any) -> PairQuestion:
    return dataclasses.replace(pair, policy=dataclasses.replace(pair.policy, **stated))


def _with_runs(state: Callable[[Curve, str], Curve], pair: PairQuestion) -> PairQuestion:
    """The pair with what is stated of the runs of each arm, its short reruns included."""
    base, cand = pair.compared.baseline, pair.compared.candidate
    short_base, short_cand = pair.further.short_reruns
    return dataclasses.replace(
        pair,
        baseline=tuple(state(run, base) for run in pair.baseline),
        candidate=tuple(state(run, cand) for run in pair.candidate),
        further=pair.further._replace(
            short_reruns=(
                tuple(state(run, base) for run in short_base),
                tuple(state(run, cand) for run in short_cand),
            )
        ),
    )
