"""One training run as the judge sees it: steps, losses, and the proof that nothing is missing.

A curve is data, not an opinion: NaN and infinity stay in it, a duplicated step keeps its last value
(a restart overwrites what it repeats), and `Completeness` says how many points there are, in which
range, on which stride and with which gaps.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parity.frozen import frozen
from parity.recipes import RecipeError, check_rounding

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Rounding = Literal["stochastic", "nearest"]
ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)

MAX_STEP = 2**53  # beyond it a step read as a float is no longer exact

MAX_LOSS = 1e6  # nats; beyond it a loss is as good as infinite, and its square would overflow

RISEN_ROWS = 3  # before a restart; fewer may be batch noise

FORKED_FROM = "forked_from"  # the context key of a run that went on from another run's checkpoint
DATA_DIGEST = "data_digest"  # the context key that proves two arms read the same data
# the context key of the planned length of a run, where its source states it
PLANNED_STEPS = "planned_steps"
# the context key and value of a run that began with trained weights
START, LOADED = "start", "loaded"
# the context key of a run whose source has a recipe of another precision than the one that is
# stated
RECORDED_RECIPE = "recorded_recipe"
# the context key of how many rows of the source have values of training, and no loss
STEPS_WITHOUT_LOSS = "steps_without_loss"
# the context key of how many lines of a log look like those that were read
LINES_UNREAD = "lines_unread"
# the context key of a run whose file ends in half a line, of which the loss may be any
LAST_LINE_CUT = "last_line_cut"
# of what was read: its column or phrase, and what that is
LOSS_NAME, LOSS_MEANING, LOSS_BASE = "loss_name", "loss_meaning", "loss_base"
# the context key of a run whose source counts no steps: what was numbered instead, rows or lines
NUMBERED_BY = "numbered_by"
# the context key and value of a run whose steps are micro batches, by the name of their counter
COUNTED, MICRO_BATCHES = "counted", "micro batches"
# of what was read: columns that could be the loss, too, one a line, where nobody named one
OTHER_LOSSES = "other_losses"
# of these, those that may be the training loss in place of the one that was read
SECOND_LOSSES = "second_losses"
# of other losses, how many values are not finite: "COUNT held-out NAME" or "COUNT further NAME"
LOSSES_NOT_FINITE = "losses_not_finite"
# the context key of how many lines of a log say in words that a loss was not finite
SAID_NOT_FINITE = "said_not_finite"
READ_FACTS = (
    *(STEPS_WITHOUT_LOSS, LINES_UNREAD, LAST_LINE_CUT, LOSS_NAME, LOSS_MEANING, LOSS_BASE),
    *(NUMBERED_BY, COUNTED, OTHER_LOSSES, SECOND_LOSSES, SAID_NOT_FINITE, LOSSES_NOT_FINITE),
)
"""The context keys that a reader writes, and nobody states."""
# the context key of a run whose first steps are computed in another precision than its recipe's
START_PRECISION = "start_precision"


class CurveError(ValueError):
    """A series that can't be a run; the message names the thing, its value, what was expected and
    what to do.
    """


@frozen
class Completeness:
    """What a series covers: distinct steps, range, most common stride, overwritten rows, intervals
    wider than the stride.

    `rolled_back` is how far the losses that a restart overwrote had risen above those that replaced
    them, nats: the mean of the last quarter of the rows before that restart (at least 3), the worst
    restart; 0.0 where none had risen.
    """

    count: int
    first: int | None
    last: int | None
    stride: int | None
    duplicates: int
    gaps: int
    rolled_back: float = 0.0

    @property
    def coverage(self) -> float:
        """Share of the regular grid first, first + stride, ..., last that is there (1.0 for fewer
        than two points).
        """
        if self.first is None or self.last is None or not self.stride:
            return 1.0
        return min(1.0, self.count / ((self.last - self.first) // self.stride + 1))


@frozen(eq=False)
class Replaced:
    """Rows that a restart repeated, in their order: `steps` (R,) and `loss` (R,) before it."""

    steps: IntArray
    loss: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Curve:
    """One run: `steps` int64 (T,), `loss` float64 (T,) in nats, optional `columns` of length T;
    build it with `curve_from_arrays`.

    `context` holds what must agree between the arms of a comparison (engine, device class, data
    digest, code revision, ...); `seed` fixes initialization and data order, `replicate` only
    rounding salts and a perturbation of one part in a million. Where nobody stated the seed it is
    0, and `seed_stated` is False: then the batches may show which runs belong together
    (`unstated_seeds`). `rounding` is how the gradients were rounded, recorded by whoever
    trained the run; None where that is not on record.
    `replaced` has the rows that a restart repeated, where the curve was made of both.
    """

    steps: IntArray
    loss: FloatArray
    completeness: Completeness
    label: str = ""
    seed: int = 0
    seed_stated: bool = True
    replicate: int = 0
    recipe: str | None = None
    rounding: Rounding | None = None
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    context: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replaced: Replaced | None = None

    def digest(self) -> str:
        """sha256 (hex) of the steps (int64, little endian) followed by the losses (float64, little
        endian).
        """
        return series_digest(self.steps, self.loss)


Instance = TypeVar("Instance")
Fact = TypeVar("Fact")


def computed_once(function: Callable[[Instance], Fact]) -> Callable[[Instance], Fact]:
    """A function of a run, or of another value that never changes, that is computed once for it and
    kept as long as the value is.
    """
    known: WeakKeyDictionary[Instance, Fact] = WeakKeyDictionary()

    @functools.wraps(function)
    def once(of: Instance) -> Fact:
        if of not in known:
            known[of] = function(of)
        return known[of]

    return once


def usable(loss: FloatArray) -> BoolArray:
    """Where losses are finite and at most 1e6 nats in size, (n,)."""
    return np.abs(loss) <= MAX_LOSS


def all_usable(loss: FloatArray) -> bool:
    """Whether every loss of an array is usable; needs no array of its own, so it is the fast way to
    see that nothing is wrong.
    """
    return loss.size == 0 or (float(loss.min()) >= -MAX_LOSS and float(loss.max()) <= MAX_LOSS)


def dot(left: FloatArray, right: FloatArray) -> float:
    """Sum of products of (n,) values, on one thread: BLAS shares long vectors out, waits for busy
    cores, and sums in an order of theirs.
    """
    return float(np.einsum("i,i->", left, right))


def dots(left: FloatArray, right: FloatArray) -> FloatArray:
    """(b,): `dot` of each row of (b, n) values."""
    products: FloatArray = np.einsum("bi,bi->b", left, right)
    return products


def mean(values: FloatArray) -> float:
    """Mean of (n,) values, n > 0: numpy's, to the bit, without what it spends on axes and types."""
    return float(np.add.reduce(values)) / len(values)


