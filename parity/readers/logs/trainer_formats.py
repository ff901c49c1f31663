"""How trainers print a step whose names are their own or stand elsewhere: one entry a trainer.

Steps keep the trainer's own numbers: Megatron-LM, torchtitan, DeepSpeed, Marian and trax count from
1, MaxText and NeMo's global_step from 0. NeMo's progress bar rounds steps above 999 too: refused.

Sources: Megatron-LM training.py (training_log, evaluate_and_print_results; a mean that is NaN is
not printed, only counted; BigScience's fork prints seconds), NeMo 2.0's progress printer and 1.0's
progress bar, torchtitan components/metrics.py, MaxText metric_logger.py, DeepSpeed
runtime/pipe/engine.py, Marian training/scheduler.h, trax supervised/training.py.
"""

import math
import re

from parity.frozen import frozen
from parity.readers.columns.names import KNOWN_NAMES, LOSS, STEP, VALIDATION, is_other_loss
from parity.readers.columns.number import MISSING
from parity.readers.logs.lines.line import LogLine, NumberPlace
from parity.readers.logs.printed_line import read_line

BESIDE = "beside "
"""Before the name of a loss that is not the trainer's own."""
_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))")
_NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?|none|null))(?=[\s,|\]]|$)"
_WHOLE_STEP = "[0-9]{1,15}"  # that every float holds
# A mark begins with its letters, which is searched fast; what stands before them is looked at then.
_MEGATRON = re.compile(
    r"iteration(?<!\witeration)[ \t]+(\d+)[ \t]*/[ \t]*\d+[ \t]*\|.*\belapsed time per iteration "
    r"\(m?s\):"
)


@frozen
class TrainerFormat:
    """A trainer's lines: its name, how its log is recognized, and where its numbers are.

    `step` finds the number of a step line. `values` are (quantity, what stands before its number,
    divisor to our unit), of which the first counts that is there. `evaluation` finds the step and
    the loss of a line of validation, `planned` the planned number of steps.
    """

    trainer: str
    marks: re.Pattern[str]
    loss: str
    step: re.Pattern[str]
    values: tuple[tuple[str, str, float], ...]
    evaluation: re.Pattern[str] | None = None
    planned: re.Pattern[str] | None = None
    beside_marks: str = ""  # what a text with its marks has, too
    needs_loss: bool = False  # whether a line without a loss is no step line
    # a line with a number above 0 behind this had so many losses of NaN: without another loss it
    # has no other, else its loss is a mean without them
    nan_count: str | None = None

    def is_in(self, text: str) -> bool:
        """Whether a text without colours has lines of the trainer."""
        return self.beside_marks in text and self.marks.search(text) is not None

    def read(self, line: str) -> LogLine | None:
        """The record of a line, with NaN for a step that is printed rounded; None for a line that
        has no step or no loss. What other losses stand in it is `BESIDE` the trainer's own.
        """
        numbers: dict[str, tuple[re.Match[str], float]] = {}
        evaluated = None if self.evaluation is None else self.evaluation.search(line)
        step = evaluated or self.step.search(line)
        if step is None:
            return _line_of_another_form(read_line(line))
        if evaluated is None:
            for quantity, before, divisor in self.values:
                if quantity not in numbers and (number := _number_behind(before, line)) is not None:
                    numbers[quantity] = number, divisor
        values = {
            quantity: _float(number[1]) / divisor for quantity, (number, divisor) in numbers.items()
        }
        places: dict[str, NumberPlace] | None = {
            STEP: NumberPlace(*step.span(1)),
            **{
                quantity: NumberPlace(*number.span(1), divisor)
                for quantity, (number, divisor) in numbers.items()
            },
        }
        if evaluated is not None:
            values[VALIDATION] = _float(evaluated[2])
        nans = None if self.nan_count is None else _number_behind(self.nan_count, line)
        has_nans = evaluated is None and nans is not None and float(nans[1]) > 0.0
        leaves_out_nan = has_nans and math.isfinite(values.get(LOSS, math.nan))
        if has_nans:
            values.setdefault(LOSS, math.nan)
        lacks_number = evaluated is None and LOSS not in values and self._names_loss(line)
        printed = read_line(line) if evaluated is None else None
        beside = read_line(_without(line, numbers.get(LOSS))) if printed is not None else None
        if beside is not None:
            names = _names_beside(beside)
            values |= {key: beside.values[name] for key, name in names.items()}
            if places is not None and beside.places is not None:
                places |= {key: beside.places[name] for key, name in names.items()}
            elif names:
                places = None
        if self.needs_loss and not lacks_number and not any(map(_is_loss, values)):
            return None
        rank = _RANK.match(line)
        has_shape = (
            LOSS in numbers
            and re.fullmatch(_WHOLE_STEP, step[1]) is not None
            and not leaves_out_nan
        )
        return LogLine(
            rank="" if rank is None else rank[rank.lastindex or 0],
            step=math.nan if "e" in step[1] else float(step[1]),
            planned=None,
            is_bar=False,
            values=values,
            has_loss=LOSS in values,
            places=places if has_shape else None,
            fixed=(
                *(() if rank is None else (rank.span(rank.lastindex or 0),)),
                *(() if nans is None else (nans.span(1),)),
                *(() if beside is None else beside.fixed),
            ),
            leaves_out_nan=leaves_out_nan,
            second_loss=None if printed is None else printed.second_loss,
            may_have_two_losses=printed is not None and printed.may_have_two_losses,
            lacks_number=lacks_number,
        )

    def _names_loss(self, line: str) -> bool:
        return any(
            re.search(before, line, re.IGNORECASE) is not None
            for quantity, before, _ in self.values
            if quantity == LOSS
        )


