"""Verdicts for a terminal, in colour or as plain text."""

import io
import math
import re
import shlex
import textwrap
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.judging.case import AnyDocument
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.answer import answer_words
from parity.report.candidates import safest_first, tally
from parity.report.details import Detail, details, evaluation_details
from parity.report.evaluation_tables import Cells, evaluation_tables
from parity.report.number_words import mean_words
from parity.report.picture.forest import axis_of, estimate_of
from parity.report.sign_off_words import NOT_A_PASS, Accepted, accepted_words
from parity.report.summary import SUMMARY, summary_row
from parity.report.view import EvaluationView, View, views_of
from parity.report.words import MARKS, words
from parity.wording import cut, minus, signed

MOST_LINES = 15  # of one candidate
STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}
_LABEL = 18  # columns of the strip's names
# columns of a candidate's name at most, and of the numbers behind its interval
_NAME, _NUMBERS = 22, 30
_NEXT_LINES = 4
_SAY_NOTHING = ("Not recorded", "Unknown: no ")  # how facts begin that may go for want of lines
_COMMAND = re.compile(r"(?P<question>.*) Then (?:type|call) `(?P<command>[^`]+)`: (?P<promise>.*)")


def render_text(
    documents: Sequence[AnyDocument],
    console_width: int = 80,
    accepted: Accepted | None = None,
    *,
    verbose: bool = False,
    more: str = "-v",
) -> RenderableType:
    """The answer, the intervals against the margin and the strip, in at most 15 lines for one
    candidate; for a rich console.

    `verbose` adds the numbers, reasons and advice of each candidate; `more` is what asks for them.
    A sign-off in `accepted` follows the answer.
    """
    views = views_of(documents)
    ordered = safest_first(views)
    several = len(ordered) > 1
    parts = _answer_parts(ordered, accepted)
    bars = [Text(line) for line in interval_bars(ordered, console_width)]
    if bars:
        parts += [Text(""), *bars]
    parts.append(Text(""))
    if several:
        said = answer_words(ordered)
        parts.append(_next_line("Next", said.next, console_width, more))
        if said.next_open:
            parts.append(_next_line("Open", said.next_open, console_width, more))
    else:
        parts += _strip_lines(ordered[0], console_width, more)
    if not several and not verbose:
        parts = _fitted(parts, console_width)
    return Group(*parts, *(_numbers(views, console_width) if verbose else ()))