def row_means(rows: FloatArray) -> FloatArray:
    """(b,): `mean` of each row of (b, n) values, n > 0."""
    found: FloatArray = np.add.reduce(rows, axis=1) / rows.shape[1]
    return found


def median(values: FloatArray) -> float:
    """Median of (n,) finite values, n > 0: numpy's, without what it spends on axes and NaN, which
    is most of the time for short series.
    """
    half = len(values) // 2
    parted = values.copy()
    parted.partition(half)
    upper = float(parted[half])
    if len(values) % 2:
        return upper
    return 0.5 * (float(parted[:half].max()) + upper)


def row_medians(rows: FloatArray) -> FloatArray:
    """(b,): `median` of each row of (b, n) values, n > 0."""
    half = rows.shape[1] // 2
    parted = rows.copy()
    parted.partition(half, axis=1)
    upper: FloatArray = parted[:, half]
    return upper if rows.shape[1] % 2 else 0.5 * (parted[:, :half].max(axis=1) + upper)


def rounding_of(roundings: Iterable[Rounding | None]) -> Rounding | None:
    """The rounding of an arm: stochastic where any run recorded that, nearest where every run
    recorded that, else not on record.
    """
    recorded = set(roundings)
    if "stochastic" in recorded:
        return "stochastic"
    if recorded == {"nearest"}:
        return "nearest"
    return None


def between(steps: IntArray, first: float, last: float) -> slice:
    """The part of ascending steps (n,) from the first to the last step, both included."""
    return slice(
        int(np.searchsorted(steps, first)), int(np.searchsorted(steps, last, side="right"))
    )


def series_digest(steps: IntArray, loss: FloatArray) -> str:
    """sha256 (hex) of little-endian int64 steps followed by little-endian float64 losses."""
    digest = hashlib.sha256(np.ascontiguousarray(steps, dtype="<i8").data)
    digest.update(np.ascontiguousarray(loss, dtype="<f8").data)
    return digest.hexdigest()


def curve_from_arrays(
    steps: ArrayLike,
    loss: ArrayLike,
    *,
    columns: Mapping[str, ArrayLike] | None = None,
    label: str = "",
    seed: int | None = None,
    replicate: int = 0,
    recipe: str | None = None,
    rounding: Rounding | None = None,
    context: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    overwritten: int = 0,
    rolled_back: float = 0.0,
) -> Curve:
    """Make a Curve of (T,) steps and (T,) losses in nats: sorted, duplicates reduced to the last,
    completeness proved.

    `seed` is None where nobody stated it. `overwritten` counts duplicates that were removed before,
    and `rolled_back` is what they had risen, so that a stored run keeps its proof of completeness.
    Raises CurveError for shapes that don't match, steps that are negative, fractional or not
    finite, text, and a rounding that is unknown or contradicts the recipe.
    """
    name = f"run {label!r}" if label else "run"
    step_T = _as_steps(steps, name)
    loss_T = _as_floats(loss, f"{name}: loss", len(step_T))
    column_T = {
        key: _as_floats(value, f"{name}: column {key!r}", len(step_T))
        for key, value in (columns or {}).items()
    }
    if rounding not in (None, *ROUNDINGS):
        raise CurveError(
            f"{name}: rounding is {rounding!r}; expected one of {', '.join(ROUNDINGS)}, or None "
            "where it is not known"
        )
    try:
        check_rounding(recipe, rounding, f"{name}: rounding")
    except RecipeError as error:
        raise CurveError(str(error)) from None
    keep = _last_of_each(step_T)
    duplicates, replaced = 0, None
    if keep is not None:
        duplicates = len(step_T) - len(keep)
        if duplicates:
            old = np.ones(len(step_T), dtype=bool)
            old[keep] = False
            replaced = Replaced(steps=step_T[old], loss=loss_T[old])
        rolled_back = max(rolled_back, risen_before_restart(step_T, loss_T, keep))
        step_T, loss_T = step_T[keep], loss_T[keep]
        column_T = {key: value[keep] for key, value in column_T.items()}
    for array in (step_T, loss_T, *column_T.values()):
        array.setflags(write=False)
    return Curve(
        steps=step_T,
        loss=loss_T,
        completeness=completeness_of(step_T, duplicates + overwritten, rolled_back),
        label=label,
        seed=int(seed or 0),
        seed_stated=seed is not None,
        replicate=int(replicate),
        recipe=recipe,
        rounding=rounding,
        columns=MappingProxyType(column_T),
        context=MappingProxyType(dict(context or {})),
        notes=tuple(notes),
        replaced=replaced,
    )


