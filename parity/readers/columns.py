"""From the text of a file to a curve: which column is which, whether the losses are plausible, and
the checks that every file gets.
"""

import codecs
import dataclasses
import difflib
import gzip
import json
import math
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    LINES_UNREAD,
    LOSS_BASE,
    LOSS_MEANING,
    LOSS_NAME,
    MAX_STEP,
    PLANNED_STEPS,
    STEPS_WITHOUT_LOSS,
    BoolArray,
    Curve,
    CurveError,
    FloatArray,
    IntArray,
    curve_from_arrays,
)
from parity.judging.curves.reading import (
    CROSS_ENTROPY,
    HELD_OUT_LOSS,
    LANGUAGE_MODEL_LOSS,
    LOSS_OF_ALL_TERMS,
    TRAINING_LOSS,
)
from parity.names_once import NameTwiceError, object_of_pairs
from parity.wording import count, first_few

# Text of a run's file: from a path, a .gz or stdin ("-"), refused early where it can't be text,
# with file and line in the message.

CHUNK = 1 << 20
MAX_LINE = 1 << 20
MAX_BYTES = 4 << 30
STDIN = "-"


class ReadError(ValueError):
    """A file cannot be read as a run; the message is one line with file, line number, what was
    expected and what to do.
    """


class UnreachableSourceError(ReadError):
    """A tracker's server did not answer, or refused for now; the message has the server's
    reason.
    """


def os_words(error: BaseException) -> str:
    """An error of the operating system or of a decompressor in words, without its number or
    path.
    """
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return "damaged or not gzip"
    if isinstance(error, (zipfile.BadZipFile, RuntimeError)):
        return "damaged, encrypted or not a zip archive"
    return (getattr(error, "strerror", None) or "unknown error").lower()


def read_text(name: str) -> str:
    """The text of a file, of a gzip file, or of stdin for "-"; raises ReadError for what is
    missing, empty, binary or one endless line.
    """
    data = _read_bytes(name)
    if data.startswith(_UTF_16):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise ReadError(
                f"{name}: begins with the mark of UTF-16, but is not UTF-16; save it as UTF-8"
            ) from None
    if not data or data.isspace():
        raise ReadError(f"{name}: the file is empty; expected one line per training step")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ReadError(
            f"{name}, line {line}: byte {error.start} is not UTF-8 text; expected CSV or JSON lines"
        ) from None


object_of_values = partial(object_of_pairs, equal_values_pass=True)
"""An object of a log, for json's `object_pairs_hook`: a value that is written twice is one."""


def json_of(text: str, name: str, remedy: str = "check the file") -> Any:
    """The value of a JSON text; raises ReadError, with the line, where it is not valid JSON, or an
    object gives one name two values.
    """
    try:
        return json.loads(text, object_pairs_hook=object_of_values)
    except NameTwiceError as error:
        raise ReadError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ReadError(f"{name}{place}: not valid JSON; {remedy}") from None


