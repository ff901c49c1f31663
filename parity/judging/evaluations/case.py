"""Everything that a comparison of evaluations was given: the held-out losses of one run an arm or
more, and what is asked of them.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.context import HOST, values_of
from parity.judging.curves.curve import Curve
from parity.judging.decision import INCONCLUSIVE, Decision
from parity.judging.evaluations.advice import advise
from parity.judging.evaluations.decide import decide
from parity.judging.evaluations.document import evaluation_document
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.measured import MeasuredEvaluations, measure
from parity.judging.evaluations.question import EvaluationQuestion, Ground
from parity.judging.evaluations.rules import EvaluationEvidence
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.evaluations.side import judged
from parity.judging.gap.margin import determine_margin
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import arm_noise
from parity.judging.policy import LOSS, NOISE_FLOOR, Policy
from parity.judging.statements.end_of_training import end_of_training
from parity.judging.statements.offer import Offer, is_narrower
from parity.recipes import check_recipe

# of the loss, as the default margin: a baseline that diverges now and then is no yardstick
WIDEST_NOISE_FLOOR = 0.01
MAX_TOKENS_PER_STEP = 1e12  # more than any batch has; the tokens of a step stay finite


@frozen(eq=False)
class EvaluationCase:
    """Everything that a comparison of evaluations was given.

    `baseline` and `candidates` hold each run's evaluations, steps in any unit that all share,
    losses in nats. `paired`: runs of one seed share data and initialization. `cluster` is a key of
    the runs' context whose values are no independent evidence within themselves. `at` declares the
    points to compare (default: those in the last 20 % of the steps that all runs reached), `target`
    a loss in nats whose cost in samples is compared, `tokens_per_step` names points in tokens,
    `times` holds each run's times, `multiplicity` says which look this is (by default the first).

    Raises ValueError for a check other than the loss, an arm without a run, an unknown recipe, a
    cluster that a run lacks, a point that not every run has, and a target, a plan or a number of
    tokens that is not positive, or above 1e12 tokens a step.
    """

    baseline: Sequence[Curve]
    candidates: Mapping[str, Sequence[Curve]]
    policy: Policy
    baseline_name: str
    paired: bool = False
    cluster: str | None = None
    at: tuple[int, ...] = ()
    target: float | None = None
    tokens_per_step: float | None = None
    planned_steps: int | None = None
    times: Sequence[RunTimes] = ()
    multiplicity: Multiplicity | None = None

    def __post_init__(self) -> None:
        if others := [check for check in self.policy.checks if check != LOSS]:
            raise ValueError(
                f"the policy's checks are {', '.join(others)} in addition to the loss; a "
                "comparison of evaluations judges the loss alone"
            )
        for name, runs in {self.baseline_name: self.baseline, **self.candidates}.items():
            if not runs:
                raise ValueError(f"{name} has no run; expected at least one")
            for run in runs:
                check_recipe(run.recipe, f"recipe of {name}")
                if self.cluster and not run.context.get(self.cluster):
                    raise ValueError(
                        f"{run.label or 'a run'} of {name} has no {self.cluster} on record; "
                        "expected one for every run"
                    )
        for name, value in (
            ("target", self.target),
            ("tokens_per_step", self.tokens_per_step),
            ("planned_steps", self.planned_steps),
        ):
            if value is not None and not 0.0 < value < float("inf"):
                raise ValueError(f"{name} is {value}; expected a positive number")
        if self.tokens_per_step is not None and self.tokens_per_step > MAX_TOKENS_PER_STEP:
            raise ValueError(
                f"tokens_per_step is {self.tokens_per_step:g}; expected at most "
                f"{MAX_TOKENS_PER_STEP:g}"
            )

    def arms(self) -> Iterator[tuple[str, str, Sequence[Curve]]]:
        """Role, name and runs of each arm."""
        yield "baseline", self.baseline_name, self.baseline
        for name, runs in self.candidates.items():
            yield "candidate", name, runs

    def documents(self) -> list[EvaluationDocument]:
        """Judge the case: one document a candidate. Raises ValueError where a declared point has no
        evaluation of every run.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return [self._document(name) for name in self.candidates]

    def measured(self, candidate: str) -> tuple[MeasuredEvaluations, EvaluationQuestion]:
        """What is measured on one candidate, and what is asked. Raises ValueError as
        `documents`.
        """
        arms = self.baseline, self.candidates[candidate]
        shared = self.multiplicity or Multiplicity(
            looks=self.policy.looks, candidates=len(self.candidates)
        )
        confidence = shared.confidence(self.policy.confidence)
        measured = measure(
            *arms,
            self.policy,
            confidence=confidence,
            planned_steps=self.planned_steps,
            paired=self.paired,
            cluster=self.cluster,
            at=self.at,
        )
        first = self.baseline[0]
        level = float(measured.baseline.mean()) if measured.points else 0.0
        margin = determine_margin(
            self.policy,
            level,
            arm_noise(measured.priors[0], measured.baseline, [0] * len(measured.baseline)),
        )
        if margin and self.policy.profile == NOISE_FLOOR and margin.rel > WIDEST_NOISE_FLOOR:
            margin = None
        question = EvaluationQuestion(
            arms=(self.baseline_name, candidate),
            names=_names((self.baseline_name, first.recipe), (candidate, arms[1][0].recipe)),
            policy=self.policy,
            planned_steps=self.planned_steps,
            cluster=self.cluster,
            tokens_per_step=self.tokens_per_step,
            confidence=confidence,
            margin=margin,
            typed=measured.typed,
        )
        return measured, question

    def evidence(self, candidate: str) -> EvaluationEvidence:
        """What the rules look at. Raises ValueError as `documents`."""
        measured, question = self.measured(candidate)
        arms = self.baseline, self.candidates[candidate]
        grounds = _grounds(arms, self.policy.may_differ)
        return EvaluationEvidence(measured=measured, question=question, grounds=grounds)

    def _document(self, candidate: str) -> EvaluationDocument:
        evidence = self.evidence(candidate)
        base_times, cand_times = (
            [run for run in self.times if run.arm == name]
            for name in (self.baseline_name, candidate)
        )
        decision = decide(evidence)
        return evaluation_document(
            evidence.measured,
            evidence.question,
            decision,
            advise(evidence, decision, self._offer(candidate, evidence, decision)),
            grounds=evidence.grounds,
            target=self.target,
            times=(base_times, cand_times),
        )

    def _offer(
        self, candidate: str, evidence: EvaluationEvidence, decision: Decision
    ) -> Offer | None:
        """The statement that a training came to its end, where it would decide an open comparison,
        or make its interval narrower.
        """
        measurements = evidence.measured
        runs = [run for arm in measurements.runs for run in arm]
        asked = end_of_training(
            runs, measurements.window, self.policy, finished=measurements.schedule.finished
        )
        if asked is None or measurements.typed or decision.state != INCONCLUSIVE:
            return None
        if asked.statement.key == "planned_steps":
            stated = dataclasses.replace(self, planned_steps=int(asked.statement.value))
        else:
            policy = dataclasses.replace(self.policy, schedule="decayed")
            stated = dataclasses.replace(self, policy=policy)
        tried = stated.evidence(candidate)
        then = decide(tried)
        before, after = (
            gap.bounds(one.question.confidence)
            if (gap := judged(one.measured, one.question))
            else None
            for one in (evidence, tried)
        )
        if then.state == INCONCLUSIVE and not is_narrower(after, before):
            return None
        lo, hi = after or (None, None)
        return Offer(
            question=asked.question,
            statements=(asked.statement,),
            verdict=then.state,
            code=then.deciding.code,
            lo=lo,
            hi=hi,
        )


def _names(*arms: tuple[str, str | None]) -> tuple[str, str]:
    """What reports call the two arms: their recipes where both state one and these differ, else
    their names.
    """
    (base, base_recipe), (cand, cand_recipe) = arms
    if base_recipe and cand_recipe and base_recipe != cand_recipe:
        return base_recipe, cand_recipe
    return base, cand


def _grounds(
    arms: tuple[Sequence[Curve], Sequence[Curve]], may_differ: Sequence[str]
) -> tuple[Ground, ...]:
    """What is on record of both arms and may explain a gap: every key on which not all runs agree,
    but for those that may differ.
    """
    contexts = [[run.context for run in arm] for arm in arms]
    keys = sorted(
        {key for arm in contexts for context in arm for key in context} - {HOST, *may_differ}
    )
    grounds = []
    for key in keys:
        values = [tuple(sorted(values_of(arm, key))) for arm in contexts]
        if all(values) and len(values_of([*contexts[0], *contexts[1]], key)) > 1:
            grounds.append(Ground(key=key, baseline=values[0], candidate=values[1]))
    return tuple(grounds)