def completeness_of(steps: IntArray, duplicates: int = 0, rolled_back: float = 0.0) -> Completeness:
    """Completeness of strictly increasing steps (T,)."""
    first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (None, None)
    stride, gaps = None, 0
    if len(steps) > 1:
        distance = np.diff(steps)
        stride = int(distance[0])
        if not (distance == stride).all():
            values, counts = np.unique(distance, return_counts=True)
            stride = int(values[np.argmax(counts)])
            gaps = int(counts[values > stride].sum())
    return Completeness(
        count=len(steps),
        first=first,
        last=last,
        stride=stride,
        duplicates=duplicates,
        gaps=gaps,
        rolled_back=rolled_back,
    )


def risen_before_restart(
    steps: IntArray | FloatArray, loss: FloatArray, kept: NDArray[np.intp]
) -> float:
    """How far overwritten losses (T,) had risen above those that replaced them, nats; `kept` are
    the rows that count, in order of steps. What no later row reached again is compared with the
    last one.
    """
    old = np.ones(len(steps), dtype=bool)
    old[kept] = False
    rows = np.flatnonzero(old)
    bounded = np.where(usable(loss), np.minimum(loss, MAX_LOSS), MAX_LOSS)
    replaced_by = np.minimum(np.searchsorted(steps[kept], steps[rows]), len(kept) - 1)
    rise = bounded[rows] - bounded[kept[replaced_by]]
    breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(steps[rows]) <= 0)) + 1
    starts, ends = np.append(0, breaks), np.append(breaks, len(rows))
    long = ends - starts >= RISEN_ROWS
    parts = (
        (end - max(RISEN_ROWS, (end - start) // 4), end)
        for start, end in zip(starts[long], ends[long], strict=True)
    )
    return max([0.0, *(float(rise[first:end].mean()) for first, end in parts)])


def whole_steps(values: FloatArray) -> BoolArray:
    """Where (n,) values are steps: whole numbers from 0 to 2^53."""
    whole: BoolArray = (values >= 0) & (values <= MAX_STEP) & (np.floor(values) == values)
    return whole


def _as_steps(steps: ArrayLike, name: str) -> IntArray:
    raw = _as_array(steps, f"{name}: steps")
    if raw.dtype.kind in "iu":
        if raw.size and (int(raw.min()) < 0 or int(raw.max()) > MAX_STEP):
            bad = int(raw.min()) if int(raw.min()) < 0 else int(raw.max())
            raise CurveError(
                f"{name}: step {bad} is out of range; expected 0 to {MAX_STEP}; number steps from "
                "the start of training"
            )
        return np.array(raw, dtype=np.int64)
    values = _to_float(raw, f"{name}: steps")
    wrong = ~whole_steps(values)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise CurveError(
            f"{name}: step {float(values[index])!r} in row {index} is not a whole number from 0 to "
            f"{MAX_STEP}; name the column that counts optimizer steps"
        )
    return values.astype(np.int64)


def _as_floats(values: ArrayLike, name: str, length: int) -> FloatArray:
    array = _to_float(_as_array(values, name), name)
    if len(array) != length:
        raise CurveError(
            f"{name} has {len(array)} values for {length} steps; expected one value a step"
        )
    return array


def _as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise CurveError(f"{name} has shape {array.shape}; expected one dimension")
    return array


def _to_float(array: NDArray[Any], name: str) -> FloatArray:
    try:
        return np.array(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CurveError(f"{name}: {error}; expected numbers (nan and inf are allowed)") from error


def _last_of_each(steps: IntArray) -> NDArray[np.intp] | None:
    """Indices that sort the steps and keep the last row of each; None where they are strictly
    increasing already.
    """
    if len(steps) < 2 or bool((np.diff(steps) > 0).all()):
        return None
    order = np.argsort(steps, kind="stable")
    ordered = steps[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    kept: NDArray[np.intp] = order[is_last]
    return kept
