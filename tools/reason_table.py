"""The reason codes in docs/codes.md, made from the judge's own entries: `python -m
tools.reason_table` writes them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from parity.judging.codes import ReasonCode
from parity.judging.precedence import table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "codes.md"
BEGIN, END = (
    "<!-- reason codes: written by tools/reason_table.py -->",
    "<!-- end of reason codes -->",
)


def reason_codes() -> str:
    """The codes in the order in which the judge looks at them, then each with its meaning and what
    to do, by name, then the warnings.
    """
    deciding = [(state, entry) for state, entry in table() if state]
    order = [
        f"{place}. [`{entry.code}`](#{entry.code.lower()}): {state}"
        for place, (state, entry) in enumerate(deciding, 1)
    ]
    warnings = [("a warning", entry) for state, entry in table() if not state]
    parts = [
        "\n".join(order),
        "## Codes that decide",
        *_described(deciding),
        "## Warnings",
        *_described(warnings),
    ]
    return "\n\n".join(parts)


def _described(entries: Iterable[tuple[str, ReasonCode]]) -> Iterator[str]:
    """One section a code, by name."""
    for state, entry in sorted(entries, key=lambda row: row[1].code):
        yield f"### {entry.code}"
        yield f"**{state[:1].upper()}{state[1:]}**: {entry.meaning}."
        of_job = f" *A server's job:* {entry.next_step_of_job}" if entry.next_step_of_job else ""
        yield f"*What to do:* {entry.what_to_do}{of_job}"


def rewritten(page: str, rows: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with the rows between two marks; ValueError if it does not have both."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not closing:
        raise ValueError(f"the page has no {begin!r} and {end!r}; expected both, in this order")
    return f"{before}{begin}\n{rows}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), reason_codes()), encoding="utf-8")
