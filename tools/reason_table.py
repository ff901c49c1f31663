"""The table of reason codes in docs/method.md, made from the judge's own entries: `python -m tools.reason_table` writes it there."""

from pathlib import Path

from parity.judging.reasons import table

PAGE = Path(__file__).parents[1] / "docs" / "method.md"
BEGIN, END = "<!-- reason codes: written by tools/reason_table.py -->", "<!-- end of reason codes -->"


def reason_table() -> str:
    """The table as Markdown: a row for each code, in the order in which the judge looks at them; warnings last."""
    rows = ["| code | verdict | holds where | what to do |", "|---|---|---|---|"]
    for state, entry in table():
        rows.append(f"| `{entry.code}` | {state or 'a warning'} | {entry.means} | {entry.next_step or ''} |")
    return "\n".join(rows)


def rewritten(page: str) -> str:
    """The page with the table of today between its two marks; ValueError where it has no marks."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN!r} and {END!r}; expected both, in this order")
    return f"{before}{BEGIN}\n{reason_table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
