"""A comparison of evaluations: the held-out losses of one run an arm or more, as they were given,
and the document with every figure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from parity.judging.agreement import HOST, values_of
from parity.judging.bundle import Arms, multiplicity_of, policy_of
from parity.judging.codes import AS_OF, BY_CODE, NUMBERS_ALONE
from parity.judging.curve import Curve
from parity.judging.decision import Decision, State
from parity.judging.document_types import (
    EvaluationPathDocument,
    MarginDocument,
    ReasonDocument,
    ScheduleDocument,
)
from parity.judging.evaluations.decide import decide
from parity.judging.evaluations.gap import (
    Reached,
    RunTimes,
    arm_time,
    samples_to,
    speeds,
    spread,
    token_tax,
)
from parity.judging.evaluations.measured import MIN_RUNS, Measured, measure
from parity.judging.evaluations.question import Ground, Question
from parity.judging.evaluations.rules import Evidence
from parity.judging.evaluations.side import clustered, judged, side
from parity.judging.interval import Interval, determine_margin
from parity.judging.policy import LOSS, NOISE_FLOOR, Multiplicity, Policy
from parity.judging.run_floor import run_floor
from parity.recipes import check_recipe
from parity.structure import (
    ManifestError,
    fields_of,
    frozen,
    json_value,
    optional,
    picked,
    record,
    typed,
)
from parity.version import JUDGE_VERSION

# The JSON form of a comparison of evaluations.


class SpreadDocument(TypedDict):
    """Standard deviation between an arm's runs at the points compared, nats, its interval, and its
    share of the loss.

    `assumed_rel` is the share that the judge would assume for a single run.
    """

    sd: float
    lo: float
    hi: float
    rel: float
    assumed_rel: float


class RunTimesDocument(TypedDict):
    """One run's times: the hardware, seconds a step and seconds to the target; None where not on
    record.
    """

    hardware: str | None
    step_seconds: float | None
    seconds_to_target: float | None


class EvaluatedRunDocument(TypedDict):
    """One run: its cluster, its last point, its loss at the points compared, its samples to the
    target, and its times if they are known.

    None for a loss without a common point. `beyond` says whether the samples are a bound: the truth
    lies `above` or `below` them. `sha256` is that of the whole series.
    """

    label: str
    cluster: str | None
    last_step: int
    loss: float | None
    samples_to_target: float | None
    beyond: str | None
    times: RunTimesDocument | None
    sha256: str


class EvaluatedArmDocument(TypedDict):
    """An arm: its name, its recipe, its mean loss at the points compared, the spread of two or more
    runs, and the runs that count.
    """

    name: str
    recipe: str | None
    mean: float | None
    spread: SpreadDocument | None
    runs: list[EvaluatedRunDocument]


class IntervalDocument(TypedDict):
    """A gap in nats with its interval, standard error and degrees of freedom; `rel` is its share of
    the baseline's loss, unless that is 0.

    `against_margin` is the reason code of where the interval lies; None without a margin.
    """

    mean: float
    rel: float | None
    lo: float
    hi: float
    se: float
    df: float
    against_margin: str | None


class ClustersDocument(IntervalDocument):
    """The gap over clusters: their key, how many each arm has, and whether each has both arms."""

    key: str
    baseline: int
    candidate: int
    crossed: bool


class EvaluatedGapDocument(TypedDict):
    """The gap over runs and over clusters, and which of them is `judged`.

    `pairs` is the number of pairs of one seed, None where the arms are unpaired.
    """

    confidence: float
    over_runs: IntervalDocument | None
    over_clusters: ClustersDocument | None
    judged: IntervalDocument | None
    pairs: int | None


class CurveDocument(TypedDict):
    """The gap at every common point with limits that hold at all points at once, and the arms' mean
    losses; nats.
    """

    steps: list[int]
    gap: list[float]
    lo: list[float]
    hi: list[float]
    baseline: list[float]
    candidate: list[float]


class TargetDocument(TypedDict):
    """Samples to the target loss: geometric means of both arms, runs that reached it, and the token
    tax (0.09 = 9 % more).
    """

    nats: float
    baseline_samples: float | None
    candidate_samples: float | None
    reached: list[int]
    tax: dict[str, float] | None


class NoteDocument(TypedDict):
    """What a reader noted, such as the columns it took, and of how many runs."""

    note: str
    runs: int


class AsOfDocument(TypedDict):
    """The points compared, in words, and the tokens at the last of them where their number is
    known.
    """

    points: list[int]
    words: str
    tokens: float | None


class EvaluationDocument(TypedDict):
    """One comparison of evaluations; `chance_of_parity` is there where only the evidence is missing
    for a pass or a fail, `path` where it is shown.
    """

    schema: str
    engine_version: str
    verdict: State
    codes: list[str]
    reasons: list[ReasonDocument]
    advice: dict[str, list[str]]
    profile: str
    policy: dict[str, Any]
    margin: MarginDocument | None
    baseline: EvaluatedArmDocument
    candidate: EvaluatedArmDocument
    as_of: AsOfDocument | None
    schedule: ScheduleDocument
    gap: EvaluatedGapDocument
    chance_of_parity: NotRequired[float]
    curve: CurveDocument | None
    grounds: list[dict[str, Any]]
    target: TargetDocument | None
    speed: list[dict[str, Any]]
    planned_steps: int | None
    notes: list[NoteDocument]
    path: NotRequired[EvaluationPathDocument]


# A comparison of evaluations as a JSON-able document: everything that is needed to argue with it
# and to compute it again.

EVALUATION_SCHEMA = "parity.evaluations/1"


def evaluation_document(
    m: Measured,
    question: Question,
    decision: Decision,
    *,
    grounds: Sequence[Ground],
    target: float | None,
    times: tuple[Sequence[RunTimes], Sequence[RunTimes]],
) -> EvaluationDocument:
    """The document of one comparison, keys sorted, safe for JSON."""
    if target is not None and m.points:
        reached = [[samples_to(run, target) for run in arm] for arm in m.runs]
    else:
        reached = None
    arms = [
        _arm(
            question.arms[number],
            m,
            number,
            reached[number] if reached else None,
            times[number],
            question,
        )
        for number in range(len(m.runs))
    ]
    document: EvaluationDocument = json_value(
        {
            "schema": EVALUATION_SCHEMA,
            "engine_version": JUDGE_VERSION,
            "verdict": decision.state,
            "codes": decision.codes,
            "reasons": [decision.deciding, *decision.others],
            "advice": {"sentences": _advice(decision)},
            "profile": question.policy.profile_name,
            "policy": question.policy.document(),
            "margin": question.margin,
            "baseline": arms[0],
            "candidate": arms[1],
            "as_of": _as_of(m, question),
            "schedule": picked(m.schedule, "step", "finished", "stated", "slope"),
            "gap": _gap(m, question),
            **_chance(m, question, decision),
            "curve": {"steps": m.steps, **fields_of(m.bands)} if m.bands else None,
            "grounds": [
                {**fields_of(ground), "confounded": ground.confounded} for ground in grounds
            ],
            "target": _target(reached, target, question),
            "speed": speeds(*times, question.policy.confidence),
            "planned_steps": question.planned_steps,
            "notes": _notes([run for arm in m.runs for run in arm]),
        }
    )
    return document


def _notes(runs: Sequence[Curve]) -> list[dict[str, object]]:
    """What a reader noted of the runs, each note once with the number of its runs."""
    counted = Counter(note for run in runs for note in run.notes)
    return [{"note": note, "runs": number} for note, number in counted.items()]


def _advice(decision: Decision) -> list[str]:
    """What to do about each reason that has a remedy, the deciding one first."""
    alone = NUMBERS_ALONE.code in decision.codes  # numbers have no plan to state
    steps = (
        BY_CODE[code].next_step for code in decision.codes if not (alone and code == AS_OF.code)
    )
    return list(dict.fromkeys(step for step in steps if step))


def _arm(
    name: str,
    m: Measured,
    number: int,
    reached: Sequence[Reached] | None,
    times: Sequence[RunTimes],
    question: Question,
) -> dict[str, object]:
    """The baseline (number 0) or the candidate (1)."""
    runs, values = m.runs[number], (m.baseline, m.candidate)[number]
    mean = float(values.mean()) if len(values) and np.isfinite(values).all() else None
    between = (
        spread(values, question.policy.confidence) if len(values) >= MIN_RUNS and mean else None
    )
    by_label = {own.run: own for own in times}
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
                "times": picked(
                    by_label[run.label], "hardware", "step_seconds", "seconds_to_target"
                )
                if run.label in by_label
                else None,
                "sha256": run.digest(),
            }
        )
    if between and mean:
        share = {
            "rel": between.sd / mean,
            "assumed_rel": m.priors[number].tau / float(m.baseline.mean()),
        }
    else:
        share = {}
    return {
        "name": name,
        "recipe": runs[0].recipe,
        "mean": mean,
        "spread": {**picked(between, "sd", "lo", "hi"), **share} if between else None,
        "runs": described,
    }


def _as_of(m: Measured, question: Question) -> dict[str, object] | None:
    if not m.points:
        return None
    last = m.points[-1]
    return {
        "points": m.points,
        "words": question.point(last),
        "tokens": last * question.tokens_per_step if question.tokens_per_step else None,
    }


def _gap(m: Measured, question: Question) -> dict[str, object]:
    over = m.over_clusters
    clusters = None
    if over is not None and question.cluster:
        counted = {
            "key": question.cluster,
            "baseline": over.clusters[0],
            "candidate": over.clusters[1],
            "crossed": over.crossed,
        }
        clusters = {**_interval(clustered(m, over), m, question), **counted}
    return {
        "confidence": question.confidence,
        "over_runs": _interval(m.over_runs, m, question) if m.over_runs else None,
        "over_clusters": clusters,
        "judged": _interval(gap, m, question) if (gap := judged(m, question)) else None,
        "pairs": m.pairs,
    }


def _chance(m: Measured, question: Question, decision: Decision) -> dict[str, float]:
    gap, margin = judged(m, question), question.margin
    if gap and margin and BY_CODE[decision.deciding.code].shows_chance:
        return {"chance_of_parity": gap.chance_below(margin.nats)}
    return {}


def _interval(gap: Interval, m: Measured, question: Question) -> dict[str, object]:
    lo, hi = gap.bounds(question.confidence)
    code = side(gap, question.margin.nats, question).code if question.margin else None
    level = float(m.baseline.mean())
    share = gap.mean / level if level else None
    return {
        **picked(gap, "mean", "se", "df"),
        "rel": share,
        "lo": lo,
        "hi": hi,
        "against_margin": code,
    }


def _target(
    reached: Sequence[Sequence[Reached]] | None, target: float | None, question: Question
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
        "tax": picked(tax, "estimate", "lo", "hi") if tax else None,
    }


# A comparison of evaluations: the held-out losses of one run an arm or more. What it was given, and
# its documents.

# of the loss, as the default margin: a baseline that diverges now and then is no yardstick
WIDEST_NOISE_FLOOR = 0.01


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
    tokens that is not positive.
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

    def measured(self, candidate: str) -> tuple[Measured, Question]:
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
            **picked(self, "planned_steps", "paired", "cluster", "at"),
        )
        first = self.baseline[0]
        level = float(measured.baseline.mean()) if measured.points else 0.0
        margin = determine_margin(
            self.policy,
            level,
            run_floor(measured.priors[0], measured.baseline, [0] * len(measured.baseline)),
        )
        if margin and self.policy.profile == NOISE_FLOOR and margin.rel > WIDEST_NOISE_FLOOR:
            margin = None
        question = Question(
            arms=(self.baseline_name, candidate),
            names=_names((self.baseline_name, first.recipe), (candidate, arms[1][0].recipe)),
            **picked(self, "policy", "planned_steps", "cluster", "tokens_per_step"),
            confidence=confidence,
            margin=margin,
            typed=measured.typed,
        )
        return measured, question

    def evidence(self, candidate: str) -> Evidence:
        """What the rules look at. Raises ValueError as `documents`."""
        measured, question = self.measured(candidate)
        arms = self.baseline, self.candidates[candidate]
        grounds = _grounds(arms, self.policy.may_differ)
        return Evidence(m=measured, question=question, grounds=grounds)

    def _document(self, candidate: str) -> EvaluationDocument:
        evidence = self.evidence(candidate)
        base_times, cand_times = (
            [run for run in self.times if run.arm == name]
            for name in (self.baseline_name, candidate)
        )
        return evaluation_document(
            evidence.m,
            evidence.question,
            decide(evidence),
            grounds=evidence.grounds,
            target=self.target,
            times=(base_times, cand_times),
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


# A comparison of evaluations in a bundle's manifest: what it asks besides its arms, written and
# read with every value's type checked.

KIND = "evaluations"
MAX_LISTED = 10_000  # points and times: more than any comparison of evaluations has


def manifest_of(case: EvaluationCase) -> dict[str, Any]:
    """The manifest's keys that only a comparison of evaluations has."""
    return {
        "kind": KIND,
        **picked(case, "paired", "cluster", "at", "target", "tokens_per_step", "times"),
        **({"multiplicity": case.multiplicity} if case.multiplicity else {}),
    }


