"""What is written from code under one name: parts of pages, each between two marks, and whole
files.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from parity.frozen import frozen

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
Parts = Mapping[str, Callable[[], str]]


@frozen
class GeneratedTable:
    """A table by the name that the command takes, with what it writes. A `slow` one takes minutes,
    so no test makes it again.
    """

    name: str
    parts: Mapping[Path, Parts] = field(default_factory=dict)
    files: Mapping[Path, Callable[[], str]] = field(default_factory=dict)
    slow: bool = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """The pages and files that it writes."""
        return (*self.parts, *self.files)

    def today(self, path: Path) -> str:
        """What a page or file holds if it follows from today's code; ValueError if a page lacks the
        marks of a part.
        """
        if path in self.files:
            return self.files[path]()
        page = path.read_text(encoding="utf-8")
        for part, rows in self.parts[path].items():
            page = rewritten(page, rows(), self.marks(part))
        return page

    def marks(self, part: str) -> tuple[str, str]:
        """The comments around a part."""
        return (
            f"<!-- {part}: written by python -m tools.tables {self.name} -->",
            f"<!-- end of {part} -->",
        )


def rewritten(page: str, rows: str, marks: tuple[str, str]) -> str:
    """The page with the rows between two marks; ValueError if it does not have both."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not closing:
        raise ValueError(f"the page has no {begin!r} and {end!r}; expected both, in this order")
    return f"{before}{begin}\n{rows}\n{end}{after}"
