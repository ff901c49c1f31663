"""What a trainer printed: the step lines of Megatron-LM, NeMo, torchtitan, MaxText and DeepSpeed in its standard output.

Colour codes, carriage returns of a progress bar and a launcher's rank prefix ("[rank0]:", "0: ") are removed. Steps keep the trainer's
own numbers: Megatron-LM, torchtitan and DeepSpeed count from 1, MaxText and NeMo's global_step from 0. The printed digits are all there
is, 3 or 4 of them for most trainers, which the judge sees as rounding. NeMo's progress bar rounds steps above 999 too: refused.

Sources: Megatron-LM training.py (training_log, evaluate_and_print_results; a mean that is NaN is not printed, only counted), NeMo 2.0's
progress printer and 1.0's progress bar, torchtitan components/metrics.py, MaxText metric_logger.py, DeepSpeed runtime/pipe/engine.py.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from parity.readers.columns import LOSS, VALIDATION, Columns, from_series, step_number
from parity.readers.source import ReadError
from parity.wording import count

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))")
_NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?))(?=[\s,|\]]|$)"
_MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|.*\belapsed time per iteration \(ms\):")
_HEAD = 1 << 14  # characters that decide whether a text is a log; a longer preamble is found after no table could be read

Found = tuple[float | str, Mapping[str, float]]
"""The step and what was printed of it, by quantity; a step that can't be used is its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A trainer's lines: its name, what a step line contains, how it is read, and where the planned number of steps is printed."""

    trainer: str
    marks: re.Pattern[str]
    loss: str
    parse: Callable[[str], Found | None]
    planned: re.Pattern[str] | None = None


def _value(pattern: str, line: str) -> float | None:
    match = re.search(pattern + r"\s*" + _NUMBER, line, re.IGNORECASE)
    return float(match[1]) if match else None


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _megatron(line: str) -> Found | None:
    if match := re.search(r"validation loss at iteration (\d+)(?! on test)[^|]*\|.*?\blm loss value: " + _NUMBER, line, re.IGNORECASE):
        return float(match[1]), {VALIDATION: float(match[2])}
    match = _MEGATRON.search(line)
    if match is None:
        return None
    loss = _value(r"\| lm loss:", line)
    if loss is None and (_value(r"number of nan iterations:", line) or 0.0) > 0.0:
        loss = math.nan
    milliseconds = _value(r"elapsed time per iteration \(ms\):", line)
    return float(match[1]), _known(
        **{LOSS: loss},
        grad_norm=_value(r"\| grad norm:", line),
        learning_rate=_value(r"\| learning rate:", line),
        step_seconds=None if milliseconds is None else milliseconds / 1000.0,
    )


def _nemo(line: str) -> Found | None:
    loss, step = _value(r"\breduced_train_loss[:=]", line), re.search(r"\bglobal_step[:=]\s*([\d.]+(?:e[+-]?\d+)?)", line)
    if loss is None or step is None:
        return None
    values = _known(**{LOSS: loss}, learning_rate=_value(r"\blr[:=]", line), step_seconds=_value(r"train_step_timing in s[:=]", line))
    return (step[1] if "e" in step[1] else float(step[1])), values


def _torchtitan(line: str) -> Found | None:
    match = re.search(r"(\bvalidate\s+)?\bstep:\s*(\d+)\s+loss:\s*" + _NUMBER, line, re.IGNORECASE)
    if match is None:
        return None
    if match[1]:
        return float(match[2]), {VALIDATION: float(match[3])}
    return float(match[2]), _known(**{LOSS: float(match[3])}, grad_norm=_value(r"\bgrad_norm:", line))


def _maxtext(line: str) -> Found | None:
    match = re.search(r"\bcompleted step:\s*(\d+)\b", line)
    if match is None:
        return None
    loss = _value(r"\blm_loss:", line)
    loss = _value(r"\bloss:", line) if loss is None else loss
    return float(match[1]), _known(**{LOSS: loss}, step_seconds=_value(r"\bseconds:", line))


def _deepspeed(line: str) -> Found | None:
    match = re.search(r"\bsteps:\s*(\d+)\s+loss:\s*" + _NUMBER, line, re.IGNORECASE)
    if match is None:
        return None
    return float(match[1]), _known(**{LOSS: float(match[2])}, step_seconds=_value(r"\biter time \(s\):", line))


_FORMATS = (
    _Format(
        trainer="Megatron-LM", marks=_MEGATRON, loss="lm loss", parse=_megatron, planned=re.compile(r"\biteration\s+\d+\s*/\s*(\d+)\s*\|")
    ),
    _Format(trainer="NeMo", marks=re.compile(r"\breduced_train_loss[:=]"), loss="reduced_train_loss", parse=_nemo),
    _Format(
        trainer="torchtitan",
        marks=re.compile(r"\bstep:\s*\d+\s+loss:"),
        loss="loss",
        parse=_torchtitan,
        planned=re.compile(r"\btotal steps:?\s+(\d+)\b"),
    ),
    _Format(trainer="MaxText", marks=re.compile(r"\bcompleted step: \d+, "), loss="lm_loss", parse=_maxtext),
    _Format(trainer="DeepSpeed", marks=re.compile(r"\bsteps: \d+ loss: \S+ .*?iter time"), loss="loss", parse=_deepspeed),
)


def is_train_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has a trainer's step lines, in its first 16 Ki characters or (`whole`) anywhere."""
    plain = _COLOUR.sub("", text if whole else text[:_HEAD])
    return any(entry.marks.search(plain) for entry in _FORMATS)


