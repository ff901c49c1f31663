"""The JSON form of a verdict, field by field: what reports, pages, the gate and bundles read."""

from typing import Any, Literal, NotRequired, Required, TypedDict

State = Literal["pass", "fail", "inconclusive"]
GradNormState = Literal["inside", "outside", "open"]

# how a run's note begins where its curve is that of a run that was trained before
REUSED = "reused: "
ADDED = "added: "  # how it begins where the run was added to a job that had been submitted
STOPPED = "stopped: "  # how it begins where the live rules ended the run
STATED_LATER = "stated later: "  # how it begins where the owner of a job stated a fact


class VerdictArmDocument(TypedDict):
    """One side: `level` is its mean loss in the window, nats; `left_out` are runs that depend on
    another, `identical_runs` their number.
    """

    name: str
    recipe: str | None
    runs: int
    identical_runs: int
    left_out: list[dict[str, str]]
    level: float | None


class PairingDocument(TypedDict):
    """How runs without stated seeds were paired; a verdict without this paired them by their seeds.

    By `batches`: each pair with its labels, the seed that stands for it and the correlation `r` of
    its batch noise. `one order`: all runs read the same batches; `unknown`: the batches do not show
    which runs belong together.
    """

    by: str
    pairs: list[dict[str, Any]]


class DecidingIntervalDocument(TypedDict):
    """The interval that decided, its ends in nats. `one_sided` is whether only the end towards the
    margin counted: the lower one of a fail, the upper one otherwise, unless the policy bounds both
    sides.
    """

    level: float
    lo: float
    hi: float
    one_sided: bool


class VerdictGapDocument(TypedDict):
    """The window's mean gap with its interval, nats; `rel` is the mean as a share of the baseline's
    loss, `raw` includes spikes.

    `lo` and `hi` are the ends at the level `confidence`, which looks and candidates share;
    `deciding` is the interval that the verdict rests on, which every surface shows. Verdicts of
    judges before 0.8.0 have none.
    """

    deciding: NotRequired[DecidingIntervalDocument]
    mean: float
    rel: float | None
    raw: float
    masked: float
    lo: float
    hi: float
    confidence: float
    ci95: list[float]
    ci90: list[float]
    se: float
    df: float


class MultiplicityDocument(TypedDict):
    """Which look of how many this is, the share of the error that each look spends (looks,), the
    candidates that share it, the confidence that this leaves to the interval, and whether a ledger
    counted the look. Verdicts of judges before 0.3.0 have none.
    """

    look: int
    looks: int
    weights: list[float]
    candidates: int
    confidence: float
    registered: bool


class MarginDocument(TypedDict):
    """The margin that decides: nats, share of the baseline's loss, what set it, and the tokens it
    is worth where a slope is known.
    """

    nats: float
    rel: float
    source: str
    tokens: NotRequired[float | None]


class TokenSlopeDocument(TypedDict):
    """The nats that finished runs gain per e-fold of their tokens, the error of that, and what it
    was taken from.
    """

    nats: float
    error: float
    basis: str


class BorrowedNoiseDocument(TypedDict):
    """The noise of a family of reruns, as a share of the loss, and how the comparison's own runs
    agree with it.
    """

    family: str
    rel: float
    df: float
    groups: int
    runs: int
    outliers: list[str]
    bit_equal_groups: int
    own_over_family: float | None
    p: float
    weight: float


class EarlyStopsDocument(TypedDict):
    """Reruns of an arm that were stopped early: their spread as a share of the loss, its degrees of
    freedom, the share of the plan at which the first of them stopped, and the first and last step
    of the window in which they were compared with the arm's own runs.
    """

    rel: float
    df: float
    runs: int
    stop: float
    first: int
    last: int


class ArmNoiseDocument(TypedDict):
    """The run-to-run noise of one arm, nats, and what it rests on; `borrowed` only where it is
    from a family, `early_stopped` where reruns were stopped early.
    """

    value: float
    rel: float | None
    source: str
    df: float
    measured: float | None
    measured_df: int
    prior: float
    prior_df: float
    prior_basis: str
    borrowed: NotRequired[BorrowedNoiseDocument]
    early_stopped: NotRequired[EarlyStopsDocument]


class RunNoiseDocument(TypedDict):
    """The run-to-run noise of both arms."""

    baseline: ArmNoiseDocument
    candidate: ArmNoiseDocument
    controls_used: int


class ErrorPartsDocument(TypedDict):
    """The two parts of the gap's standard error, nats, with their degrees of freedom."""

    within: float
    within_df: float
    run: float
    run_df: float
    seeds: int


class NoiseDocument(TypedDict, total=False):
    """The noises, nats; only `r_pair` where nothing could be measured in the window."""

    sigma_step: float
    sd_paired: float
    rho1: float
    n_eff: float
    r_step: float | None
    z_run: float | None
    r_pair: Required[float | None]


class SensitivityDocument(TypedDict):
    """The interval over another last fraction of the plan: `n` points, mean gap and its ends in
    nats.
    """

    fraction: float
    n: int
    mean: float
    lo: float
    hi: float


