"""The JSON form of a comparison of evaluations, field by field."""

from typing import Any, NotRequired, TypedDict

from parity.judging.decision import State
from parity.judging.document_types import (
    EvaluationPathDocument,
    MarginDocument,
    OfferDocument,
    ReasonDocument,
    ScheduleDocument,
    WordsDocument,
)


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


class ReaderNoteDocument(TypedDict):
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


class EvaluationAdviceDocument(TypedDict):
    """What to do next; judges before 0.8.0 offered nothing."""

    sentences: list[str]
    offers: NotRequired[list[OfferDocument]]


class EvaluationDocument(TypedDict):
    """One comparison of evaluations; `chance_of_parity` is there where only the evidence is missing
    for a pass or a fail, `path` and `words` where they are shown.
    """

    schema: str
    engine_version: str
    verdict: State
    codes: list[str]
    reasons: list[ReasonDocument]
    advice: EvaluationAdviceDocument
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
    notes: list[ReaderNoteDocument]
    path: NotRequired[EvaluationPathDocument]
    words: NotRequired[WordsDocument]
