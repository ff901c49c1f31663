"""Which column is which: names that trainers and exporters give to the step, the training loss and what goes with it.

The first name that is there wins. The language-model loss is read before a total that has z-loss or router losses in it, and `loss`
before `train_loss`, which the Hugging Face trainer writes once, as the mean of the whole run. `Columns.taken` says what was taken, and
what could also have been the loss. Consumed samples and tokens are never steps.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import MAX_STEP, BoolArray, FloatArray
from parity.readers.source import ReadError

STEP, LOSS, VALIDATION = "step", "loss", "validation_loss"
KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        *("step", "steps", "_step", "global_step", "train/global_step", "trainer/global_step"),
        *("iteration", "iter", "training_step", "train/step"),
    ),
    LOSS: (
        *("learning/lm_loss", "lm_loss", "lm loss", "train/lm_loss", "lm-loss-training/lm loss", "learning/loss"),
        *("reduced_train_loss", "train/loss", "loss", "train_loss_step", "train_loss", "training_loss", "loss/train"),
        *("train_loss_epoch", "loss_metrics/global_avg_loss", "value"),
    ),
    "grad_norm": (
        "learning/raw_grad_norm",
        "raw_grad_norm",
        "grad_norm",
        "learning/grad_norm",
        "train/grad_norm",
        "grad-norm",
        "grad norm",
    ),
    "clipped_grad_norm": ("clipped_grad_norm", "learning/grad_norm"),
    "learning_rate": (*("learning/current_learning_rate", "learning_rate", "lr", "train/learning_rate", "learning-rate", "learning rate"),),
    "step_seconds": (
        "perf/step_time_seconds",
        "step_seconds",
        "step_time_seconds",
        "step_time",
        "iteration-time",
        "train_step_timing in s",
    ),
    "unix_seconds": ("unix_seconds", "_timestamp", "wall time", "wall_time"),  # when a step ended; W&B's and TensorBoard's exports have it
    "tokens": ("tokens", "perf/per_device_tokens", "tokens_per_step"),
    "tokens_per_second": ("perf/per_device_tokens_per_sec", "tokens_per_second", "throughput(tps)"),
    "tflops": ("perf/per_device_tflops_per_sec", "tflops", "tflops_per_second"),
    VALIDATION: (
        *("validation_loss", "val_loss", "valid/loss", "val/loss", "eval_loss", "eval/loss", "valid_loss"),
        *("validation_metrics/loss", "lm loss validation"),
    ),
}
OPTION = "--column {}=NAME"  # the option that names the column of a quantity, for errors
TOTAL_LOSS = "total_loss"  # never guessed: a column that --column names, for the record
QUANTITIES = (*KNOWN_NAMES, TOTAL_LOSS)

_NO_LOSS = re.compile(r"(?:^|[^a-z])(acc|accuracy|ppl|perplexity|bits|bpb|bpc|bpt)(?:[^a-z]|$)")
_HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "heldout"))
_NOT_THE_LOSS = _HELD_OUT | frozenset(
    (
        *("scale", "min", "max", "std"),
        *("aux", "z", "mtp", "moe", "lb", "load", "balance", "balancing", "router", "indexer"),
    )
)
"""Words in the name of a column that has another loss, or its range."""

Series = Sequence[tuple[int, float]]
"""The (step, value) of one quantity, in the order in which they were logged."""


class NoLossError(ReadError):
    """A file without a training loss, such as one of evaluations only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a reader took from a file: arrays (T,) by quantity, the columns' own names, the names of all columns that it has, and notes.

    `overwritten` counts rows that a later file of the same run replaced. `option` names a quantity's column on the command line.
    `planned_steps` is the length of the run that the file states.
    """

    values: Mapping[str, FloatArray]
    names: Mapping[str, str]
    found: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    overwritten: int = 0
    option: str = OPTION
    planned_steps: int | None = None

    def noted(self, *notes: str) -> "Columns":
        """The same columns with further notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    def taken(self) -> str:
        """One line: the columns of loss and step, and which others could have been the loss."""
        others = other_losses(self.found, self.names[LOSS])
        also = f" ({listed(others)} could also be the loss)" if others else ""
        return f"loss read from {self.names[LOSS]!r}{also}, step from {self.names[STEP]!r}"