_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _read_bytes(name: str) -> bytes:
    try:
        if name == STDIN:
            return _collect(sys.stdin.buffer, name)
        path = Path(name)
        if path.is_dir():
            raise ReadError(f"{name} is a directory; expected a file: name the metrics file in it")
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                files = [member for member in archive.infolist() if not member.is_dir()]
                if len(files) != 1:
                    raise ReadError(
                        f"{name}: {count(len(files), 'file')} in the archive; expected one; unpack "
                        "it, and name one of them"
                    )
                with archive.open(files[0]) as stream:
                    return _collect(stream, name)
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _collect(stream, name)
    except FileNotFoundError:
        raise ReadError(f"{name}: no such file; check the path") from None
    except (
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise ReadError(
            f"{name}: cannot be read ({os_words(error)}); check the file and its permissions"
        ) from None
    except ReadError:
        raise
    except ValueError:  # a NUL in the name
        raise ReadError(f"{name!r} is not the name of a file; check the path") from None


def _collect(stream: "IO[bytes] | gzip.GzipFile", name: str) -> bytes:
    """Read in chunks, so that a line without end or a flood is refused before it fills the
    memory.
    """
    chunks: list[bytes] = []
    total = open_line = 0
    while chunk := stream.read(CHUNK):
        if b"\0" in chunk and not (chunks or [chunk])[0].startswith(_UTF_16):
            at = chunk.index(0)
            line = sum(part.count(b"\n") for part in chunks) + chunk.count(b"\n", 0, at) + 1
            raise ReadError(
                f"{name}, line {line}: byte {total + at} is NUL, so this is not text; expected "
                "CSV, JSON lines, .npz, Parquet or events"
            )
        last = chunk.rfind(b"\n")
        open_line = open_line + len(chunk) if last < 0 else len(chunk) - last - 1
        total += len(chunk)
        if open_line > MAX_LINE or total > MAX_BYTES:
            line = sum(part.count(b"\n") for part in chunks) + chunk.count(b"\n") + 1
            what = "longer than 1 MiB" if open_line > MAX_LINE else "the file is larger than 4 GiB"
            raise ReadError(f"{name}, line {line}: {what}; expected one line per training step")
        chunks.append(chunk)
    return b"".join(chunks)


# Which column is which: names that trainers and exporters give to the step, the training loss and
# what goes with it.
#
# The first name that is there wins. The language-model loss is read before a total that has z-loss
# or router losses in it, and `loss` before `train_loss`, which the Hugging Face trainer writes
# once, as the mean of the whole run. `Columns.taken` says what was taken, and what could also have
# been the loss. Consumed samples and tokens are never steps.

STEP, LOSS, VALIDATION, PERPLEXITY = "step", "loss", "validation_loss", "perplexity"
KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        *("step", "steps", "_step", "global_step", "train/global_step", "trainer/global_step"),
        *("iteration", "iter", "training_step", "train/step"),
    ),
    LOSS: (
        *(
            "learning/lm_loss",
            "lm_loss",
            "lm loss",
            "train/lm_loss",
            "lm-loss-training/lm loss",
            "learning/loss",
        ),
        *(
            "reduced_train_loss",
            "train/loss",
            "loss",
            "train_loss_step",
            "train_loss",
            "training_loss",
            "loss/train",
            "training loss",
        ),
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
    "learning_rate": (
        "learning/current_learning_rate",
        "learning_rate",
        "lr",
        "train/learning_rate",
        "learning-rate",
        "learning rate",
    ),
    "step_seconds": (
        "perf/step_time_seconds",
        "step_seconds",
        "step_time_seconds",
        "step_time",
        "iteration-time",
        "train_step_timing in s",
    ),
    # when a step ended; W&B's and TensorBoard's exports have it
    "unix_seconds": ("unix_seconds", "_timestamp", "wall time", "wall_time"),
    "tokens": ("tokens", "perf/per_device_tokens", "tokens_per_step"),
    "tokens_per_second": ("perf/per_device_tokens_per_sec", "tokens_per_second", "throughput(tps)"),
    "tflops": ("perf/per_device_tflops_per_sec", "tflops", "tflops_per_second"),
    # read to see of which base the loss is
    PERPLEXITY: ("ppl", "perplexity", "train/ppl", "train_ppl", "train/perplexity"),
    VALIDATION: (
        *(
            "validation_loss",
            "val_loss",
            "valid/loss",
            "val/loss",
            "eval_loss",
            "eval/loss",
            "valid_loss",
        ),
        *("validation_metrics/loss", "lm loss validation", "validation loss"),
    ),
}
OPTION = "--column {}=NAME"  # the option that names the column of a quantity, for errors
TOTAL_LOSS = "total_loss"  # never guessed: a column that --column names, for the record
QUANTITIES = (*KNOWN_NAMES, TOTAL_LOSS)

_NO_LOSS = re.compile(r"(?:^|[^a-z])(acc|accuracy|ppl|perplexity|bits|bpb|bpc|bpt)(?:[^a-z]|$)")
HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "heldout"))
NOT_THE_LOSS = HELD_OUT | frozenset(
    (
        *("scale", "min", "max", "std"),
        *("aux", "z", "mtp", "moe", "lb", "load", "balance", "balancing", "router", "indexer"),
    )
)
"""Words in the name of a column that has another loss, or its range."""