def evaluation_case(manifest: Mapping[str, Any], arms: Arms) -> EvaluationCase:
    """The case that a manifest describes. Raises KeyError, ManifestError and ValueError for one
    that describes none.
    """
    at, times = (_listed(manifest[key], key) for key in ("at", "times"))
    return EvaluationCase(
        baseline=arms.baseline,
        candidates=arms.candidates,
        policy=policy_of(manifest),
        baseline_name=arms.baseline_name or "",
        paired=typed(manifest["paired"], bool, "paired"),
        cluster=optional(manifest["cluster"], str, "cluster"),
        at=tuple(typed(point, int, f"at[{index}]") for index, point in enumerate(at)),
        target=optional(manifest["target"], float, "target"),
        tokens_per_step=optional(manifest["tokens_per_step"], float, "tokens_per_step"),
        planned_steps=optional(manifest["planned_steps"], int, "planned_steps"),
        times=[record(RunTimes, run, f"times[{index}]") for index, run in enumerate(times)],
        multiplicity=multiplicity_of(manifest.get("multiplicity")),
    )


def _listed(value: object, where: str) -> list[Any]:
    items = typed(value, list, where)
    if len(items) > MAX_LISTED:
        raise ManifestError(f"{where} has {len(items):,} entries; expected at most {MAX_LISTED:,}")
    return items