def find_columns(names: Sequence[str], wanted: Mapping[str, str], source: str, option: str = OPTION) -> dict[str, str]:
    """Map each quantity to its column: as `wanted` says, else by known names. `option` names a quantity's column on the command line.

    Raises ReadError where step or loss can't be found, a wanted quantity or column is unknown, or the loss's column is named as an accuracy
    or a perplexity.
    """
    columns: dict[str, str] = {}
    for quantity, column in wanted.items():
        if quantity not in QUANTITIES:
            raise ReadError(f"{source}: no quantity is called {quantity!r}; expected one of {', '.join(QUANTITIES)} before the =")
        if column not in names:
            raise ReadError(f"{source}: no column {column!r} for {quantity}; the columns are {listed(names)}{did_you_mean(column, names)}")
        columns[quantity] = column
    for quantity, aliases in KNOWN_NAMES.items():
        if quantity not in columns and (guess := _first_known(names, aliases, source, option.format(quantity))) is not None:
            columns[quantity] = guess
    for quantity, column in columns.items():
        if list(names).count(column) > 1:
            raise ReadError(
                f"{source}: {list(names).count(column)} columns are called {column!r}; expected one for {quantity}; rename the others"
            )
    if columns.get("clipped_grad_norm") == columns.get("grad_norm"):  # MaxText's name for it, read already where the norm before is missing
        columns.pop("clipped_grad_norm", None)
    for quantity, error in ((STEP, ReadError), (LOSS, NoLossError)):
        if quantity not in columns:
            raise error(f"{source}: no {quantity} column among {listed(names)}; name it with {option.format(quantity)}")
    if word := _NO_LOSS.search(columns[LOSS].lower()):
        what = {"a": "an accuracy", "p": "a perplexity", "b": "a loss in bits"}[word[1][0]]
        raise ReadError(
            f"{source}: column {columns[LOSS]!r} is named as {what}, not as a loss; expected the cross-entropy in nats per token; "
            f"name its column with {option.format(LOSS)}"
        )
    return columns


def other_losses(names: Iterable[str], taken: str) -> tuple[str, ...]:
    """Columns that could also be the training loss, in their order: known names of it, and others with "loss" in them."""
    known = set(KNOWN_NAMES[LOSS]) - {"value"}
    words = {name: _words(name) for name in names if name != taken}
    return tuple(name for name, own in words.items() if _plain(name) in known or ("loss" in own and not own & _NOT_THE_LOSS))


def from_series(
    names: Iterable[str], series_of: Callable[[str], Series], wanted: Mapping[str, str], source: str, step: str = STEP
) -> Columns:
    """Columns of series by name, of which only those that are read are fetched; rows are the loss's own, in their order (a restart repeats
    steps).
    """
    known = sorted(names)
    tags = find_columns([STEP, *known], {key: value for key, value in wanted.items() if key != STEP}, source)
    rows = series_of(tags[LOSS])
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    values = {STEP: steps, LOSS: np.array([value for _, value in rows], dtype=np.float64)}
    for quantity, tag in tags.items():
        if quantity == VALIDATION:
            values[quantity] = at_rows(steps, series_of(tag))
        elif quantity not in values:
            of_step = dict(series_of(tag))  # of a step that it repeats, the last value
            values[quantity] = np.array([of_step.get(step, np.nan) for step, _ in rows], dtype=np.float64)
    return Columns(values=values, names=tags | {STEP: step}, found=known)


def rows_with_loss(values: Mapping[str, FloatArray], missing: BoolArray) -> Mapping[str, FloatArray]:
    """The rows that have a loss; evaluations of the others belong to the training step before them."""
    if not missing.any():
        return values
    kept = {quantity: own[~missing] for quantity, own in values.items()}
    if VALIDATION in values:
        there = ~np.isnan(values[VALIDATION])
        kept[VALIDATION] = at_rows(kept[STEP], zip(values[STEP][there].tolist(), values[VALIDATION][there].tolist(), strict=True))
    return kept


def at_rows(steps: FloatArray, series: Iterable[tuple[float, float]]) -> FloatArray:
    """A sparse series of (step, value), each at the last of (T,) steps that is not after it; NaN elsewhere.

    An evaluation belongs to the training step before it, whether or not that step's loss was logged.
    """
    values: FloatArray = np.full(len(steps), np.nan)
    order = np.argsort(steps, kind="stable")
    for step, value in series:
        place = int(np.searchsorted(steps[order], step, side="right")) - 1
        if place >= 0:
            values[order[place]] = value
    return values


def step_number(value: float, where: str, option: str = OPTION) -> float:
    """A step as it is; raises ReadError where it is no whole number from 0 to 2^53."""
    if not (0 <= value <= MAX_STEP and value == int(value)):
        raise ReadError(
            f"{where}: step {value!r} is not a whole number from 0 to 2^53; name the column that counts steps with {option.format(STEP)}"
        )
    return value


def plain_number(value: object) -> float | None:
    """A cell or a field as a number, None where it is not one; Python would read 1_0 as 10, which nobody who writes a table means."""
    if isinstance(value, bool) or value is None or (isinstance(value, str) and "_" in value):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float holds
        return math.inf if isinstance(value, int) and value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def _first_known(names: Sequence[str], aliases: Iterable[str], source: str, option: str) -> str | None:
    plain = [(name, _plain(name)) for name in names]
    for wanted in aliases:
        hits = [name for name, short in plain if short == wanted]
        if len(hits) > 1:
            raise ReadError(f"{source}: {len(hits)} columns could be {wanted!r}: {listed(hits)}; name one with {option}")
        if hits:
            return hits[0]
    return None


def is_held_out(column: str) -> bool:
    """Whether a column is named as a loss on held-out data, such as val_loss or eval/loss."""
    return bool(_HELD_OUT & _words(column))


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", _plain(name)))


def _plain(name: str) -> str:
    """A name in lower case, without the run's name that exports put before it ("run - train/loss")."""
    return name.strip().lower().rsplit(" - ", 1)[-1]


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """ "; did you mean 'X'?" where a column's name is close, else ""."""
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(names: Sequence[str]) -> str:
    """The first 12 names in quotes, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")
