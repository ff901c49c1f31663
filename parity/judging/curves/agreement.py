"""What must agree between two arms besides the recipe: context, units, steps, resolution of the
logs; and whether the recipe was in use.
"""

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from parity.judging.curves.curve import (
    DATA_DIGEST,
    FORKED_FROM,
    PLANNED_STEPS,
    READ_FACTS,
    RECORDED_RECIPE,
    START,
    START_PRECISION,
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    completeness_of,
    computed_once,
    median,
    usable,
)
from parity.judging.curves.pairing import SAME_ORDER, Aligned, common_steps, pair_correlation
from parity.judging.curves.window import MAD_TO_SD, Window, lag1, step_noise
from parity.recipes import forward_differs, width_of
from parity.structure import frozen

# What must agree between the arms besides the recipe: engine, device class, data, threads, code. A
# difference confounds the gap.
#
# This is the one home of that rule: the judge, the check of a named baseline and the job page all
# use it. Words that people type are equal but for case, blanks and hyphens; two names of a device
# are one where the words of one are all in the other ("H100" and "NVIDIA H100 80GB HBM3", but
# neither "H200" nor "H100 PCIe" and "H100 SXM").

NOT_SET = "not set"
DEVICE_CLASS, ENGINE, EMULATED = "device_class", "engine", "emulated"
# of the model: their number, its kind, the weights' format
PARAMETERS, ARCHITECTURE, WEIGHTS = "parameters", "architecture", "weights"
# the machine's name: machines of one device class train alike, only their speed is not comparable
HOST = "host"
NOT_RECORDED = frozenset((*READ_FACTS, PLANNED_STEPS))
"""Context keys that a reader writes of any file; a run that has no other recorded nothing of what
it ran on.
"""
_VARIABLE = "env."
_TYPED = (DEVICE_CLASS, ENGINE)  # keys whose values people type
# parameters; below it runs on record differ by up to ten times what is assumed (docs/method.md)
SMALL_MODEL = 10e6
_ENCODER = re.compile(r"bert|electra|(?<![a-z])m?bart|(?<![a-z0-9])(?:m|by|um|flan-?)?t5|encoder")
_BINARY = re.compile(r"binar|xnor|(?<![0-9])(?:int)?1[- ]?bit|(?<![a-z])int1(?![0-9])")
_NUMBER = re.compile(r"([0-9][0-9,_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([kmbt]?)", re.IGNORECASE)
_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
CODE_DIGEST = "code_digest"  # of the files that decide the training
# names of commits, which say less than the digest of their files
_REVISIONS = ("code_revision", "repository_revision")
_VENDORS = frozenset(("nvidia", "amd", "instinct", "tesla", "geforce"))


Comparison = Literal["recipe", "revision", "environment"]
"""In what the two arms of a comparison are meant to differ: a recipe, a revision of the code or an
environment, of one recipe each.
"""

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
RECIPE: Comparison = "recipe"
# The context keys in which arms may differ because that is what is compared; `env.*` is every key
# that begins with `env.`.
_COMPARED: Mapping[Comparison, tuple[str, ...]] = {
    RECIPE: (),
    "revision": (CODE_DIGEST, *_REVISIONS),
    "environment": ("env.*", "environment", "image", "version.*"),
}


def compared_keys(compares: Comparison) -> tuple[str, ...]:
    """The context keys in which two arms may differ because of what they compare; a name with `*`
    stands for all that begin so.
    """
    return _COMPARED[compares]


def values_of(contexts: Sequence[Mapping[str, str]], key: str) -> set[str]:
    """Every value of a key over what runs recorded; a run that recorded nothing at all does not
    count.

    A key that a run lacks says nothing about it, but for a variable of the environment
    (`env.NAME`): where a run recorded what it ran on, a variable that is not there was not set, and
    NVTE_NVFP4_DISABLE_RHT=1 in one arm alone is another recipe.
    """
    recorded = [context for context in contexts if context.keys() - NOT_RECORDED]
    values = {str(context[key]) for context in recorded if key in context}
    if key in _TYPED and all(_same(key, *pair) for pair in itertools.combinations(values, 2)):
        values = {max(values, key=lambda value: (len(value), value))} if values else values
    return values | (
        {NOT_SET}
        if key.startswith(_VARIABLE) and any(key not in context for context in recorded)
        else set()
    )


