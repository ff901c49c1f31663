"""What a comparison in Python returns: the verdict with its numbers, for a script, a terminal and a
notebook.
"""

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from parity.frozen import frozen
from parity.judging.case import Case
from parity.judging.decision import State
from parity.judging.document_types import VerdictDocument
from parity.judging.statements.statement_words import python_literal
from parity.judging.verdict.deciding_interval import recorded_interval
from parity.judging.verdict.path import with_path
from parity.report.figures.verdict_figure import verdict_figure
from parity.report.formats.terminal import plain_text
from parity.report.html.notebook import notebook_html
from parity.report.next_steps import called
from parity.report.picture.case_scene import case_scene
from parity.report.view import view_of
from parity.report.words import with_words, words
from parity.wording import minus

_LINE = 300  # characters of a line of the repr
_WIDTH = 80
_LITERAL = 200  # characters; a longer value is data


@frozen
class Call:
    """A call of `parity.compare`: what stands for the two runs, and the options that were given."""

    base: object
    candidate: object
    options: Mapping[str, object]

    def with_arguments(self, further: Mapping[str, object]) -> str:
        """The whole call as Python source, with further arguments; a value that has no literal is
        written as the name of its parameter.
        """
        options = {name: value for name, value in self.options.items() if value is not None}
        for name, value in further.items():
            known = options.get(name)
            if isinstance(known, Mapping) and isinstance(value, Mapping):
                options[name] = {**known, **value}
            else:
                options[name] = value
        given = [
            _source(self.base, "base"),
            _source(self.candidate, "candidate"),
            *(f"{name}={_source(value, name)}" for name, value in options.items()),
        ]
        return f"parity.compare({', '.join(given)})"


def _source(value: object, name: str) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        text = python_literal(value)
    except ValueError:
        return name
    return text if len(text) <= _LITERAL else name


class VerdictReason(NamedTuple):
    """A reason for the verdict: a code of docs/codes.md and its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """A candidate judged against its baseline. `case` is what the judge was given, `document` the
    verdict as `to_dict` returns it, `call` the call of `parity.compare` that made it.
    """

    case: Case
    document: VerdictDocument
    call: Call

    @property
    def verdict(self) -> State:
        """pass, fail or inconclusive."""
        return self.document["verdict"]

    @property
    def gap(self) -> float | None:
        """The candidate's final loss minus the baseline's, in nats; None where no window could be
        judged.
        """
        if not self.document["gap"]:
            return None
        return self.document["gap"]["mean"]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval that decided, in nats."""
        gap = self.document["gap"]
        if gap is None:
            return None
        interval = recorded_interval(self.document, gap)
        return interval["lo"], interval["hi"]

    @property
    def margin(self) -> float | None:
        """The largest acceptable gap in nats."""
        if not self.document["margin"]:
            return None
        return self.document["margin"]["nats"]

    @property
    def reasons(self) -> tuple[VerdictReason, ...]:
        """The reasons, the deciding one first."""
        return tuple(
            VerdictReason(reason["code"], reason["sentence"]) for reason in self.document["reasons"]
        )

    @property
    def next(self) -> tuple[str, ...]:
        """What to do next, the most useful first."""
        return tuple(self._placed["advice"]["sentences"])

    def to_dict(self) -> dict[str, Any]:
        """The verdict document (schema parity.verdict/1), as `parity compare --json` prints it."""
        return copy.deepcopy(dict(with_words(self.document)))

    def report(self, *, verbose: bool = False) -> str:
        """The report that `parity compare` prints (`verbose`: that of `-v`, with all numbers), as
        text of 80 columns.
        """
        return plain_text([self._placed], _WIDTH, verbose=verbose, more=".report(verbose=True)")

    def figure(self) -> Any:
        """The figure of `parity compare --figure`, as a matplotlib Figure. Raises
        FigureError without matplotlib.
        """
        return verdict_figure(self.document, self.case)

    def __repr__(self) -> str:
        """Lead, measure, interval, and what to do next, a line each."""
        sentences = words(view_of(self._placed))
        lines = [
            f"{sentences.chip}  {sentences.lead}",
            minus(sentences.measure),
            minus(sentences.interval),
            f"Next: {minus(sentences.next)}" if sentences.next else "",
        ]
        return "\n".join(_one_line(line) for line in lines if line)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the picture, reasons and numbers; nothing is loaded
        from elsewhere.
        """
        return self._html

    @cached_property
    def _html(self) -> str:
        (document,) = with_path(self.case.verdicts())
        placed = called(document, self.call.with_arguments)
        return notebook_html(placed, case_scene(self.case, [document]))

    @cached_property
    def _placed(self) -> VerdictDocument:
        """The document with its next steps as calls."""
        return called(self.document, self.call.with_arguments)

    def __bool__(self) -> bool:
        """Refused: each of three verdicts would count as true."""
        raise TypeError(
            'a comparison is neither true nor false; test .verdict == "pass", or use '
            "parity.assert_parity"
        )


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    if len(words) <= _LINE:
        return words
    return f"{words[: _LINE - 1]}…"
