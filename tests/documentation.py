"""The code blocks of the documentation: their language and text, the test that runs each, and the
output that the page shows below it.

A marker is a comment on the line above a fence: `<!-- run by tests/... -->` or `<!-- not run: the
reason -->`. A fence without a language is output; if its last line is `…`, the page leaves out the
rest.
"""

import re
from pathlib import Path
from typing import NamedTuple

from server.settings import CHECKOUT

PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    *sorted((CHECKOUT / "examples").glob("*/README.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
# Pages of which one test runs every block that has no marker.
WHOLE = {
    "docs/fallback.md": "tests/test_question_pages.py",
    "docs/frameworks.md": "tests/test_question_pages.py",
    "docs/gate.md": "tests/server/test_ci_page.py",
    "docs/golden.md": "tests/test_golden_page.py",
    "docs/gradient-format.md": "tests/test_question_pages.py",
    "docs/jobs.md": "tests/server/test_job_pages.py",
    "docs/launchers.md": "tests/workers/commands/test_page.py",
    "docs/plan.md": "tests/tools/tables/test_plan.py",
    "docs/public-verdicts.md": "tests/tools/test_public_verdicts.py",
    "docs/python.md": "tests/test_python_page.py",
    "docs/tutorial-files.md": "tests/test_tutorial_files.py",
    "docs/tutorial-service.md": "tests/workers/test_tour.py",
}
# README.md has no room for markers: its blocks by their first word but one.
README = {
    "python3 -m venv": "run by tests/tools/test_public_verdicts.py",
    "apt-get update": "not run: it is what CI runs, this test included",
}
_FENCE = re.compile(
    r"(?:^ *<!-- ((?:not run: |run by )[^\n]+?) -->\n+)?^( *)```(\w+)\n(.*?)^ "
    r"*```$(?:\n\n```\n(.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """One code block: its page, its first line's number, its language, its text, its marker, and
    the output that the page shows.
    """

    page: str
    line: int
    language: str
    text: str
    marker: str
    output: str

    @property
    def commands(self) -> list[str]:
        """Its lines, with those that go on in the next one joined."""
        return re.sub(r"&&\n\s*", "&& ", re.sub(r"\\\n\s*", "", self.text)).splitlines()

    def shows(self, printed: str) -> bool:
        """Whether this is what the page shows, wherever lines are broken."""
        shown, words = self.output.split(), printed.split()
        return shown[:-1] == words[: len(shown) - 1] if shown[-1:] == ["…"] else shown == words


def blocks(page: str) -> list[Block]:
    """Every code block of a page, by its path in the checkout."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        marker, indent, language, code, output = match.groups()
        code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        if page == "README.md":
            marker = next((how for start, how in README.items() if code.startswith(start)), None)
        elif marker is None and page in WHOLE:
            marker = f"run by {WHOLE[page]}"
        found.append(
            Block(
                page,
                text[: match.start(4)].count("\n") + 1,
                language,
                code,
                marker or "",
                output or "",
            )
        )
    return found


def run_by(page: str, test: str, language: str = "sh") -> list[Block]:
    """The blocks of a page in a language that this test runs."""
    own = f"run by {Path(test).resolve().relative_to(CHECKOUT).as_posix()}"
    return [block for block in blocks(page) if block.marker == own and block.language == language]
