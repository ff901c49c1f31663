"""What a comparison in Python returns: the verdict with its numbers, for a script, a terminal and a notebook."""

import copy
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rich.console import Console

from parity.judging.decision import State
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case
from parity.report.figures import verdict_figure
from parity.report.gap_bins import verdict_gap
from parity.report.headline import MARKS, answer
from parity.report.notebook import notebook_html
from parity.report.text import render_text

_LINE = 300  # characters of a line of the repr
_WIDTH = 80


class Reason(NamedTuple):
    """A reason for the verdict: a code of docs/method.md and its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """A candidate judged against its baseline. `case` is what the judge was given, `document` the verdict as `to_dict` returns it."""

    case: Case
    document: VerdictDocument

    @property
    def verdict(self) -> State:
        """pass, fail or inconclusive."""
        return self.document["verdict"]

    @property
    def gap(self) -> float | None:
        """The candidate's final loss minus the baseline's, in nats; None where no window could be judged."""
        return self.document["gap"]["mean"] if self.document["gap"] else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the gap's interval in nats, at the policy's confidence."""
        gap = self.document["gap"]
        return (gap["lo"], gap["hi"]) if gap else None

    @property
    def margin(self) -> float | None:
        """The largest acceptable gap in nats."""
        return self.document["margin"]["nats"] if self.document["margin"] else None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons, the deciding one first."""
        return tuple(Reason(reason["code"], reason["sentence"]) for reason in self.document["reasons"])

    @property
    def next(self) -> tuple[str, ...]:
        """What to do next, the most useful first."""
        return tuple(self.document["advice"]["sentences"])

    def to_dict(self) -> dict[str, Any]:
        """The verdict document (schema parity.verdict/1), as `parity compare --json` prints it."""
        return copy.deepcopy(dict(self.document))

    def report(self) -> str:
        """The report that `parity compare` prints, as text of 80 columns."""
        page = io.StringIO()
        Console(file=page, width=_WIDTH, color_system=None, highlight=False).print(render_text([self.document], _WIDTH))
        return page.getvalue()

    def figure(self) -> Any:
        """The one-page figure of `parity compare --figure`, as a matplotlib Figure. Raises FigureError without matplotlib."""
        return verdict_figure(self.document, self.case)

    def __repr__(self) -> str:
        """The answer, why, and what to do next: three lines at most."""
        lines = [f"{MARKS[self.verdict]} {answer(self.document)}", self.reasons[0].sentence, *(f"next: {step}" for step in self.next[:1])]
        return "\n".join(_one_line(line) for line in lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the gap chart, reasons and numbers; nothing is loaded from elsewhere."""
        return self._html

    @cached_property
    def _html(self) -> str:
        return notebook_html(self.document, verdict_gap(self.document, self.case))

    def __bool__(self) -> bool:
        """Refused: each of three verdicts would count as true."""
        raise TypeError('a comparison is neither true nor false; test .verdict == "pass", or use parity.assert_parity')


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LINE else f"{words[: _LINE - 1]}…"