class Track:
    """Steps (n,), or keys that increase with the lines of a log, and values (n,) of one
    quantity.
    """

    def __init__(self, steps: FloatArray | None = None, values: FloatArray | None = None) -> None:
        self._blocks = [] if steps is None or values is None else [(steps, values)]
        self._steps: list[float] = []
        self._values: list[float] = []

    def add(self, step: float, value: float) -> None:
        """Add one value."""
        self._steps.append(step)
        self._values.append(value)

    def add_block(self, steps: FloatArray | IntArray, values: FloatArray) -> None:
        """Add values (n,) with their steps (n,)."""
        self._close()
        self._blocks.append((np.asarray(steps, np.float64), values))

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Steps and values, in the order in which they were added."""
        self._close()
        whole: tuple[FloatArray, FloatArray] = (
            np.concatenate([np.empty(0), *(steps for steps, _ in self._blocks)]),
            np.concatenate([np.empty(0), *(values for _, values in self._blocks)]),
        )
        self._blocks = [whole]
        return whole

    def _close(self) -> None:
        if self._steps:
            self._blocks.append(
                (np.array(self._steps, np.float64), np.array(self._values, np.float64))
            )
            self._steps, self._values = [], []

    def __len__(self) -> int:
        return sum(len(steps) for steps, _ in self._blocks) + len(self._steps)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        steps, values = self.arrays()
        return zip(map(int, steps.tolist()), values.tolist(), strict=True)


Series = Sequence[tuple[int, float]] | Track
"""The (step, value) of one quantity, in the order in which they were logged."""


class NoLossError(ReadError):
    """A file without a training loss, such as one of evaluations only."""


@frozen
class Columns:
    """What a reader took from a file: arrays (T,) by quantity, the columns' own names, the names of
    all columns that it has, and notes.

    `overwritten` counts rows that a later file of the same run replaced, `between` rows without a
    loss between the points of a loss that is logged less often (`parity.readers.absence`), `unread`
    lines that look like those that were read. In the rows of `absent` (T,) no loss is written; a
    file that grows may still have one there. `option` names a quantity's column on the command
    line. `planned_steps` is the length of the run that the file states, `config` what else it
    states, by the keys of a tracker's config.
    """

    values: Mapping[str, FloatArray]
    names: Mapping[str, str]
    found: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    overwritten: int = 0
    between: int = 0
    unread: int = 0
    absent: BoolArray | None = None
    option: str = OPTION
    planned_steps: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    def noted(self, *notes: str) -> "Columns":
        """The same columns with further notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    def taken(self) -> str:
        """One line: the columns of loss and step, and which others could have been the loss."""
        others = other_losses(self.found, self.names[LOSS])
        also = f" ({listed(others)} could also be the loss)" if others else ""
        return f"loss read from {self.names[LOSS]!r}{also}, step from {self.names[STEP]!r}"


def find_columns(
    names: Sequence[str], wanted: Mapping[str, str], source: str, option: str = OPTION
) -> dict[str, str]:
    """Map each quantity to its column: as `wanted` says, else by known names. `option` names a
    quantity's column on the command line.

    Raises ReadError where step or loss can't be found, a wanted quantity or column is unknown, or
    the loss's column is named as an accuracy or a perplexity.
    """
    columns: dict[str, str] = {}
    for quantity, column in wanted.items():
        if quantity not in QUANTITIES:
            raise ReadError(
                f"{source}: no quantity is called {quantity!r}; expected one of "
                f"{', '.join(QUANTITIES)} before the ="
            )
        if column not in names:
            raise ReadError(
                f"{source}: no column {column!r} for {quantity}; the columns are "
                f"{listed(names)}{did_you_mean(column, names)}"
            )
        columns[quantity] = column
    for quantity, aliases in KNOWN_NAMES.items():
        if (
            quantity not in columns
            and (guess := _first_known(names, aliases, source, option.format(quantity))) is not None
        ):
            columns[quantity] = guess
    for quantity, column in columns.items():
        if list(names).count(column) > 1:
            raise ReadError(
                f"{source}: {list(names).count(column)} columns are called {column!r}; expected "
                f"one for {quantity}; rename the others"
            )
    # MaxText's name for it, read already where the norm before is missing
    if columns.get("clipped_grad_norm") == columns.get("grad_norm"):
        columns.pop("clipped_grad_norm", None)
    for quantity, error in ((STEP, ReadError), (LOSS, NoLossError)):
        if quantity not in columns:
            raise error(
                f"{source}: no {quantity} column among {listed(names)}; name it with "
                f"{option.format(quantity)}"
            )
    if word := _NO_LOSS.search(columns[LOSS].lower()):
        what = {"a": "an accuracy", "p": "a perplexity", "b": "a loss in bits"}[word[1][0]]
        raise ReadError(
            f"{source}: column {columns[LOSS]!r} is named as {what}, not as a loss; expected the "
            f"cross-entropy in nats per token; name its column with {option.format(LOSS)}"
        )
    return columns


