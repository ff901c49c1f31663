"""The standard output of a trainer whose step lines have an entry in `trainer_formats`.

Colour codes, carriage returns of a progress bar and a launcher's rank prefix ("[rank0]:", "0: ")
are removed. The printed digits are all there is, 3 or 4 of them for most trainers, which the judge
sees as rounding.
"""

import dataclasses
import math
from collections.abc import Sequence

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import KNOWN_NAMES, LOSS, VALIDATION, is_other_loss
from parity.readers.columns.number import step_number
from parity.readers.columns.planned_length import add_planned_length
from parity.readers.columns.series import columns_from_series
from parity.readers.errors import ReadError
from parity.readers.files.growing import GrowingLog
from parity.readers.logs.lines.line import COLOUR, HEAD
from parity.readers.logs.lines.line_log import LineLog
from parity.readers.logs.lines.ranks import RankSeries, agreed_series
from parity.readers.logs.trainer_formats import BESIDE, TRAINER_FORMATS
from parity.wording import count


def is_train_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has a trainer's step lines, in its first 16 Ki characters or (`whole`)
    anywhere.
    """
    plain = COLOUR.sub("", text if whole else text[:HEAD])
    return any(entry.is_in(plain) for entry in TRAINER_FORMATS)


class TrainLog(GrowingLog):
    """A trainer's log. Its first step line says which trainer wrote it, and lines before that wait
    until then.

    Of several ranks the one that printed most is read, as all must print the same losses; so where
    ranks take turns, other columns than the loss may be revised.
    """

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._formats: set[int] = set()
        self._waiting: list[str] = []
        self._log: LineLog | None = None
        self._format = TRAINER_FORMATS[0]
        self._loss = LOSS
        self._planned: set[int] = set()
        self._refusal: ReadError | None = None

    def _take(self, text: str) -> None:
        self._waiting.append(text)
        plain = COLOUR.sub("", text).replace("\r", "\n")
        self._formats |= {
            at
            for at, entry in enumerate(TRAINER_FORMATS)
            if at not in self._formats and entry.is_in(plain)
        }
        if not self._formats:
            return
        if self._log is None:
            self._format = TRAINER_FORMATS[min(self._formats)]
            self._log = LineLog(self._format.read, _is_kept, self._check)
            plain = COLOUR.sub("", "".join(self._waiting)).replace("\r", "\n")
        self._log.take("".join(self._waiting))
        self._waiting = []
        if any(f"{self._format.loss}{mark}" in plain for mark in ":="):
            self._loss = self._format.loss
        if self._format.planned is not None:
            self._planned |= set(map(int, self._format.planned.findall(plain)))

    def _check(self, step: float, line: str, number: int) -> None:
        """Keep the refusal of the first line whose step cannot be one: that two trainers wrote the
        log is said first.
        """
        try:
            if math.isnan(step):
                shown = next(text for text in self._format.step.findall(line) if "e" in text)
                raise ReadError(
                    f"{self._source}, line {number}: the progress bar prints the step rounded "
                    f"({shown}); expected whole steps; read the run's TensorBoard folder instead"
                )
            step_number(step, f"{self._source}, line {number}")
        except ReadError as error:
            self._refusal = self._refusal or error

    def _losses_of(self, last: str) -> Sequence[float]:
        line = None if self._log is None else self._format.read(COLOUR.sub("", last))
        return [] if line is None or LOSS not in line.values else [line.values[LOSS]]

    def columns(self) -> RunColumns:
        """The run so far; raises ReadError where two trainers wrote it, ranks disagree, a step was
        printed rounded, or no loss is there.
        """
        if len(self._formats) != 1 or self._log is None:
            names = (
                " and ".join(TRAINER_FORMATS[at].trainer for at in sorted(self._formats))
                or "no trainer"
            )
            raise ReadError(
                f"{self._source}: has step lines of {names}; expected the log of one trainer; keep "
                "one trainer's lines"
            )
        if self._refusal is not None:
            raise self._refusal
        self._log.refuse_two_losses(self._source)
        ranks = self._log.series()
        loss_ranks = {name: rank for name, rank in ranks.items() if LOSS in rank}
        if not loss_ranks:
            raise ReadError(
                f"{self._source}: the step lines of {self._format.trainer} have no loss; expected "
                f"{self._format.loss} in them"
            )
        evaluated = next(
            ({VALIDATION: rank[VALIDATION]} for rank in ranks.values() if VALIDATION in rank), {}
        )
        series = self._named({**agreed_series(loss_ranks, self._source), **evaluated})
        columns = columns_from_series(series, series.__getitem__, {LOSS: self._loss}, self._source)
        notes = [f"a log of {self._format.trainer}: losses as printed"]
        if without := self._log.without(VALIDATION):
            notes.append(f"{count(without, 'step line')} without a loss left out")
        columns = dataclasses.replace(
            columns,
            found=[*filter(is_other_loss, columns.found)],
            unread=self._log.alike.unread,
            said_not_finite=self._log.said_not_finite,
        ).noted(*notes)
        return add_planned_length(columns, self._planned)

    def _named(self, series: RankSeries) -> RankSeries:
        """The series under the names that are printed, of losses."""
        named = {name: track for name, track in series.items() if name != LOSS}
        named = {name.removeprefix(BESIDE): track for name, track in named.items()}
        if self._loss in named:
            named[f"{self._loss}.1"] = named[self._loss]
        return {**named, self._loss: series[LOSS]}


def _is_kept(name: str) -> bool:
    return name in KNOWN_NAMES or name.startswith(BESIDE)
