"""What a trainer printed: the step lines of Megatron-LM, NeMo, torchtitan, MaxText and DeepSpeed in its standard output.

Colour codes, carriage returns of a progress bar and a launcher's rank prefix ("[rank0]:", "0: ") are removed. Steps keep the trainer's
own numbers: Megatron-LM, torchtitan and DeepSpeed count from 1, MaxText and NeMo's global_step from 0. The printed digits are all there
is, 3 or 4 of them for most trainers, which the judge sees as rounding. NeMo's progress bar rounds steps above 999 too: refused.

Sources: Megatron-LM training.py (training_log, evaluate_and_print_results; a mean that is NaN is not printed, only counted), NeMo 2.0's
progress printer and 1.0's progress bar, torchtitan components/metrics.py, MaxText metric_logger.py, DeepSpeed runtime/pipe/engine.py.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parity.readers.columns import LOSS, VALIDATION, Columns, from_series, step_number
from parity.readers.source import ReadError
from parity.wording import count

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))")
_NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?))(?=[\s,|\]]|$)"
_HEAD = 1 << 14  # characters that decide whether a text is a log; a longer preamble is found after no table could be read

_Series = dict[str, list[tuple[int, float]]]
"""What one rank printed: (step, value) by quantity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A trainer's lines: its name, how its log is recognized, and where its numbers are.

    `step` finds the number of a step line. `values` are (quantity, what stands before its number, divisor to our unit), of which the first
    counts that is there. `evaluation` finds the step and the loss of a line of validation, `planned` the planned number of steps.
    """

    trainer: str
    marks: re.Pattern[str]
    loss: str
    step: re.Pattern[str]
    values: tuple[tuple[str, str, float], ...]
    evaluation: re.Pattern[str] | None = None
    planned: re.Pattern[str] | None = None
    needs_loss: bool = False  # whether a line without a loss is no step line
    nan_count: str | None = None  # a line without a loss, and a number above 0 behind this, had a loss of NaN

    def parse(self, line: str) -> tuple[str, Mapping[str, float]] | None:
        """The step as it is printed, and what was printed of it by quantity; None for any other line."""
        if self.evaluation is not None and (match := self.evaluation.search(line)):
            return match[1], {VALIDATION: float(match[2])}
        match = self.step.search(line)
        if match is None:
            return None
        values: dict[str, float] = {}
        for quantity, before, divisor in self.values:
            if quantity not in values and (number := _number_behind(before, line)) is not None:
                values[quantity] = number / divisor
        if self.nan_count is not None and (_number_behind(self.nan_count, line) or 0.0) > 0.0:
            values.setdefault(LOSS, math.nan)
        return None if self.needs_loss and LOSS not in values else (match[1], values)


def _number_behind(pattern: str, line: str) -> float | None:
    match = re.search(pattern + r"\s*" + _NUMBER, line, re.IGNORECASE)
    return float(match[1]) if match else None


_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|.*\belapsed time per iteration \(ms\):")
_FORMATS = (
    _Format(
        trainer="Megatron-LM",
        marks=_MEGATRON,
        loss="lm loss",
        step=_MEGATRON,
        values=(
            (LOSS, r"\| lm loss:", 1.0),
            ("grad_norm", r"\| grad norm:", 1.0),
            ("learning_rate", r"\| learning rate:", 1.0),
            ("step_seconds", r"elapsed time per iteration \(ms\):", 1000.0),
        ),
        evaluation=re.compile(r"validation loss at iteration (\d+)(?! on test)[^|]*\|.*?\blm loss value: " + _NUMBER, re.IGNORECASE),
        planned=re.compile(r"\biteration\s+\d+\s*/\s*(\d+)\s*\|"),
        nan_count=r"number of nan iterations:",
    ),
    _Format(
        trainer="NeMo",
        marks=re.compile(r"\breduced_train_loss[:=]"),
        loss="reduced_train_loss",
        step=re.compile(r"\bglobal_step[:=]\s*([\d.]+(?:e[+-]?\d+)?)"),
        needs_loss=True,
        values=(
            (LOSS, r"\breduced_train_loss[:=]", 1.0),
            ("learning_rate", r"\blr[:=]", 1.0),
            ("step_seconds", r"train_step_timing in s[:=]", 1.0),
        ),
    ),
    _Format(
        trainer="torchtitan",
        marks=re.compile(r"\bstep:\s*\d+\s+loss:"),
        loss="loss",
        step=re.compile(r"\bstep:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=((LOSS, r"\bstep:\s*\d+\s+loss:", 1.0), ("grad_norm", r"\bgrad_norm:", 1.0)),
        evaluation=re.compile(r"\bvalidate\s+step:\s*(\d+)\s+loss:\s*" + _NUMBER, re.IGNORECASE),
        planned=re.compile(r"\btotal steps:?\s+(\d+)\b"),
    ),
    _Format(
        trainer="MaxText",
        marks=re.compile(r"\bcompleted step: \d+, "),
        loss="lm_loss",
        step=re.compile(r"\bcompleted step:\s*(\d+)\b"),
        values=((LOSS, r"\blm_loss:", 1.0), (LOSS, r"\bloss:", 1.0), ("step_seconds", r"\bseconds:", 1.0)),
    ),
    _Format(
        trainer="DeepSpeed",
        marks=re.compile(r"\bsteps: \d+ loss: \S+ .*?iter time"),
        loss="loss",
        step=re.compile(r"\bsteps:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=((LOSS, r"\bsteps:\s*\d+\s+loss:", 1.0), ("step_seconds", r"\biter time \(s\):", 1.0)),
    ),
)


def is_train_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has a trainer's step lines, in its first 16 Ki characters or (`whole`) anywhere."""
    plain = _COLOUR.sub("", text if whole else text[:_HEAD])
    return any(entry.marks.search(plain) for entry in _FORMATS)