TRAINER_FORMATS = (
    TrainerFormat(
        trainer="Megatron-LM",
        marks=_MEGATRON,
        loss="lm loss",
        step=_MEGATRON,
        values=(
            (LOSS, r"\| lm[ _]loss:", 1.0),
            ("grad_norm", r"\| grad norm:", 1.0),
            ("learning_rate", r"\| learning rate:", 1.0),
            ("step_seconds", r"elapsed time per iteration \(ms\):", 1000.0),
            ("step_seconds", r"elapsed time per iteration \(s\):", 1.0),
        ),
        evaluation=re.compile(
            r"validation loss at iteration (\d+)(?! on test)[^|]*\|.*?\blm loss value: " + _NUMBER,
            re.IGNORECASE,
        ),
        planned=re.compile(r"\biteration[ \t]+\d+[ \t]*/[ \t]*(\d+)[ \t]*\|"),
        nan_count=r"number of nan iterations:",
    ),
    TrainerFormat(
        trainer="NeMo",
        marks=re.compile(r"reduced_train_loss(?<!\wreduced_train_loss)[:=]"),
        beside_marks="global_step",
        loss="reduced_train_loss",
        step=re.compile(r"\bglobal_step[:=]\s*([\d.]+(?:e[+-]?\d+)?)"),
        needs_loss=True,
        values=(
            (LOSS, r"\breduced_train_loss[:=]", 1.0),
            ("learning_rate", r"\blr[:=]", 1.0),
            ("step_seconds", r"train_step_timing in s[:=]", 1.0),
        ),
    ),
    TrainerFormat(
        trainer="torchtitan",
        # many trainers print "step: 1 loss: 2.5", with names of their own around it
        marks=re.compile(
            r"step:(?<!\wstep:)(?<![\w,|]\sstep:)[ \t]*\d+[ \t]+loss:"
            r"[^\n]*\bmemory:"
        ),
        loss="loss",
        step=re.compile(r"\bstep:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=(
            (LOSS, r"\bstep:\s*\d+\s+loss:", 1.0),
            ("grad_norm", r"\bgrad_norm:", 1.0),
            ("learning_rate", r"\blr:", 1.0),
        ),
        evaluation=re.compile(r"\bvalidate\s+step:\s*(\d+)\s+loss:\s*" + _NUMBER, re.IGNORECASE),
        planned=re.compile(r"total steps(?<!\wtotal steps):?[ \t]+(\d+)\b"),
    ),
    TrainerFormat(
        trainer="MaxText",
        marks=re.compile(r"completed step: (?<!\wcompleted step: )\d+, "),
        loss="lm_loss",
        step=re.compile(r"\bcompleted step:\s*(\d+)\b"),
        values=(
            (LOSS, r"\blm_loss:", 1.0),
            (LOSS, r"\bloss:", 1.0),
            ("step_seconds", r"\bseconds:", 1.0),
        ),
    ),
    TrainerFormat(
        trainer="DeepSpeed",
        marks=re.compile(r"steps: (?<!\wsteps: )\d+ loss: \S+ .*?iter time"),
        loss="loss",
        step=re.compile(r"\bsteps:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=(
            (LOSS, r"\bsteps:\s*\d+\s+loss:", 1.0),
            ("step_seconds", r"\biter time \(s\):", 1.0),
        ),
    ),
    TrainerFormat(
        trainer="Marian",
        marks=re.compile(r"Ep\. (?<!\wEp\. )[\d.]+ : Up\. \d+ : Sen\. [\d,]+ : Cost "),
        loss="Cost",
        step=re.compile(r"\bUp\. (\d+) : Sen\. "),
        needs_loss=True,
        values=(
            (LOSS, r" : Cost", 1.0),
            ("grad_norm", r" : gNorm", 1.0),
            ("learning_rate", r" : L\.r\.", 1.0),
        ),
        evaluation=re.compile(r"\[valid\] Ep\. [\d.]+ : Up\. (\d+) : ce-mean-words : " + _NUMBER),
    ),
    TrainerFormat(
        trainer="trax",
        marks=re.compile(r"Step +\d+: train +\w*(?:Loss|CrossEntropy)\w* \| "),
        loss="the training loss",
        step=re.compile(r"\bStep +(\d+): train +\w*(?:Loss|CrossEntropy)\w* \|"),
        needs_loss=True,
        values=((LOSS, r": train +\w*(?:Loss|CrossEntropy)\w* \|", 1.0),),
        evaluation=re.compile(r"\bStep +(\d+): eval +\w*(?:Loss|CrossEntropy)\w* \|\s*" + _NUMBER),
    ),
)