def values_by_key(contexts: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """The values of every key that any run recorded, keys in order."""
    return {
        key: values_of(contexts, key)
        for key in sorted({key for context in contexts for key in context} - {*READ_FACTS})
    }


def confounding_keys(
    contexts: Sequence[Mapping[str, str]],
    may_differ: Collection[str] = (),
    compares: Comparison = RECIPE,
) -> list[str]:
    """The keys on which runs disagree, and which neither the policy nor what is compared lets
    differ.

    A machine's name and a run's parent confound nothing; recipes and the precision of the first
    steps are what recipe arms compare. Where every run recorded the digest of the code that trained
    it, a commit is only a name: one digest has many commits.
    """
    of_recipes = (START_PRECISION, RECORDED_RECIPE) if compares == RECIPE else ()
    recorded = [context for context in contexts if context.keys() - NOT_RECORDED]
    names = _REVISIONS if recorded and all(CODE_DIGEST in context for context in recorded) else ()
    allowed = (HOST, FORKED_FROM, *of_recipes, *names, *may_differ)
    return [
        key
        for key, values in values_by_key(contexts).items()
        if len(values) > 1 and key not in allowed and not is_compared(key, compares)
    ]


def is_compared(key: str, compares: Comparison) -> bool:
    """Whether a context key is among those in which two arms may differ because of what they
    compare.
    """
    return any(
        key.startswith(name[:-1]) if name.endswith("*") else key == name
        for name in compared_keys(compares)
    )


def differing_context(
    runs: Sequence[Curve], may_differ: Collection[str] = (), compares: Comparison = RECIPE
) -> tuple[str, ...]:
    """Every context key on which two runs disagree, as `key: value | value`."""
    contexts = [run.context for run in runs]
    values = values_by_key(contexts)
    return tuple(
        f"{key}: {' | '.join(sorted(values[key]))}"
        for key in confounding_keys(contexts, may_differ, compares)
    )


def confounding_context(
    arms: Sequence[Sequence[Curve]], may_differ: Collection[str], compares: Comparison
) -> tuple[str, ...]:
    """Every context key that confounds two arms, as `key: value | value`: what is compared may
    differ between them, not within one.
    """
    between = differing_context([run for arm in arms for run in arm], may_differ, compares)
    if compares == RECIPE:
        return between
    listed = {entry.partition(": ")[0] for entry in between}
    within = [
        entry
        for arm in arms
        for entry in differing_context(arm, may_differ)
        if entry.partition(": ")[0] not in listed
    ]
    return (*between, *dict.fromkeys(within))


EXPLAINING = frozenset(
    (
        *(
            DATA_DIGEST,
            START,
            PLANNED_STEPS,
            PARAMETERS,
            ARCHITECTURE,
            "dataset",
            "sequence_length",
            "batch_size",
            "weight_decay",
        ),
        *("learning_rate", "min_learning_rate", "learning_rate_schedule"),
    )
)
"""Context keys of what could explain a gap as large as any: data, batches, model, its start, and
schedule.
"""


def explaining(differing: Sequence[str]) -> bool:
    """Whether a difference of context, `key: value | value` each, could explain a gap by itself."""
    return any(entry.partition(": ")[0] in EXPLAINING for entry in differing)


def shared_facts(runs: Sequence[Curve]) -> int:
    """How many facts that every run recorded are equal in all of them."""
    contexts = [run.context for run in runs]
    return sum(
        len(values) == 1 and all(key in context for context in contexts)
        for key, values in values_by_key(contexts).items()
    )


def same_data_recorded(runs: Sequence[Curve]) -> bool:
    """Whether every run carries the same recorded data digest (equal seeds then mean an equal
    order).
    """
    digests = {run.context.get(DATA_DIGEST, "") for run in runs}
    return len(digests) == 1 and "" not in digests


def without_assumed_floor(runs: Sequence[Curve]) -> str | None:
    """What the record says of a model whose run-to-run noise nobody may assume: a small one, an
    encoder, or binary weights; None of others.

    No such run is among those on which the assumed floors rest, and those that are on record differ
    more.
    """
    for run in runs:
        parameters = parameter_count(run.context.get(PARAMETERS, ""))
        if parameters is not None and parameters < SMALL_MODEL:
            return f"a model of {parameters:,.0f} parameters, below {SMALL_MODEL:,.0f}"
        if _ENCODER.search(run.context.get(ARCHITECTURE, "").lower()):
            return f"an encoder ({run.context[ARCHITECTURE]})"
        if _BINARY.search(run.context.get(WEIGHTS, "").lower()) or _BINARY.search(
            (run.recipe or "").lower()
        ):
            return "binary weights"
        if run.context.get(ENGINE) == EMULATED:
            return f"the small models of engine {EMULATED}"
    return None


def parameter_count(text: str) -> float | None:
    """A number of parameters as people write it: 4000000, 4e6, 4,000,000, 4M; None for anything
    else.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1].replace(",", "").replace("_", "")) * _SUFFIX[match[2].lower()]


def _same(key: str, first: str, second: str) -> bool:
    """Whether two typed values mean the same."""
    words = [frozenset(re.findall(r"[a-z0-9.]+", value.lower())) for value in (first, second)]
    if key == DEVICE_CLASS:
        words = [own - _VENDORS or own for own in words]
        return all(words) and (words[0] <= words[1] or words[1] <= words[0])
    return words[0] == words[1]


# Two logs that do not fit together for a reason that has a name: steps shifted or counted in
# another unit, losses in another unit.
#
# shifted   batch noise correlates below 0.5 at equal steps and at least 0.5 once one log is moved
#           by 1 or 2 points, or aligned point by
#   point
# scaled    the logs have other strides and as many points (within 2 %), and aligned point by point
#           their batch noise correlates at least
#           0.5: the strides' ratio is the steps' unit (tokens or samples per step)
# ratio     candidate / baseline over the first 8 points is log 2 or 1 / log 2 (within 2 %: bits
#           against nats), or more than 20 % from 1
#   in
#           logs that begin at the start, when both models still have the same loss; and its median
#           over the run is within 10 % of that
# start     the first losses of two logs that begin at step 0 or 1 differ by more than 1.5 %: the
#           same model and batch give equal ones
# rounding  share of the second differences' variance that rounding to q explains: (q^2 / 12) /
#           sigma_step^2
#
# Can fail: a log that is both thinned and shifted has neither name, and stays a mismatch of the
# data.

LAGS = (1, -1, 2, -2)
SAME_LENGTH = 0.02
COMMON_SHARE = 0.5
RATIO_SPREAD, RATIO_CHANGE, RATIO_FROM_ONE, START_SHARE = 0.02, 0.1, 0.2, 0.05
BITS = 1.0 / math.log(2.0)
FIRST_GAP = 0.006  # of the first loss: more than any recipe on record explains (0.0055)
# real reruns: 0; NVFP4 against FP8, emulated with 0.1 M parameters: 0.0055
START_DIFFERENCE = 0.015
SAMPLE = 4_096
ROUNDING_EXPLAINS = 0.5


@frozen
class FirstGap:
    """By how much the candidate's first loss differs, in nats and as a share of the baseline's."""

    nats: float
    share: float


@frozen
class Mismatch:
    """What makes two logs unfit for a comparison, each None where it does not.

    `shift` is how many steps the candidate's numbers are ahead, `factor` how many of its steps are
    one of the baseline's, `ratio` how many of its units are one of the baseline's, `start` by which
    share its first loss differs, `first_gap` the same where no recipe explains it. `rounding_hides`
    says that rounding is too coarse for the batches to be recognised.
    """

    shift: int | None = None
    factor: float | None = None
    ratio: float | None = None
    start: float | None = None
    first_gap: FirstGap | None = None
    rounding_hides: bool = False


def find_mismatch(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    aligned: Aligned,
    r_pair: float | None,
    quantum: float,
) -> Mismatch:
    """Why the first runs of two arms don't fit together; `r_pair` is their correlation at equal
    steps, `quantum` their rounding step.
    """
    base, cand = baseline[0], candidate[0]
    if min(len(base.steps), len(cand.steps)) < 2:
        return Mismatch()
    shift, factor = None, None
    few = len(common_steps(base.steps, cand.steps)) < COMMON_SHARE * min(
        len(base.steps), len(cand.steps)
    )
    other_batches = r_pair is not None and r_pair < SAME_ORDER
    if few or (other_batches and base.completeness.stride != cand.completeness.stride):
        shift, factor = _point_by_point(base, cand)
    elif other_batches:
        shift = _shifted(aligned)
    return Mismatch(
        shift=shift,
        factor=factor,
        ratio=_loss_ratio(aligned, base) if len(aligned.steps) >= 8 else None,
        start=start
        if (start := _start(base, cand)) is not None and abs(start) > START_DIFFERENCE
        else None,
        first_gap=FirstGap(nats=start * float(base.loss[0]), share=start)
        if start is not None and abs(start) > FIRST_GAP
        else None,
        rounding_hides=_rounding_share(aligned, quantum) > ROUNDING_EXPLAINS,
    )


def _point_by_point(base: Curve, cand: Curve) -> tuple[int | None, float | None]:
    """Shift or unit of the steps of two logs that share few of them, where their points belong
    together one by one.
    """
    n = min(len(base.steps), len(cand.steps))
    strides = base.completeness.stride, cand.completeness.stride
    if abs(len(base.steps) - len(cand.steps)) > SAME_LENGTH * n or None in strides:
        return None, None
    pairs = [(base.loss[:n], cand.loss[:n]), (base.loss[-n:], cand.loss[-n:])]
    if not any(_same_batches(x, y) for x, y in pairs):
        return None, None
    if strides[0] == strides[1]:
        return (int(cand.steps[0]) - int(base.steps[0])) or None, None
    return None, (strides[1] or 1) / (strides[0] or 1)


def _shifted(aligned: Aligned) -> int | None:
    """By how many steps the candidate's numbers are ahead of the baseline's, where moving it by a
    point or two shows the same batches.
    """
    base, cand = aligned.baseline[0], aligned.candidate[0]
    stride = int(np.median(np.diff(aligned.steps[:SAMPLE]))) if len(aligned.steps) > 2 else 1
    for lag in LAGS:
        x, y = (base[:-lag], cand[lag:]) if lag > 0 else (base[-lag:], cand[:lag])
        if _same_batches(x, y):
            return lag * stride
    return None


def _same_batches(x: FloatArray, y: FloatArray) -> bool:
    finite = usable(x) & usable(y)
    correlation = pair_correlation(x[finite], y[finite])
    return correlation is not None and correlation >= SAME_ORDER


def _loss_ratio(aligned: Aligned, base: Curve) -> float | None:
    sample = slice(None, None, 1 + len(aligned.steps) // SAMPLE)
    x, y = aligned.baseline[0, sample], aligned.candidate[0, sample]
    if not (x > 0.0).all() or not (y > 0.0).all():
        return None
    early, ratio = (float(np.median(part)) for part in ((y / x)[:8], y / x))
    if abs(ratio / early - 1.0) > RATIO_CHANGE:
        return None
    if any(abs(early / unit - 1.0) <= RATIO_SPREAD for unit in (BITS, 1.0 / BITS)):
        return early  # a candidate in another unit may be worse as well
    from_start = int(base.steps[0]) <= START_SHARE * int(base.steps[-1])
    if from_start and not 1.0 - RATIO_FROM_ONE <= early <= 1.0 / (1.0 - RATIO_FROM_ONE):
        return early
    return None


def _start(base: Curve, cand: Curve) -> float | None:
    """By which share the candidate's first loss differs, where both logs begin with one of the
    first two steps.
    """
    if int(base.steps[0]) != int(cand.steps[0]) or int(base.steps[0]) > 1 or not base.loss[0] > 0.0:
        return None
    return float(cand.loss[0] / base.loss[0]) - 1.0


def _rounding_share(aligned: Aligned, quantum: float) -> float:
    """Share of the noise of single steps that rounding explains, in the noisier arm's favour."""
    if quantum == 0.0:
        return 0.0
    late = slice(len(aligned.steps) // 2, None)
    noise = max(
        step_noise(aligned.baseline[0, late][:SAMPLE]),
        step_noise(aligned.candidate[0, late][:SAMPLE]),
    )
    if noise <= quantum / math.sqrt(12.0):
        return 1.0
    return (quantum / noise) ** 2 / 12.0


# Did the candidate train with its recipe? What the first loss and the names of the arms say against
# it.
#
# equal start   the logs of both arms begin at step 0 or 1 with the same loss, to the last of at
#               least four decimals, though their
#   recorded
#               recipes compute the forward pass in other numbers. Reruns of one recipe begin so:
#               equal weights, batch and arithmetic.
#               Two precisions differ by 0.0019 nats (emulated MXFP8 and NVFP4, 0.1 M parameters) to
#               0.35 (8B on GB200)
# no evidence   where the first loss is ln V, V a whole number (a multiple of 64 where the digits do
#               not tell): a model whose output
#               layer starts at zero predicts that in every precision, as the public reruns of the
#               124 M model do (10.8258 = ln 50,304);
#               where both logs have gradient norms of that step and they differ; and where the run
#               states what its first steps compute in
# other name    an arm is called by one precision, or its recipe is stated in one, and its runs
#               recorded another: the arms may be swapped
#
# Can fail: a first loss that was changed, and recipes that nobody recorded. Later steps say
# nothing: reruns differ there, too.

FIRST_STEP, MAX_QUANTUM = 1, 1e-4
SAME_NORM = 1e-3  # relative; at the first step precisions differ by 0.8 % and more on GB200
VOCABULARY_UNIT = 64  # to whose multiples vocabularies are padded
RESOLVED = 0.2  # digits that hold exp(loss) to this tell whole numbers from others


@frozen
class EqualStart:
    """The first step of both logs and the loss, nats, that they share."""

    step: int
    loss: float


def equal_start(
    baseline: Sequence[Curve], candidate: Sequence[Curve], quantum: float
) -> EqualStart | None:
    """Where a run of the candidate begins with the loss of a baseline's run of its seed, which its
    recipe does not explain.

    `quantum` is the step to which losses are rounded, nats.
    """
    if quantum > MAX_QUANTUM * (1.0 + 1e-9) or any(
        START_PRECISION in run.context for run in (*baseline, *candidate)
    ):
        return None
    pairs = ((run, other) for run in baseline for other in candidate if run.seed == other.seed)
    return next(
        (start for run, other in pairs if (start := _equal_start(run, other, quantum)) is not None),
        None,
    )


def same_first_batch(baseline: Sequence[Curve], candidate: Sequence[Curve], quantum: float) -> bool:
    """Whether each run of the candidate begins with the loss of a baseline's run of its seed, and
    not all with one that any batch gives.

    For arms of one recipe: equal digits then need an equal model, batch and forward pass. Any batch
    gives what a logger writes before it has a loss (0), what a model that predicts all tokens alike
    has, and what runs of several seeds begin with. `quantum` is the step to which losses are
    rounded, nats.
    """
    if quantum > MAX_QUANTUM * (1.0 + 1e-9):
        return False
    firsts = [
        next(
            (
                loss
                for run in baseline
                if run.seed == own.seed and (loss := _first_loss(run, own)) is not None
            ),
            None,
        )
        for own in candidate
    ]
    of_any_batch = len({run.seed for run in candidate}) > 1 and len({*firsts}) == 1
    return (
        None not in firsts
        and not of_any_batch
        and not all(loss is None or loss <= 0.0 or _is_uniform(loss, quantum) for loss in firsts)
    )


def contradicted(name: str, runs: Sequence[Curve]) -> str | None:
    """The recipe on record that contradicts an arm's name or the recipe that is stated for it, by
    its precision; None where none does.
    """
    if recorded := next(
        (run.context[RECORDED_RECIPE] for run in runs if RECORDED_RECIPE in run.context), None
    ):
        return recorded
    own = width_of(name.strip().lower().replace("-", "_").removeprefix("te_"))
    recipe = runs[0].recipe
    if own is not None and recipe and width_of(recipe) not in (None, own):
        return recipe
    return None


def _equal_start(base: Curve, cand: Curve, quantum: float) -> EqualStart | None:
    loss = _first_loss(base, cand) if forward_differs(base.recipe, cand.recipe) else None
    if loss is None or _is_uniform(loss, quantum) or _norms_differ(base, cand):
        return None
    return EqualStart(step=int(base.steps[0]), loss=loss)


def _first_loss(base: Curve, cand: Curve) -> float | None:
    """The loss with which both logs begin at step 0 or 1; None where they don't."""
    if (
        not (len(base.steps) and len(cand.steps))
        or int(base.steps[0]) > FIRST_STEP
        or int(cand.steps[0]) != int(base.steps[0])
    ):
        return None
    loss = float(base.loss[0])
    if float(cand.loss[0]) == loss and usable(base.loss[:1])[0]:
        return loss
    return None


def _is_uniform(loss: float, quantum: float) -> bool:
    """Whether a loss may be that of a model that predicts every one of V tokens alike."""
    if not 0.0 < loss < math.log(2**24):
        return False
    size = math.exp(loss)
    digits = size * (0.5 * quantum + 2.0 * float(np.spacing(np.float32(loss))))
    unit = 1 if digits < RESOLVED else VOCABULARY_UNIT
    return abs(size - unit * round(size / unit)) <= digits


def _norms_differ(base: Curve, cand: Curve) -> bool:
    norms = [
        float(run.columns["grad_norm"][0]) for run in (base, cand) if "grad_norm" in run.columns
    ]
    return len(norms) == 2 and abs(norms[1] - norms[0]) > SAME_NORM * abs(norms[0])


# Is the series what the trainer measured? Rounded, thinned out or smoothed losses are named, and
# limit what can be resolved.
#
# quantum: the largest q of 10^-d or 2^-k of which 60 % of a run's changes from step to step are
# whole multiples, wherever it starts; rounding can move a gap by (q_A + q_B) / 2 hole: the longest
# stretch without a point beyond 2 logging intervals, as a share of the window noise ratio:
# sigma_step of the candidate over that of the baseline; outside 0.5 to 2 one log holds averages,
# and the other single steps coverage: points in the window over points of a regular grid on the
# most common stride (or the share of intervals on that grid, if smaller); below 90 % the series is
# a sample of the run smoothing: a = 1 + 2 corr(x_t - x_{t-1}, x_{t-1} - x_{t-2}); white batch noise
# has a = 0, an exponential average of weight a has a memory: V(n/8) / V(1) steps, V(k) = mean
# squared k-step change: 1/(1 - a) for an exponential average, w for a mean of w points
#
# Can fail: a run without batch noise looks smoothed (its changes are all trend), so noiseless runs
# are exempt. Source: lag-1 correlation of first differences of an AR(1) series; von Neumann's ratio
# (1941). TensorBoard keeps 10,000 points by default, W&B's charts 1,500.

MIN_COVERAGE = 0.90
# EMA 0.99 0.01 to 0.22, means of 10 steps 0.09 to 0.40; honest arms 0.84 to 1.20
MAX_NOISE_RATIO = 2.0
# equal batches show it with a few points
MIN_NOISE_POINTS, MIN_NOISE_POINTS_OTHER, NOISE_OVER_QUANTUM = 8, 60, 2.0
MAX_HOLE = 0.03  # of the window: 0.6 % of the plan
COARSE_QUANTUM = 5e-4  # three decimals or fewer
SMOOTHED_WEIGHT = 0.5
MAX_LAG_SHARE = 0.05  # of the window: a longer memory has not forgotten what came before it
NOISELESS = 1e-6
SPIKE_SDS = 6.0
WHOLE_SHARE = 0.6
FEW_VALUES = 0.3  # of the points; a real log with 3 decimals has 0.47, one with 7 digits 0.92
# Decimals, and bits of bf16 or fp16.
_QUANTA = np.array(
    sorted([10.0**-d for d in range(7)] + [2.0**-k for k in range(1, 21)], reverse=True)
)
# the last so many points show rounding and smoothing as well as all of them
RESOLUTION_SAMPLE = 10_000


@frozen
class _Late:
    """Of one run in the window: coverage, its longest hole, smoothing weight, and its memory as a
    share of the window's points.
    """

    coverage: float
    hole: float
    smoothing: float
    memory_share: float


@frozen
class Resolution(_Late):
    """Worst values over all runs, and of the rounding: the gap's error and the coarsest step,
    nats.
    """

    rounding: float
    quantum: float


def resolution(baseline: Sequence[Curve], candidate: Sequence[Curve], window: Window) -> Resolution:
    """Resolution of the window's losses of both arms."""
    late = [_late(run, window) for run in (*baseline, *candidate)]
    quanta = [max(map(_quantum, arm)) for arm in (baseline, candidate)]
    return Resolution(
        rounding=sum(quanta) / 2.0,
        quantum=max(quanta),
        coverage=min(run.coverage for run in late),
        hole=max(run.hole for run in late),
        smoothing=max(run.smoothing for run in late),
        memory_share=max(
            (run.memory_share for run in late if run.smoothing >= SMOOTHED_WEIGHT), default=0.0
        ),
    )


@computed_once
def _quantum(run: Curve) -> float:
    return quantum(_finite(run.loss)[-RESOLUTION_SAMPLE:])


def _late(run: Curve, window: Window) -> _Late:
    """What the window shows of one run; computed once, though a run is in several comparisons."""
    known = _known(run)
    if window not in known:
        part = window.part(run.steps)
        loss = _finite(run.loss[part])[-RESOLUTION_SAMPLE:]
        known[window] = _Late(
            coverage=regular_share(run.steps[part]),
            hole=longest_hole(run.steps, window),
            smoothing=smoothing_weight(loss),
            memory_share=memory_steps(loss) / max(len(loss), 1),
        )
    return known[window]


@computed_once
def _known(_run: Curve) -> dict[Window, _Late]:
    return {}


def _finite(loss: FloatArray) -> FloatArray:
    return loss if all_usable(loss) else loss[usable(loss)]


def noise_ratio(aligned: Aligned, quantum: float, *, same_batches: bool) -> float | None:
    """The batch noise of the candidate's runs over that of the baseline's, at the common steps of
    the last half; None where it isn't known.

    `quantum` is the step to which losses are rounded, `same_batches` whether it is shown that the
    arms read the same batches.
    """
    late = slice(max(len(aligned.steps) // 2, len(aligned.steps) - RESOLUTION_SAMPLE), None)
    if len(aligned.steps[late]) < (MIN_NOISE_POINTS if same_batches else MIN_NOISE_POINTS_OTHER):
        return None
    noise = [
        float(np.median([step_noise(run) for run in arm[:, late]]))
        for arm in (aligned.baseline, aligned.candidate)
    ]
    least = max(quantum, NOISELESS * float(np.abs(aligned.baseline[0, late]).max()))
    if max(noise) > 0.0 and max(noise) >= NOISE_OVER_QUANTUM * least:
        return noise[1] / max(noise[0], 1e-300)
    return None


# By how much can averages alone raise the losses of a log? They lag behind a curve that falls.
#
# q      the noise ratio, over the memory of the baseline's log where that is smoothed itself
# lag    at most the smaller of 1/(2 q^2) and sqrt(s)/q points of the baseline's log, s the
#        candidate's logging interval in these points:
#        w losses that are averaged lag by w/2 and have 1/sqrt(w) of the noise of one where no two
#        means share a loss, or, seen through
#        second differences, sqrt(0.67 s)/w where they do. An exponential average lags by 0.8/q,
#        averages of averages by less. Four times
#        that counts, since q is a ratio of two medians
# lift   an exponential average with that lag, begun at the first loss, of the baseline's own curve,
#        minus that curve. Of all averages with
#        one lag this one takes most from a steep start
#
# Can fail: a log that is delayed and not averaged.

LAG_ALLOWED = 4.0
LIFT_SAMPLE = 4_096  # stretches of a run, each with its mean, show how it falls


def averaging_lift(run: Curve, steps: IntArray, ratio: float, window: Window) -> FloatArray:
    """By how much averages logged at (n,) steps of a run, which leave `ratio` of its batch noise,
    would raise its losses; nats (n,).
    """
    finite = usable(run.loss)
    loss = run.loss[finite]
    thin = 1 + len(loss) // LIFT_SAMPLE
    curve = loss[: len(loss) // thin * thin].reshape(-1, thin).mean(axis=1)
    lag = LAG_ALLOWED * _lag(run, steps, ratio, window) / thin
    keep = lag / (1.0 + lag)
    averaged, value = np.empty(len(curve)), float(curve[0])
    for i, own in enumerate(curve.tolist()):
        value = keep * value + (1.0 - keep) * own
        averaged[i] = value
    at = np.minimum(np.searchsorted(run.steps[finite], steps) // thin, len(curve) - 1)
    lift: FloatArray = (averaged - curve)[at]
    return lift


def _lag(run: Curve, steps: IntArray, ratio: float, window: Window) -> float:
    """How many points of a run averages lag at most that are logged at (n,) of its steps and leave
    `ratio` of its noise.
    """
    inside = _finite(run.loss[window.part(run.steps)])[-RESOLUTION_SAMPLE:]
    memory = memory_steps(inside) if smoothing_weight(inside) >= SMOOTHED_WEIGHT else 1.0
    own = max(ratio / memory, 1e-9)
    interval = (
        float(np.median(np.diff(steps))) / (run.completeness.stride or 1) if len(steps) > 1 else 1.0
    )
    return float(min(0.5 / own**2, max(interval, 1.0) ** 0.5 / own))


def regular_share(steps: IntArray) -> float:
    """The smaller of coverage and of the share of intervals that are whole multiples of the stride,
    for (n,) increasing steps.
    """
    completeness = completeness_of(steps)
    if not completeness.stride or completeness.stride == 1:
        return completeness.coverage
    return min(completeness.coverage, float(np.mean(np.diff(steps) % completeness.stride == 0)))


def longest_hole(steps: IntArray, window: Window) -> float:
    """The longest stretch of the window without one of (n,) increasing steps, as a share of it; 0.0
    for a regular grid.
    """
    part = window.part(steps)
    # with the step before the window, from which a hole may reach into it
    inside = steps[max(part.start - 1, 0) : part.stop]
    if len(inside) < 3:
        return 0.0
    distance = np.diff(inside)
    starts = np.maximum(inside[:-1], window.first - 1)
    longest = int((inside[1:] - starts).max()) - 2 * int(np.median(distance))
    return max(0.0, longest / (window.last - window.first + 1))


def quantum(loss: FloatArray) -> float:
    """The step to which (n,) losses are rounded, 0.0 where none is visible (or fewer than 3
    distinct values).
    """
    if len(loss) == 0 or len(np.unique(loss[:1000])) < 3:
        return 0.0
    change = np.diff(loss)
    noise = 4.0 * float(np.spacing(np.float32(np.abs(loss).max())))  # what storing as float32 adds
    steps = _QUANTA[8.0 * noise <= _QUANTA]
    # a few changes refute most steps
    steps = steps[_whole(change[:64, None] / steps, noise / steps)]
    for step in steps:
        if _whole(change / step, noise / step):
            return float(step)
    values = np.unique(loss)
    # an odd step, as of 0.05 or of 8 bits
    return float(np.median(np.diff(values))) if len(values) < FEW_VALUES * len(loss) else 0.0


def _whole(multiples: FloatArray, tolerance: FloatArray) -> BoolArray:
    """Whether most values of (n, ...) are whole numbers: a stretch that was moved or bent does not
    undo the rounding of the others.
    """
    whole: BoolArray = (
        np.mean(np.abs(multiples - np.round(multiples)) <= tolerance, axis=0) >= WHOLE_SHARE
    )
    return whole


def smoothing_weight(loss: FloatArray) -> float:
    """The weight of an exponential average that would give (n,) losses their short memory; 0.0 to
    below 1.
    """
    n = len(loss)
    if n < 40:
        return 0.0
    change = np.diff(_without_spikes(loss))
    change -= change.mean()
    if float(np.abs(change).max()) <= NOISELESS * float(np.abs(loss).max()):
        return 0.0
    return min(max(1.0 + 2.0 * lag1(change), 0.0), 1.0)


def _without_spikes(loss: FloatArray) -> FloatArray:
    """The (n,) losses capped at 6 robust standard deviations about their median: a spike decays
    smoothly, in a log of single steps, too.
    """
    middle = median(loss)
    width = SPIKE_SDS * MAD_TO_SD * median(np.abs(loss - middle))
    if width == 0.0 or (
        float(loss.max()) - middle <= width and middle - float(loss.min()) <= width
    ):
        return loss
    capped: FloatArray = np.clip(loss, middle - width, middle + width)
    return capped


def memory_steps(loss: FloatArray) -> float:
    """How many points (n,) losses remember: their slow variance over that of single steps, 1.0 for
    white noise.
    """
    far = len(loss) // 8
    if far < 5:
        return 1.0
    loss = _without_spikes(loss)
    near = float(np.mean((loss[1:] - loss[:-1]) ** 2))
    if near > 0.0:
        return float(np.mean((loss[far:] - loss[:-far]) ** 2)) / near
    return 1.0