@dataclass(slots=True)
class _Rank:
    """What one rank printed: (step, value) by quantity."""

    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)


def read_train_log(text: str, source: str, wanted: Mapping[str, str]) -> Columns:
    """Columns of a trainer's log; raises ReadError where two trainers wrote it, ranks disagree, or a step was printed rounded."""
    if wanted:
        raise ReadError(f"{source}: a trainer's log has no columns; --column is for tables; remove it")
    plain = _COLOUR.sub("", text)
    formats = [entry for entry in _FORMATS if entry.marks.search(plain)]
    if len(formats) != 1:
        names = " and ".join(entry.trainer for entry in formats)
        raise ReadError(f"{source}: has step lines of {names}; expected the log of one trainer; keep one trainer's lines")
    ranks: dict[str, _Rank] = {}
    without = 0
    for number, line in _lines(plain):
        if parsed := formats[0].parse(line):
            step, values = parsed
            if isinstance(step, str):
                raise ReadError(
                    f"{source}, line {number}: the progress bar prints the step rounded ({step}); expected whole steps; "
                    "read the run's TensorBoard folder instead"
                )
            match = _RANK.match(line)
            without += not values.keys() & {LOSS, VALIDATION}
            rank = ranks.setdefault((match[1] or match[2]) if match else "", _Rank())
            for quantity, value in values.items():
                rank.series.setdefault(quantity, []).append((int(step_number(step, f"{source}, line {number}")), value))
    own = {name: rank for name, rank in ranks.items() if LOSS in rank.series}
    if not own:
        raise ReadError(f"{source}: the step lines of {formats[0].trainer} have no loss; expected {formats[0].loss} in them")
    series = _agreed(own, source)
    evaluated = next((rank.series[VALIDATION] for rank in ranks.values() if VALIDATION in rank.series), None)
    columns = from_series(series | ({VALIDATION: evaluated} if evaluated else {}), {}, source)
    notes = [f"a log of {formats[0].trainer}: losses as printed"]
    if without:
        notes.append(f"{count(without, 'step line')} without a loss left out")
    planned = {int(number) for number in formats[0].planned.findall(plain)} if formats[0].planned else set()
    if len(planned) > 1:
        notes.append(f"the log states planned lengths of {' and '.join(f'{number:,}' for number in sorted(planned))} steps: none is taken")
    elif planned:
        notes.append(f"planned length as the log states it: {count(min(planned), 'step')}")
    name = formats[0].loss if f"{formats[0].loss}:" in plain or f"{formats[0].loss}=" in plain else LOSS
    return Columns(
        values=columns.values,
        names={**columns.names, LOSS: name},
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


def _agreed(ranks: Mapping[str, _Rank], source: str) -> dict[str, list[tuple[int, float]]]:
    """The series of the rank that printed most, where every other rank printed the same losses at the steps that it shares."""
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1].series[LOSS]))
    first, most = ordered[0]
    printed = _printed(most)
    for name, rank in ordered[1:]:
        if different := sorted(_printed(rank) - printed):
            raise ReadError(
                f"{source}: ranks {first or 'without a prefix'} and {name or 'without a prefix'} print different losses "
                f"(step {different[0][0]:,}); expected one rank, or equal losses; keep one rank's lines in the file"
            )
    return most.series


def _printed(rank: _Rank) -> set[tuple[int, str]]:
    """Steps with their losses as text, so that NaN equals NaN."""
    return {(step, repr(loss)) for step, loss in rank.series[LOSS]}