def other_losses(names: Iterable[str], taken: str) -> tuple[str, ...]:
    """Columns that could also be the training loss, in their order: known names of it, and others
    with "loss" in them.
    """
    known = set(KNOWN_NAMES[LOSS]) - {"value"}
    words = {name: _words(name) for name in names if name != taken}
    return tuple(
        name
        for name, own in words.items()
        if _plain(name) in known or ("loss" in own and not own & NOT_THE_LOSS)
    )


def arrays_of(series: Sequence[tuple[float, float]] | Track) -> tuple[FloatArray, FloatArray]:
    """Steps (n,) and values (n,) of a series."""
    if isinstance(series, Track):
        return series.arrays()
    return np.array([step for step, _ in series], dtype=np.float64), np.array(
        [value for _, value in series], dtype=np.float64
    )


def at_rows(steps: FloatArray, series: Iterable[tuple[float, float]] | Track) -> FloatArray:
    """A sparse series of (step, value), each at the last of (T,) steps that is not after it; NaN
    elsewhere.

    An evaluation belongs to the training step before it, whether or not that step's loss was
    logged.
    """
    values: FloatArray = np.full(len(steps), np.nan)
    order = np.argsort(steps, kind="stable")
    own, evaluated = arrays_of(series if isinstance(series, Track) else [*series])
    places = np.searchsorted(steps[order], own, side="right") - 1
    values[order[places[places >= 0]]] = evaluated[places >= 0]  # of one place, the last value
    return values


def step_number(value: float, where: str, option: str = OPTION) -> float:
    """A step as it is; raises ReadError where it is no whole number from 0 to 2^53."""
    if not (0 <= value <= MAX_STEP and value == int(value)):
        raise ReadError(
            f"{where}: step {value!r} is not a whole number from 0 to 2^53; name the column that "
            f"counts steps with {option.format(STEP)}"
        )
    return value


def plain_number(value: object) -> float | None:
    """A cell or a field as a number, None where it is not one; Python would read 1_0 as 10, which
    nobody who writes a table means.
    """
    if isinstance(value, bool) or value is None or (isinstance(value, str) and "_" in value):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # a whole number that no float holds
        if isinstance(value, int) and value > 0:
            return math.inf
        return -math.inf
    except (TypeError, ValueError):
        return None


def _first_known(
    names: Sequence[str], aliases: Iterable[str], source: str, option: str
) -> str | None:
    plain = [(name, _plain(name)) for name in names]
    for wanted in aliases:
        hits = [name for name, short in plain if short == wanted]
        if len(hits) > 1:
            raise ReadError(
                f"{source}: {len(hits)} columns could be {wanted!r}: {listed(hits)}; name one with "
                f"{option}"
            )
        if hits:
            return hits[0]
    return None


def is_held_out(column: str) -> bool:
    """Whether a column is named as a loss on held-out data, such as val_loss or eval/loss."""
    return bool(HELD_OUT & _words(column))


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", _plain(name)))


def _plain(name: str) -> str:
    """A name in lower case, without the run's name that exports put before it ("run -
    train/loss").
    """
    return name.strip().lower().rsplit(" - ", 1)[-1]


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """ "; did you mean 'X'?" where a column's name is close, else ""."""
    close = difflib.get_close_matches(word, names, n=1)
    if not close:
        return ""
    return f"; did you mean {close[0]!r}?"


_MOST_SHOWN = 60  # characters of a name