class ScheduleDocument(TypedDict):
    """The point of training that a verdict speaks of: its last common step, whether the training
    was finished there (`stated`: as somebody says, without recorded rates), and how steeply the
    baseline's loss falls, as a share of it per e-fold of the steps.
    """

    step: int
    finished: bool
    stated: bool
    slope: float


class WindowDocument(TypedDict):
    """The window: first and last step, common points, and the rule that gave it."""

    first: int
    last: int
    n: int
    fraction: float
    rule: str
    sensitivity: list[SensitivityDocument]


class ReasonDocument(TypedDict):
    """A reason code with its sentence."""

    code: str
    sentence: str


StatementKey = Literal[
    "planned_steps",
    "schedule",
    "recipe",
    "rounding",
    "seeds",
    "pairing",
    "loss_is",
    "loss_unit",
    "start",
    "start_precision",
]
"""What can be stated, as `parity.compare` calls it; a fact of the context by its own name."""


class StatementDocument(TypedDict):
    """What could be stated: `key` as `parity.compare` calls it, of an arm or (None) of all."""

    key: StatementKey
    value: str
    arm: str | None


class OfferDocument(TypedDict):
    """Statements with the question whose yes they are, and what they would make of the verdict."""

    question: str
    statements: list[StatementDocument]
    verdict: State
    code: str
    lo: float | None
    hi: float | None


class AdviceDocument(TypedDict):
    """What to do next, and the numbers in it; judges before 0.8.0 offered nothing."""

    sentences: list[str]
    add_baseline_runs: int | None
    add_candidate_runs: int | None
    add_steps: int | None
    margin_to_pass: float | None
    minimum_detectable_gap: float | None
    offers: NotRequired[list[OfferDocument]]


class CheckDocument(TypedDict):
    """A check of something other than the training loss; `role` is decides or advises, `state` None
    where it could not be made.
    """

    name: str
    role: Literal["decides", "advises"]
    state: State | None
    sentence: str


class SpikesDocument(TypedDict):
    """Spikes in the window."""

    baseline: int
    candidate: int
    p_candidate_more: float
    masked_share: float


class RunSpikesDocument(TypedDict):
    """Spikes per arm over the whole run, in `blocks` blocks with a median and a scale of their own;
    one-sided p of the candidate's.

    `steps` are the first so many steps of the spikes, the baseline's and the candidate's, for a
    chart.
    """

    baseline: int
    candidate: int
    p_candidate_more: float
    blocks: int
    steps: list[list[int]]


class EstimateDocument(TypedDict):
    """A speed ratio with its interval; above 1 the candidate is faster."""

    value: float
    lo: float
    hi: float


class TokenTaxDocument(TypedDict):
    """Share of further tokens that the candidate needs for the same loss, with its interval."""

    estimate: float
    lo: float
    hi: float
    caveat: str


class ThroughputDocument(TypedDict):
    """Median step seconds of both arms, their ratio, the hours of training that all runs took; a
    device's medians where recorded.
    """

    baseline_step_seconds: float
    candidate_step_seconds: float
    ratio: EstimateDocument
    run_hours: float
    tokens_per_second: list[float | None]
    tflops: list[float | None]


class GradNormDocument(TypedDict):
    """Ratio of gradient norms (candidate / baseline) with its interval, ratio of the 99th
    percentiles, and what that says.

    `clipped_share` is the share of clipped steps of baseline and candidate, None where a run did
    not record the clipped norm.
    """

    ratio: float
    lo: float
    hi: float
    p99_ratio: float
    n: int
    state: GradNormState
    basis: str
    clipped_share: list[float | None]


class ValidationDocument(TypedDict):
    """The gap of the validation losses in the window, nats; `last_lo` is the lower end at the last
    evaluation alone, `infinite` whether the candidate's is infinite anywhere. Earlier judges gave
    neither.
    """

    mean: float
    lo: float
    hi: float
    n: int
    last_lo: NotRequired[float]
    infinite: NotRequired[bool]


class TaskDocument(TypedDict):
    """One task: accuracies (0 to 1), the candidate's minus the baseline's with its interval and
    margin in percentage points.

    `chance` is the accuracy of guessing (0 to 1), None where it is not known; a task whose baseline
    is `at_chance` is not judged.
    """

    task: str
    baseline: float
    candidate: float
    gap_points: float
    lo_points: float
    hi_points: float
    items: int
    paired: bool
    margin_points: float
    chance: float | None
    at_chance: bool
    state: State
    sentence: str


class PeerDocument(TypedDict):
    """A candidate's gap to another candidate (`name`; nats, + = worse than it) and its speed
    relative to it; None where unmeasurable.
    """

    name: str
    gap: float | None
    lo: float | None
    hi: float | None
    speed: EstimateDocument | None
    sentence: str