def _line_of_another_form(printed: LogLine | None) -> LogLine | None:
    """A line of training in another form than the trainer's, whose losses are beside its own."""
    if printed is None or not printed.has_loss or not printed.counter:
        return None
    names = _names_beside(printed)
    return LogLine(
        rank=printed.rank,
        step=printed.step,
        planned=None,
        is_bar=False,
        values={key: printed.values[name] for key, name in names.items()},
        has_loss=False,
    )


def _names_beside(printed: LogLine) -> dict[str, str]:
    """The names of the losses of a line, by what they are beside those of its trainer."""
    names: dict[str, str] = {}
    for name in printed.values:
        if name in KNOWN_NAMES[VALIDATION]:
            names.setdefault(VALIDATION, name)
        elif is_other_loss(name):
            names[f"{BESIDE}{name}"] = name
    return names


def _is_loss(name: str) -> bool:
    return name in (LOSS, VALIDATION) or name.startswith(BESIDE)


def _without(line: str, number: tuple[re.Match[str], float] | None) -> str:
    """A line with signs that belong to no name in place of a number."""
    if number is None:
        return line
    start, end = number[0].span(1)
    return f"{line[:start]}{';' * (end - start)}{line[end:]}"


def _float(text: str) -> float:
    return math.nan if text.lower() in MISSING else float(text)


def _number_behind(pattern: str, line: str) -> re.Match[str] | None:
    return re.search(pattern + r"\s*" + _NUMBER, line, re.IGNORECASE)