def listed(names: Sequence[str]) -> str:
    """The first 12 names in quotes, the first characters of each, and how many more there are."""
    return first_few(
        [repr(name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…") for name in names], 12
    )


# Does a series look like one run's loss in nats? What can be read in two ways is refused; what is
# only unusual is noted.
#
# Repeated steps with other losses are rows of several runs or ranks, or of a restart. A restart
# goes back once and then repeats many steps; interleaved rows go back all the time; a second run
# begins where the first one did. Up to 1 % of the rows may repeat in any way.

LARGEST_LOSS = 30.0  # nats: three times that of guessing among 22,000 tokens
REPEATED_SHARE, REPEATED_ROWS = 0.01, 2
RESTART_ROWS = 2  # a restart repeats more rows than that, on average


def check_values(loss: FloatArray, name: str, source: str, option: str = OPTION) -> tuple[str, ...]:
    """Notes on (T,) losses of the column `name`; raises ReadError where none can be nats per
    token.
    """
    if len(loss) and loss.min() >= 0.0 and loss.max() <= LARGEST_LOSS:
        return ()
    with np.errstate(invalid="ignore"):
        outside = (loss < 0.0) | (loss > LARGEST_LOSS)
        outside &= np.isfinite(loss)
    number = int(outside.sum())
    if not number:
        return ()
    finite = loss[np.isfinite(loss)]
    if number == len(finite):
        values = f"{finite.min():g} to {finite.max():g}"
        raise ReadError(
            f"{source}: every value in column {name!r} is outside 0 to 30 nats ({values}), so it "
            "is not a loss per token (a perplexity, or a sum?); expected the cross-entropy in "
            f"nats per token; name its column with {option.format(LOSS)}"
        )
    return (f"{number:,} of {count(len(loss), 'loss', 'losses')} are outside 0 to 30 nats",)


def check_unnamed(loss: FloatArray, name: str, source: str, option: str = OPTION) -> None:
    """Raise ReadError where a column without the name of a metric could as well be an accuracy:
    shares that rise.
    """
    finite = loss[np.isfinite(loss)]
    if len(finite) > 1 and finite.min() >= 0.0 and finite.max() <= 1.0 and finite[-1] > finite[0]:
        raise ReadError(
            f"{source}: column {name!r} rises from {finite[0]:g} to {finite[-1]:g} within 0 to 1, "
            "so it may be an accuracy; "
            f"if it is the loss, say so with {option.format(LOSS).replace('NAME', name)}"
        )


def check_repeats(steps: FloatArray | IntArray, loss: FloatArray, source: str) -> tuple[str, ...]:
    """Notes on (T,) steps in the order of the file; raises ReadError where rows of several runs or
    ranks may be mixed.
    """
    total = len(steps)
    if total < 2 or bool((steps[1:] > steps[:-1]).all()):
        return ()
    order = np.argsort(steps, kind="stable")
    same_step = np.diff(steps[order]) == 0
    left, right = loss[order][:-1], loss[order][1:]
    same_loss = (left == right) | (np.isnan(left) & np.isnan(right))
    other = int((same_step & ~same_loss).sum())
    copies = int((same_step & same_loss).sum())
    notes: tuple[str, ...] = ()
    if copies:
        notes = (f"{count(copies, 'row')} repeat a step with the same loss and count once",)
    if other <= max(REPEATED_SHARE * total, REPEATED_ROWS):
        return notes
    back = np.flatnonzero(steps[1:] <= steps[:-1]) + 1
    if other < RESTART_ROWS * len(back) or bool((steps[back] <= steps[0]).any()):
        first = int(steps[order][1:][same_step & ~same_loss][0])
        raise ReadError(
            f"{source}: {other:,} of {total:,} rows repeat a step with another loss (first step "
            f"{first:,}), so two runs or ranks may be mixed; expected one row per step; keep one "
            "run or rank in the file, or remove the rows of the earlier attempt"
        )
    return (
        *notes,
        (
            f"{count(other, 'row')} repeat a step after {count(len(back), 'restart')}; the later "
            "row counts"
        ),
    )


# Do two runs count the same thing? A step column may hold optimizer steps in one file and tokens or
# samples in another.
#
# Other unit: strides that differ 50-fold while hardly a step is common (a run that logs every 100th
# step has all its steps in common with one that logs each). In one file: a step that jumps to more
# than 50 times its number, with a stride 50 times as wide from there on.

RATIO = 50  # logging intervals of one unit seldom differ so much; tokens and steps do
MIN_COMMON_SHARE = 0.05
MIN_POINTS = 20  # on each side: some runs log their first few steps one by one


def other_unit(left: Curve, right: Curve) -> bool:
    """Whether two runs' steps can't be of one unit."""
    narrow, wide = sorted((left.completeness.stride or 0, right.completeness.stride or 0))
    if narrow == 0 or wide < RATIO * narrow:
        return False
    common = len(np.intersect1d(left.steps, right.steps, assume_unique=True))
    return common < MIN_COMMON_SHARE * min(len(left.steps), len(right.steps))


def unit_change(steps: IntArray) -> tuple[int, int, int, int] | None:
    """Last step and stride before, first step and stride after a change of unit in (n,) increasing
    steps; None if there is none.
    """
    if len(steps) < 2 * MIN_POINTS:
        return None
    at = int(np.argmax(steps[1:] / np.maximum(steps[:-1], RATIO))) + 1
    before, after = np.diff(steps[:at]), np.diff(steps[at:])
    if steps[at] < RATIO * max(steps[at - 1], RATIO) or min(len(before), len(after)) < MIN_POINTS:
        return None
    strides = int(np.median(before)), int(np.median(after))
    if strides[1] >= RATIO * strides[0]:
        return int(steps[at - 1]), strides[0], int(steps[at]), strides[1]
    return None


# What was read as the loss is a fact of the run, which the judge compares: its column or phrase,
# what that means, the base of its logarithm, and what the reader left out that may be a record.

SAME_BASE = 0.02  # relative, of the logarithm of a perplexity; printed ones have three digits
_CROSS_ENTROPY = frozenset(("ce", "xent", "nll", "crossentropy", "languagecrossentropy"))


def facts_of_loss(taken: Columns) -> dict[str, str]:
    """What was taken as the loss, by the keys of a run's context
    (`parity.judging.curves.curve.READ_FACTS`).
    """
    facts = {LOSS_NAME: taken.names[LOSS], LOSS_MEANING: meaning_of(taken.names[LOSS])}
    counts = {STEPS_WITHOUT_LOSS: taken.between, LINES_UNREAD: taken.unread}
    facts |= {key: str(number) for key, number in counts.items() if number}
    if (
        PERPLEXITY in taken.values
        and (base := base_of(taken.values[LOSS], taken.values[PERPLEXITY])) is not None
    ):
        facts[LOSS_BASE] = base
    return facts


def meaning_of(column: str) -> str:
    """What a loss is by the name of its column or phrase: held-out, total, language-model,
    cross-entropy, or training, of any terms.
    """
    words = _words(column)
    if words & HELD_OUT:
        return HELD_OUT_LOSS
    if "total" in words:
        return LOSS_OF_ALL_TERMS
    if "lm" in words:
        return LANGUAGE_MODEL_LOSS
    if words & _CROSS_ENTROPY or {"cross", "entropy"} <= words:
        return CROSS_ENTROPY
    return TRAINING_LOSS


def base_of(loss: FloatArray, perplexity: FloatArray) -> str | None:
    """The base of the logarithm in (T,) losses by their perplexities (T,): "e", "2", or None where
    they show neither.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(perplexity) / loss
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return None
    nats = float(np.median(ratio))  # in one unit of the loss
    return next(
        (
            base
            for base, size in (("e", 1.0), ("2", math.log(2.0)))
            if abs(nats / size - 1.0) < SAME_BASE
        ),
        None,
    )


# The curve of what a reader took from a file, with the checks that every file gets: plausible
# losses, repeated steps, one unit.

_UNNAMED = KNOWN_NAMES[LOSS][-1]  # a column of values without the name of a metric


def curve_of(taken: Columns, name: str, *, label: str, stated: bool) -> Curve:
    """The curve of one run's columns; `name` is what errors call the file, `stated` whether the
    user named the column of the loss.

    Raises ReadError for what cannot be one run's loss in nats.
    """
    steps, loss = taken.values[STEP], np.asarray(taken.values[LOSS], np.float64)
    notes = (
        taken.taken(),
        *taken.notes,
        *check_values(loss, taken.names[LOSS], name, taken.option),
    )
    if taken.names[LOSS].strip().lower() == _UNNAMED and not stated:
        check_unnamed(loss, taken.names[LOSS], name, taken.option)
    rest = {
        key: value for key, value in taken.values.items() if key not in (STEP, LOSS, PERPLEXITY)
    }
    context = {} if taken.planned_steps is None else {PLANNED_STEPS: str(taken.planned_steps)}
    context |= facts_of_loss(taken)
    try:
        curve = curve_from_arrays(
            steps,
            loss,
            columns=rest,
            label=label,
            notes=notes,
            overwritten=taken.overwritten,
            context=context,
        )
        if curve.completeness.duplicates > taken.overwritten:
            repeats = check_repeats(steps, loss, name)
        else:
            repeats = ()
    except CurveError as error:
        raise ReadError(f"{name}: {error}") from None
    if change := unit_change(curve.steps):
        last, stride, first, wider = change
        raise ReadError(
            f"{name}: after step {last:,} (strides of {stride:,}) comes {first:,} (strides of "
            f"{wider:,}), so the unit changes; expected one unit; name the column that counts "
            f"optimizer steps with {taken.option.format(STEP)}"
        )
    return dataclasses.replace(curve, notes=(*notes, *repeats))