def read_train_log(text: str, source: str, wanted: Mapping[str, str]) -> Columns:
    """Columns of a trainer's log; raises ReadError where two trainers wrote it, ranks disagree, or a step was printed rounded."""
    if wanted:
        raise ReadError(f"{source}: a trainer's log has no columns; --column is for tables; remove it")
    plain = _COLOUR.sub("", text)
    formats = [entry for entry in _FORMATS if entry.marks.search(plain)]
    if len(formats) != 1:
        names = " and ".join(entry.trainer for entry in formats)
        raise ReadError(f"{source}: has step lines of {names}; expected the log of one trainer; keep one trainer's lines")
    ranks: dict[str, _Series] = {}
    without = 0
    for number, line in _lines(plain):
        if parsed := formats[0].parse(line):
            step, values = parsed
            if "e" in step:
                raise ReadError(
                    f"{source}, line {number}: the progress bar prints the step rounded ({step}); expected whole steps; "
                    "read the run's TensorBoard folder instead"
                )
            match = _RANK.match(line)
            without += not values.keys() & {LOSS, VALIDATION}
            rank = ranks.setdefault((match[1] or match[2]) if match else "", {})
            for quantity, value in values.items():
                rank.setdefault(quantity, []).append((int(step_number(float(step), f"{source}, line {number}")), value))
    own = {name: rank for name, rank in ranks.items() if LOSS in rank}
    if not own:
        raise ReadError(f"{source}: the step lines of {formats[0].trainer} have no loss; expected {formats[0].loss} in them")
    series = _agreed(own, source)
    evaluated = next(({VALIDATION: rank[VALIDATION]} for rank in ranks.values() if VALIDATION in rank), {})
    series |= evaluated
    columns = from_series(series, series.__getitem__, {}, source)
    notes = [f"a log of {formats[0].trainer}: losses as printed"]
    if without:
        notes.append(f"{count(without, 'step line')} without a loss left out")
    planned = {int(number) for number in formats[0].planned.findall(plain)} if formats[0].planned else set()
    if len(planned) > 1:
        notes.append(f"the log states planned lengths of {' and '.join(f'{number:,}' for number in sorted(planned))} steps: none is taken")
    elif planned:
        notes.append(f"planned length as the log states it: {count(min(planned), 'step')}")
    name = formats[0].loss if f"{formats[0].loss}:" in plain or f"{formats[0].loss}=" in plain else LOSS
    return dataclasses.replace(
        columns,
        names={**columns.names, LOSS: name},
        found=(),
        notes=tuple(notes),
        planned_steps=min(planned) if len(planned) == 1 and min(planned) > 0 else None,
    )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(Line number, line); a progress bar's states are lines of one number. A last line without its end may be cut and is left out."""
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1], 1):
        for part in line.split("\r"):
            yield number, part
    for part in lines[-1].split("\r")[:-1]:
        yield len(lines), part


def _agreed(ranks: Mapping[str, _Series], source: str) -> _Series:
    """The series of the rank that printed most, where every other rank printed the same losses at the steps that it shares."""
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1][LOSS]))
    first, most = ordered[0]
    printed = _printed(most)
    for name, rank in ordered[1:]:
        if different := sorted(_printed(rank) - printed):
            raise ReadError(
                f"{source}: ranks {first or 'without a prefix'} and {name or 'without a prefix'} print different losses "
                f"(step {different[0][0]:,}); expected one rank, or equal losses; keep one rank's lines in the file"
            )
    return most


def _printed(rank: _Series) -> set[tuple[int, str]]:
    """Steps with their losses as text, so that NaN equals NaN."""
    return {(step, repr(loss)) for step, loss in rank[LOSS]}
