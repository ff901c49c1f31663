"""The log of any other trainer: steps and losses by their names."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import (
    KNOWN_NAMES,
    LOSS,
    NUMBERED_LINES,
    OPTION,
    STEP,
    VALIDATION,
    find_columns,
)
from parity.readers.columns.number import step_number
from parity.readers.columns.planned_length import add_planned_length
from parity.readers.columns.series import columns_from_series
from parity.readers.errors import ColumnError
from parity.readers.files.growing import GrowingLog
from parity.readers.logs.lines.line import COLOUR, HEAD, numbered_lines
from parity.readers.logs.lines.printed_dicts import joined_dicts, open_dict
from parity.readers.logs.lines.ranks import agreed_series
from parity.readers.logs.printed_line import is_printed, printed_log, read_line

# trainers by a name that they alone print
_AVERAGED: Mapping[str, str] = {"nanochat": "lrm", "litgpt": "loss/train"}


def is_printed_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has lines with a step and a loss, in its first 16 Ki characters or (`whole`)
    anywhere.
    """
    begin = joined_dicts(text if whole else text[:HEAD])
    return is_printed(line for _, line in numbered_lines(begin))


class PrintedLog(GrowingLog):
    """A log of any other trainer. All rows may be revised by a line with the name of a loss that
    counts before the one that was read so far (`RunColumns.names`), by the first line with a step,
    and by the progress bar of a longer training; and other columns than the loss where ranks take
    turns.
    """

    def __init__(self, source: str, named_columns: Mapping[str, str]) -> None:
        super().__init__(source)
        self._named_columns = named_columns
        self._open = ""
        """The begin of a dict that is printed over several lines, whose end has not come."""
        self._log = printed_log(
            named_columns.values(),
            lambda step, _, number: step_number(step, f"{source}, line {number}"),
        )

    def _take(self, text: str) -> None:
        text = self._open + text
        end = open_dict(text)
        self._open = text[end:]
        self._log.take(joined_dicts(text[:end]))

    def _refuse_two_losses(self, taken: str) -> None:
        """Raises ColumnError where lines of their own have another loss, about as many as those of
        the one that would be read: one of the two may be held-out, and nothing says which.
        """
        others = self._log.beside(taken, KNOWN_NAMES[LOSS])
        if others:
            raise ColumnError(
                f"{self._source}: {taken!r} and {others[0]!r} are losses on lines of their own, of "
                f"which one may be held-out; name the training loss with {OPTION.format(LOSS)}",
                [taken, others[0]],
            )

    def _losses_of(self, last: str) -> Sequence[float]:
        text = joined_dicts(f"{self._open}{COLOUR.sub('', last)}\n")
        names = {self._named_columns.get(LOSS, LOSS), *KNOWN_NAMES[LOSS]}
        lines = [line for line in map(read_line, text.split("\n")) if line is not None]
        return [value for line in lines for name, value in line.values.items() if name in names]

    def columns(self) -> RunColumns:
        """The run so far; raises ReadError where no loss is in it, or ranks disagree."""
        source, named_columns, ranks = self._source, self._named_columns, self._log.series()
        self._log.refuse_two_losses(source)
        names = sorted({name for rank in ranks.values() for name in rank})
        taken = find_columns(
            [STEP, *names],
            {key: name for key, name in named_columns.items() if key != STEP},
            source,
        )
        if LOSS not in named_columns:
            self._refuse_two_losses(taken[LOSS])
        loss_ranks = {
            name: {LOSS: rank[taken[LOSS]], **rank}
            for name, rank in ranks.items()
            if rank.get(taken[LOSS])
        }
        series = agreed_series(loss_ranks, source)
        validation = taken.get(VALIDATION)
        if validation is not None:
            series = {
                **series,
                validation: next(
                    rank[validation] for rank in ranks.values() if rank.get(validation)
                ),
            }
        columns = columns_from_series(
            series, series.__getitem__, {LOSS: taken[LOSS], **named_columns}, source
        )
        if len(self._log.counters) == 1 and (counter := min(self._log.counters)):
            columns = dataclasses.replace(columns, names={**columns.names, STEP: counter})
        notes = ["a printed log: losses as printed"]
        if self._log.is_numbered:
            columns = dataclasses.replace(columns, names={**columns.names, STEP: NUMBERED_LINES})
            notes.append(
                "no step is printed: lines with a loss are numbered from 1, so a planned length "
                "counts lines"
            )
        if self._log.restarts:
            notes.append("steps restart with each epoch: continued")
            if not self._log.planned:
                notes.append("no number of epochs is printed, so no planned length is taken")
        if self._log.has_evaluations:
            notes.append("losses below a line such as '=== validation ===' are left out")
        notes += [
            f"{trainer} prints a running average of the loss"
            for trainer, name in _AVERAGED.items()
            if name in names
        ]
        columns = dataclasses.replace(
            columns,
            found=names,
            unread=self._log.alike.unread,
            said_not_finite=self._log.said_not_finite,
        )
        return add_planned_length(columns, self._log.planned).noted(*notes)