def plain_text(
    documents: Sequence[AnyDocument],
    width: int = 80,
    accepted: Accepted | None = None,
    *,
    verbose: bool = False,
    more: str = "-v",
) -> str:
    """`render_text` without colour, for a file or a pipe: no line ends in spaces."""
    page = io.StringIO()
    console = Console(file=page, width=width, color_system=None, highlight=False)
    text = render_text(documents, width, accepted, verbose=verbose, more=more)
    console.print(text, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def answer_parts(
    documents: Sequence[AnyDocument], accepted: Accepted | None = None
) -> list[RenderableType]:
    """The answer, a line each: state and lead, measure, interval, how many candidates have which
    state, and sign-offs that hold.
    """
    return _answer_parts(safest_first(views_of(documents)), accepted)


def _answer_parts(ordered: Sequence[View], accepted: Accepted | None) -> list[RenderableType]:
    said = answer_words(ordered, accepted=accepted)
    parts: list[RenderableType] = [
        Text.assemble((said.chip, STYLES[said.verdict]), f"  {said.lead}")
    ]
    parts += [Text(minus(line)) for line in (said.measure, said.interval) if line]
    if len(ordered) > 1:
        counted = (
            (f"{MARKS[state]} {number} {state}  ", STYLES[state])
            for state, number in tally(ordered)
        )
        parts.append(Text.assemble(*counted))
    return parts + [
        _accepted_text(accepted[view.candidate.name])
        for view in ordered
        if accepted and view.candidate.name in accepted
    ]


def _accepted_text(sign_off: SignOffDocument) -> Text:
    return Text.assemble((NOT_A_PASS, "bold"), f": {accepted_words(sign_off)}")


def interval_bars(views: Sequence[View], width: int = 80) -> list[str]:
    """The interval of each candidate on one axis with zero and the margin, under a heading; nothing
    where none has an interval.
    """
    estimates = [estimate_of(view) for view in views]
    axis = axis_of([estimate for estimate in estimates if estimate])
    if axis is None:
        return []
    names = [cut(" ".join(view.candidate.title.split()), _NAME) for view in views]
    left = max(10, *map(len, names)) + 1
    columns = max(20, width - left - _NUMBERS)

    def column(value: float) -> int:
        return round(
            (columns - 1) * min(1.0, max(0.0, (value - axis.low) / (axis.high - axis.low)))
        )

    margin = None if axis.margin is None else column(axis.margin)
    head = [" "] * columns
    head[column(0.0)] = "0"
    line = "".join(head)
    if margin is not None:
        line = f"{line[: max(margin - 2, column(0.0) + 2)]}margin"
    lines = [(" " * left + line).rstrip()]
    for view, name, estimate in zip(views, names, estimates, strict=True):
        cells = [" "] * columns
        cells[column(0.0)] = "│"
        if margin is not None:
            cells[margin] = "┊"
        if estimate:
            low, middle, high = column(estimate.lo), column(estimate.mean), column(estimate.hi)
            cells[low : high + 1] = "─" * (high + 1 - low)
            cells[low] = "├" if estimate.lo >= axis.low else "◂"
            cells[high] = "┤" if estimate.hi <= axis.high else "▸"
            cells[middle] = MARKS[view.state]
        if len(views) == 1:
            behind = _gap_text(view)
        else:
            behind = f"{minus(mean_words(view)):>9}  {view.state}"
        lines.append(f"{name:<{left}}{''.join(cells)} {behind}".rstrip())
    return lines


def _gap_text(view: View) -> str:
    """The gap in nats, and as a share of the loss."""
    gap = view.gap
    if gap is None:
        return "no gap"
    share = ""
    if gap.rel is not None and math.isfinite(gap.rel):
        share = f"  {signed(100.0 * gap.rel, 2)} %"
    return minus(f"{mean_words(view)} nats{share}")


def _strip_lines(view: View, width: int, more: str) -> list[RenderableType]:
    """The strip, a line each, what to do next, and the reason codes."""
    said = words(view)
    lines: list[RenderableType] = [
        _row(fact.name, shortened_end(minus(str(fact)), width - _LABEL), width)
        for fact in said.strip
    ]
    numbers = f"(all numbers: {more})"
    return [
        *lines,
        *([_next_line("Next", said.next, width, more)] if said.next else []),
        _row("Reasons", f"{_codes(view, width - _LABEL - len(numbers) - 2)}  {numbers}", width),
    ]


def _codes(view: View, most: int) -> str:
    """As many codes as fit into `most` characters, and how many more there are."""
    for shown in range(len(view.codes), 1, -1):
        left = len(view.codes) - shown
        words = ", ".join(view.codes[:shown]) + (f", {left} more" if left else "")
        if len(words) <= most:
            return words
    left = len(view.codes) - 1
    return f"{view.codes[0]}, {left} more" if left else view.codes[0]


def _next_line(name: str, step: str, width: int, more: str) -> Text:
    """What to do next, whole: a command on lines of its own, else the first sentence."""
    offered = _COMMAND.fullmatch(step)
    if offered is None:
        first = re.split(r"(?<=[.]) (?=[A-Z])", step, maxsplit=1)[0]
        return _row(name, minus(first), width, most=None) if first else Text("")
    command = command_lines(offered["command"], width)
    promise = f"{offered['question']} Then {offered['promise'].rstrip('.')}:"
    if len(textwrap.wrap(promise, width - _LABEL)) + len(command) > _NEXT_LINES:
        promise = f"If a yes answers its question ({more}):"
    line = Text.assemble(
        _row(name, minus(promise), width, most=None), "".join(f"\n{part}" for part in command)
    )
    line.no_wrap, line.overflow = True, "ignore"  # what is copied has no line breaks but its own
    return line


def command_lines(command: str, width: int) -> list[str]:
    """A command in lines that a shell takes as one, or a call of Python in lines of one call. What
    is longer than a line stays whole.
    """
    if command.startswith("parity "):
        parts, glue, end = _options(command), " ", " \\"
    else:
        parts, glue, end = command.split(", "), ", ", ","
    lines, line = [], f"  {parts[0]}"
    for part in parts[1:]:
        if len(line) + len(glue) + len(part) + len(end) > width:
            lines.append(f"{line}{end}")
            line = f"    {part}"
        else:
            line = f"{line}{glue}{part}"
    return [*lines, line]


def _options(command: str) -> list[str]:
    """The words of a command, each option with its value, quoted for a shell."""
    groups: list[list[str]] = []
    for word in shlex.split(command):
        if not groups or word.startswith("-") or not groups[-1][0].startswith("-"):
            groups.append([word])
        else:
            groups[-1].append(word)
    return [shlex.join(group) for group in groups]


def _row(name: str, line: str, width: int, most: int | None = 2) -> Text:
    """A fact with its name before it, on `most` lines (None: as many as it takes); all but the
    first are indented.
    """
    lines = textwrap.wrap(
        line, width - _LABEL, break_on_hyphens=False, max_lines=most, placeholder="…"
    ) or [""]
    return Text.assemble((f"{name:<{_LABEL}}", "dim"), f"\n{' ' * _LABEL}".join(lines))


def shortened_end(text: str, most: int) -> str:
    """Truncate to `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rstrip()}…"


def _fitted(parts: Sequence[RenderableType], width: int) -> list[RenderableType]:
    """The parts in 15 lines: blank lines go first, then facts that say nothing."""
    console = Console(width=width, file=io.StringIO(), color_system=None)

    def height(shown: Sequence[RenderableType]) -> int:
        return sum(len(console.render_lines(part, pad=False)) for part in shown)

    fitted = list(parts)
    texts = [part for part in parts if isinstance(part, Text)]
    blank = [part for part in texts if not part.plain]
    empty = [part for part in texts if part.plain[_LABEL:].startswith(_SAY_NOTHING)]
    for part in (*blank, *empty):
        if height(fitted) <= MOST_LINES:
            break
        fitted = [other for other in fitted if other is not part]
    return fitted


def _numbers(views: Sequence[View], width: int) -> list[RenderableType]:
    """A table of all candidates, then reasons, facts and advice of each; of evaluations the tables
    of each.
    """
    evaluations = [view for view in views if isinstance(view, EvaluationView)]
    if evaluations:
        return [part for view in evaluations for part in _evaluation_numbers(view)]
    parts: list[RenderableType] = [Text(""), _summary_table(views, width), Text("")]
    for view, lines in zip(views, details(views), strict=True):
        parts += [Text(view.pair, style="bold"), *map(detail_text, lines), Text("")]
    return parts


def _summary_table(views: Sequence[View], width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=None, header_style="dim", padding=(0, 2, 0, 0))
    rows = [tuple(map(minus, summary_row(view))) for view in views]
    for name, *cells in zip(SUMMARY, *rows, strict=True):
        # only a name may be folded
        if name != "candidate" and width >= 80:
            whole = max(len(name), *(len(cell) for cell in cells))
        else:
            whole = None
        left = name in ("candidate", "verdict")
        table.add_column(
            name,
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=whole is not None,
            min_width=whole,
        )
    for row in rows:
        table.add_row(*row)
    return table


def detail_text(line: Detail) -> Padding:
    """A reason, a fact or an advice, indented."""
    head = ((line.name, "bold"), "  ") if line.is_code else ((f"{line.name}: ", "dim"),)
    return Padding(Text.assemble(*head, minus(line.words)), (0, 0, 0, 2))


def _evaluation_numbers(view: EvaluationView) -> list[RenderableType]:
    """What was compared, the arms side by side, then reasons and advice."""
    parts: list[RenderableType] = [Text("")]
    for rows in evaluation_tables(view):
        parts += [_table(rows), Text("")]
    reasons, notes, advice = evaluation_details(view)
    return [*parts, *map(detail_text, [*notes, *reasons, *advice])]


def _table(rows: Sequence[Cells]) -> Table:
    """Names on the left, a last column of words on the left too where there are four, everything
    else on the right.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(rows[0]):
        left = number in (0, 3)
        table.add_column(
            Text(heading),
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=number in (1, 2) and len(rows[0]) > 3,
        )
    for row in rows[1:]:
        table.add_row(*(Text(minus(cell)) for cell in row))
    return table
