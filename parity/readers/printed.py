"""What a trainer printed, found by a rule that knows no trainer: a number behind the name of a step, and one behind that of a loss.

    a name       up to five words directly before a number: `step`, `lm loss`, `'grad_norm'`; the numbers of a line, by name, are a record
    the step     behind step, iter, iteration, batch and their like, or a progress bar's "10/1000 ["
    the plan     "step 10/1000" states 1,000 steps; of a batch, in an epoch and of a bar it may be the length of one epoch, and is not taken
    the loss     the name that a table's column would be read by (`parity.readers.columns`); `--column loss=NAME` names another one
    evaluation   a loss whose name, or the name of whose step, has a word such as "val" in it

A line without a step belongs to the step before it, as in logs of several lines a step. Where no line of the file has a step, as with the
dicts that transformers prints, the lines with a loss are numbered from 1, and a note says so.

Lines are read in their order, so a file that grows can be read on. What can fail: a trainer that counts steps from 0 in each
epoch, or micro-batches; its steps repeat with other losses, which is refused (`parity.readers.columns.check_repeats`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from parity.readers.columns import HELD_OUT, KNOWN_NAMES, LOSS, NOT_THE_LOSS, STEP, Track, numbers_of
from parity.structure import frozen

LONGEST = 4096
"""Characters of a line that are looked at."""
Series = dict[str, Track]
"""What one rank printed, by name."""

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))", re.IGNORECASE)
# No possessive quantifiers: Python 3.11 before 3.11.5 gets them wrong. What could be matched in many ways is bounded instead.
_WORD = r"(?!(?:nan|inf(?:inity)?)\b)[a-z_(][\w./()-]*(?![\w./()-])"
_NUMBER = r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_ENDS = r"(?![\w%]|\.\d)"
_PAIR = re.compile(
    rf"(?<![\w./-])(?P<name>[a-z_][\w./-]*(?![\w./-])(?: {_WORD}){{0,4}})['\"]?\s{{0,20}}[:=]?\s{{0,20}}['\"\[(]?"
    rf"(?P<number>{_NUMBER}){_ENDS}(?:\s?/\s?(?P<planned>\d+(?:,\d{{3}})*))?",
    re.IGNORECASE,
)
_BAR = re.compile(r"(?<![\d/])(\d+)/(\d+)(?![\d/])\s*(?:\[|[━╸╺─█▉-▏])")

_STEPS = (
    *("global step", "global step/max steps", "optimizer step", "optim step", "update", "num updates", "training step", "train step"),
    *("train/global step", "trainer/global step", "step", "steps", "iteration", "iterations", "iter", "iters", "it", "batch", "s"),
)
"""Names of a step; of several on a line, the first here counts: an optimizer's step before a micro-batch."""
_OTHER_STEPS = frozenset(
    (
        *("per", "total", "max", "num", "number", "of", "warmup", "accumulation", "every", "between", "until", "skipped", "remaining"),
        *("save", "saving", "saved", "last", "best", "resume", "resuming", "from", "checkpoint", "in"),
    )
)
"""Words before the name of a step that is not the line's: "total steps 1000", "2.5 s per step"."""
_LOSSES = ("loss", "ce", "xent", "nll", "cross entropy", "crossentropy", "crossentropyloss", "languagecrossentropy", "trl")
_AVERAGES = frozenset(("avg", "average", "averaged", "ema", "mean", "running", "smooth", "smoothed", "moving"))
_EVALUATION = HELD_OUT | {"validate", "validating", "evaluate", "evaluating"}
_OTHER_LOSSES = NOT_THE_LOSS | _AVERAGES | {"best", "final", "last", "lowest", "total"}
_KNOWN = {name.lower().replace("_", " "): name for names in KNOWN_NAMES.values() for name in names if name != "value"}
_TRAINING = frozenset(KNOWN_NAMES[LOSS])


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(Line number, line without colours); a progress bar's states are lines of one number. A last line without its end may be cut and is
    left out.
    """
    lines = COLOUR.sub("", text).split("\n")
    for number, line in enumerate(lines[:-1], 1):
        for part in line.split("\r"):
            yield number, part
    for part in lines[-1].split("\r")[:-1]:
        yield len(lines), part


class Line(NamedTuple):
    """What one line says: its rank, its step (of a bar: `of_bar`) with the planned steps, and its other numbers by name."""

    rank: str
    step: float | None
    planned: int | None
    of_bar: bool
    values: Mapping[str, float]

    @property
    def has_loss(self) -> bool:
        """Whether it has a training loss under a name that is known."""
        return not _TRAINING.isdisjoint(self.values)


def read_line(line: str) -> Line | None:
    """The record of a printed line without colours; None where it has neither a step nor a number behind a name."""
    text = line[:LONGEST]
    match = _RANK.match(text)
    values: dict[str, float] = {}
    steps: dict[str, tuple[float, int | None]] = {}
    held_out = False
    for pair in _PAIR.finditer(text):
        name, is_step = _named(pair["name"])
        number = float(pair["number"].replace(",", ""))
        if is_step and number.is_integer():  # fairseq's `update` is a share of an epoch
            steps.setdefault(name, (number, int(pair["planned"].replace(",", "")) if pair["planned"] else None))
            held_out = held_out or bool(_EVALUATION & _words(pair["name"]))
        else:
            values.setdefault(name, number)
    first = min(steps, key=_STEPS.index, default=None)
    step, planned = steps[first] if first is not None else (None, None)
    bar = _BAR.search(text) if first is None else None
    if bar is not None:
        step, planned = float(bar[1]), int(bar[2])
    elif first == "batch" or "epoch" in _words(text):
        planned = None  # it may count the steps of one epoch
    if held_out:
        values = _evaluation(values, text)
    if step is None and not values:
        return None
    return Line(rank=(match[1] or match[2]) if match else "", step=step, planned=planned, of_bar=bar is not None, values=values)


def _evaluation(values: Mapping[str, float], text: str) -> dict[str, float]:
    """The loss of a line of an evaluation, under one name; none of a test at the end."""
    losses = [value for name, value in values.items() if "loss" in _words(name) and "ppl" not in _words(name)]
    return {"val_loss": losses[0]} if losses and "test" not in _words(text) else {}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", name.lower()))


def _named(raw: str) -> tuple[str, bool]:
    """A name as the columns of a table have it, and whether it is that of a step.

    Words before a known name are left out ("training started at step"), unless they make it another one ("best loss").
    """
    words = raw.split()
    while words[-1].lower() in ("is", "was", "of"):  # "the loss is 4.88"
        words.pop()
        if not words:
            return raw, False
    for at in range(len(words)):
        plain, before = " ".join(words[at:]).lower().replace("_", " "), _words(" ".join(words[:at]))
        if plain in _STEPS:
            return (raw, False) if before & _OTHER_STEPS else (plain, True)
        if plain in _KNOWN or plain == "loss train" or plain.rpartition("/")[2] in _LOSSES:
            known = _KNOWN.get(plain, "loss/train" if plain == "loss train" else LOSS)
            if known in _TRAINING and before & _EVALUATION:
                return "val_loss", False
            return (raw if before & _OTHER_LOSSES else known), False
    return raw, False


def is_printed(lines: Iterable[str]) -> bool:
    """Whether two or more lines have a training loss, on or behind a line with a step, or as a dict that Python printed."""
    number, has_step = 0, False
    for line in lines:
        if (record := read_line(line)) is not None:
            has_step = has_step or record.step is not None
            number += record.has_loss and (has_step or "{'" in line)
        if number == 2:
            return True
    return False


# A line like the one before, with other numbers, is read by one match of a pattern that was made from that line, its frame, and lines that
# follow each other in one go. What differs in more than its digits is read by the rule, so both give the same records.


_FRAMES = 4
_SIMPLE = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_CLOSING = ("", " ", "\t", "|", "]")
_PLAIN = r"[-+]?(?:\d+(?!\d|,\d\d\d)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
"""The numbers of a frame: those of the rule but for commas between thousands, NaN and infinity, whose lines the rule reads."""


@frozen(eq=False)
class Frame:
    """The pattern of a line with its end, and what its groups are: a rank first if `has_rank`, and then numbers by name, in their order,
    with the step at the place `step`.

    `planned` are the planned steps that the line states; another number there does not match. `divisors` are what numbers are divided by.
    """

    line: re.Pattern[str]
    has_rank: bool
    step: int
    planned: int | None
    names: Sequence[str]
    divisors: Mapping[str, float]


def _frame_of(line: str) -> Frame | None:
    """The frame of a line with a step and a loss; None for any other, and for steps with commas or that are not whole."""
    record = read_line(line) if len(line) <= LONGEST else None
    if record is None or record.of_bar or record.step is None or not record.has_loss:
        return None
    numbers: dict[str, tuple[int, int]] = {}
    steps: dict[str, tuple[int, int]] = {}
    names: list[tuple[int, int]] = []
    for pair in _PAIR.finditer(line):
        name, is_step = _named(pair["name"])
        if is_step and not float(pair["number"].replace(",", "")).is_integer():
            return None  # on another line it could be whole, and so the step
        (steps if is_step else numbers).setdefault(name, pair.span("number"))
        names += [pair.span("name"), pair.span("planned")]
    first, last = steps[min(steps, key=_STEPS.index)]
    if not line[first:last].isdigit():
        return None
    spans = {**{name: span for name, span in numbers.items() if name in record.values}, STEP: (first, last)}
    return frame_of_spans(line, spans, names, record.planned)


def frame_of_spans(
    line: str,
    spans: Mapping[str, tuple[int, int]],
    kept: Sequence[tuple[int, int]] = (),
    planned: int | None = None,
    divisors: Mapping[str, float] = MappingProxyType({}),
    ends: str = _ENDS,
) -> Frame:
    """The frame of a line whose step and other numbers have these spans, and whose digits may differ, except in the spans that are kept.

    `ends` is the pattern of what may follow a number, `divisors` what a number is divided by, by name.
    """
    order = sorted(spans.items(), key=lambda one: one[1])
    rank = _RANK.match(line)
    at, pattern = 0, ""
    if rank is not None:
        start, at = rank.span(1 if rank[1] else 2)
        pattern = re.escape(line[:start]) + r"(\d+)"
    for name, (start, end) in order:
        is_closed = line[end : end + 1] in _CLOSING  # then the rest of the pattern says what follows the number
        number = r"(\d{1,15})" if name == STEP else f"({_SIMPLE if is_closed else _PLAIN})"
        number += "" if is_closed else ends
        pattern, at = pattern + _any_digits(line, at, start, kept) + number, end
    place = [name for name, _ in order]
    pattern += _any_digits(line, at, len(line), kept)
    step = place.index(STEP)
    return Frame(
        line=re.compile(pattern + "\n"),
        has_rank=rank is not None,
        step=step,
        planned=planned,
        names=[*place[:step], *place[step + 1 :]],
        divisors=divisors,
    )


def _any_digits(line: str, start: int, end: int, kept: Sequence[tuple[int, int]]) -> str:
    """A part of a line as a pattern: itself, but any digits where it has digits, except in the spans that are kept."""
    parts = []
    for piece in re.finditer(r"\s*\d+|\D", line[start:end]):
        at = start + piece.end() - 1
        if not piece[0][-1].isdigit() or any(first <= at < last for first, last in kept):
            parts.append(re.escape(piece[0]))
        else:
            parts.append(r"[^\S\n]+\d+" if piece[0][0].isspace() else r"\d+")
    return "".join(parts)


@frozen(eq=False)
class Block:
    """Lines that follow each other and fit one frame: the texts of its groups (n, groups)."""

    frame: Frame
    rows: Sequence[Sequence[str]]

    def add_to(self, ranks: dict[str, Series], now: dict[str, float | None]) -> None:
        """Add the numbers of all names to the series of their ranks, and note the last step of each."""
        rows: dict[str, Sequence[Sequence[str]]] = {"": self.rows}
        if self.frame.has_rank:
            rows = {rank: [row for row in self.rows if row[0] == rank] for rank in dict.fromkeys(row[0] for row in self.rows)}
        places = [place for place in range(self.frame.has_rank, len(self.rows[0])) if place != self.frame.has_rank + self.frame.step]
        for rank, own in rows.items():
            steps, series = numbers_of(own, self.frame.has_rank + self.frame.step), ranks.setdefault(rank, {})
            for name, place in zip(self.frame.names, places, strict=True):
                series.setdefault(name, Track()).add_block(steps, own, place, self.frame.divisors.get(name, 1.0))
            now[rank] = float(steps[-1])


def blocks_of(text: str, read: Callable[[str], Line | None], frame_of: Callable[[str], Frame | None]) -> Iterator[tuple[int, Line | Block]]:
    """The records of a text without colours, with the number of the line; those of lines that are alike in blocks.

    `read` reads a line, and `frame_of` is its frame.
    """
    numbers: Sequence[int] = ()
    if "\r" in text:
        numbered = [*numbered_lines(text)]
        numbers, text = [number for number, _ in numbered], "".join(f"{line}\n" for _, line in numbered)
    frames: list[Frame] = []  # the latest first: lines of several kinds take turns
    at, number, end = 0, 1, text.rfind("\n") + 1
    while at < end:
        rows: list[Sequence[str]] = []
        for frame in frames:
            found = None
            scanner: Any = frame.line.scanner(text, at, end)  # type: ignore[attr-defined]
            for found in iter(scanner.match, None):
                rows.append(found.groups())
            if found is not None:
                at = found.end()
                yield numbers[number - 1] if numbers else number, Block(frame=frame, rows=rows)
                number += len(rows)
                break
        if rows:
            continue
        stop = text.index("\n", at)
        line, at = text[at:stop], stop + 1
        record = read(line)
        if record is not None:
            yield numbers[number - 1] if numbers else number, record
            if record.has_loss and (made := frame_of(line)) is not None:
                frames = [made, *frames[: _FRAMES - 1]]
        number += 1


@frozen(eq=False)
class Printed:
    """What was read: series by rank, the planned lengths that were printed, and whether the steps are numbers of lines."""

    ranks: Mapping[str, Series]
    planned: frozenset[int]
    is_numbered: bool


def read_printed(text: str, check: Callable[[float, int], int]) -> Printed:
    """The series of a text without colours; `check` makes a whole number of a step, or raises for the line."""
    found = [*blocks_of(text, read_line, _frame_of)]
    bars = [one.planned or 0 for _, one in found if isinstance(one, Line) and one.of_bar]
    longest = max(bars, default=0)  # the bar of an evaluation is shorter
    is_numbered = all(isinstance(one, Line) and one.step is None for _, one in found)
    ranks: dict[str, Series] = {}
    now: dict[str, float | None] = {}
    planned: set[int] = set()
    for number, record in found:
        if isinstance(record, Block):
            record.add_to(ranks, now)
            planned.update(() if record.frame.planned is None else (record.frame.planned,))
            continue
        if record.of_bar and record.planned != longest:
            continue
        if is_numbered:
            now[record.rank] = (now.get(record.rank) or 0.0) + record.has_loss
        elif record.step is not None:
            now[record.rank] = record.step
        if (step := now.get(record.rank)) is None:
            continue
        rank, at = ranks.setdefault(record.rank, {}), check(step, number)
        for name, value in record.values.items():
            rank.setdefault(name, Track()).add(at, value)
        if record.planned is not None and record.has_loss and not record.of_bar:  # a bar may be that of one epoch
            planned.add(record.planned)
    return Printed(ranks=ranks, planned=frozenset(planned), is_numbered=is_numbered)