class CompletenessDocument(TypedDict):
    """What a run's series covers; `rolled_back` in nats (`curve.Completeness`)."""

    count: int
    first: int
    last: int
    stride: int | None
    duplicates: int
    gaps: int
    rolled_back: float


class VerdictRunDocument(TypedDict):
    """One run as it was given; `rounding` only where it is on record."""

    label: str | None
    seed: int
    replicate: int
    recipe: str | None
    rounding: NotRequired[str]
    context: dict[str, str]
    notes: list[str]
    completeness: CompletenessDocument
    coverage: float


class InputsDocument(TypedDict):
    """The runs of both arms, the controls and short reruns that count (those by side, where there
    are any), and the digest of the series.
    """

    baseline: list[VerdictRunDocument]
    candidate: list[VerdictRunDocument]
    controls: list[VerdictRunDocument]
    short_reruns: NotRequired[dict[str, list[VerdictRunDocument]]]
    common_steps: int
    sha256_aligned: str


class WorthDocument(TypedDict, total=False):
    """What passing is worth over the full run (`parity compare --full-run-hours`)."""

    sentence: Required[str]


class PathPointDocument(TypedDict):
    """The gap as of a step, with its interval, nats (`path`)."""

    step: int
    mean: float
    lo: float
    hi: float


class EvaluationPathDocument(TypedDict):
    """The path of a comparison of evaluations, over runs and over clusters; empty where there is no
    such gap.
    """

    over_runs: list[PathPointDocument]
    over_clusters: list[PathPointDocument]


ChancesDocument = TypedDict(
    "ChancesDocument", {"pass": float, "fail": float, "undecided": float, "pairs": int}
)
"""The chances of what the interval says once so many `pairs` of runs are added: each 0 to 1,
together 1 (`chances`).
"""


class StripDocument(TypedDict):
    """One fact of the strip: what it is about, its value, and a line that says why."""

    name: str
    value: str
    why: str


class WordsDocument(TypedDict):
    """A verdict in words (`parity.report.words`), minus signs as "-"; `why` is why it is undecided,
    "" where the interval says so.
    """

    lead: str
    measure: str
    interval: str
    next: str
    why: str
    strip: list[StripDocument]


SHOWN_ONLY = (
    "path",
    "chances",
    "gemm_time",
    "owner_steps",
    "words",
)  # what follows from a verdict and is shown with it: no part of its digest, nor of a bundle


class VerdictDocument(TypedDict):
    """The JSON form of a verdict, schema parity.verdict/1. Floats that are not finite are the
    strings "nan", "inf", "-inf".

    `engine_version` is the version of the judge. What could not be measured is None.
    `chance_of_parity` is the probability that the gap is within the margin, of an inconclusive
    verdict that lacks only evidence. `compares` and `may_differ`, the context keys that it lets
    differ (`env.*` for all that begin so), are there where the arms differ in revision or
    environment, and not in recipe. `path` and `chances` are added where a verdict is shown; so is
    `gemm_time`, the modelled GEMM time of the candidate as a share of the baseline's. `owner_steps`
    are the sentences of the advice for the owner of a job of external runs.
    """

    schema: str
    engine_version: str
    verdict: State
    codes: list[str]
    reasons: list[ReasonDocument]
    profile: str
    compares: NotRequired[Literal["revision", "environment"]]
    may_differ: NotRequired[list[str]]
    layer_policy: str | None
    multiplicity: NotRequired[MultiplicityDocument]
    baseline: VerdictArmDocument
    candidate: VerdictArmDocument
    window: WindowDocument
    chance_of_parity: NotRequired[float]
    schedule: NotRequired[ScheduleDocument]
    nonfinite: dict[str, dict[str, Any]]
    resolution: dict[str, float]
    mismatch: dict[str, Any]
    worst_run: dict[str, Any] | None
    pairing: NotRequired[PairingDocument]
    context_differs: list[str]
    advice: AdviceDocument
    margin: MarginDocument | None
    token_slope: NotRequired[TokenSlopeDocument | None]
    end: dict[str, Any] | None
    gap: VerdictGapDocument | None
    se_parts: ErrorPartsDocument | None
    tau: RunNoiseDocument | None
    noise: NoiseDocument
    convergence: dict[str, Any]
    drift: dict[str, float] | None
    spikes: SpikesDocument | None
    grad_norm: GradNormDocument | None
    token_tax: TokenTaxDocument | None
    throughput: ThroughputDocument | None
    speed_reason: NotRequired[str | None]
    net_speedup: EstimateDocument | None
    checks: list[CheckDocument]
    other_candidates: list[PeerDocument]
    validation: ValidationDocument | None
    run_spikes: RunSpikesDocument | None
    downstream: list[TaskDocument]
    inputs: InputsDocument
    params: dict[str, Any]
    worth: NotRequired[WorthDocument]
    path: NotRequired[list[PathPointDocument]]
    chances: NotRequired[ChancesDocument | None]
    gemm_time: NotRequired[float | None]
    owner_steps: NotRequired[list[str]]
    words: NotRequired[WordsDocument]
