"""The pages of the documentation: every link leads somewhere, tables of commands and codes are complete, terms are defined once."""

import re
from typing import Any

import pytest
from typer.main import get_command

from parity.cli.application import app
from parity.cli.terminal import EXIT_CODES
from server.settings import CHECKOUT

DOCS = CHECKOUT / "docs"
EXAMPLES = [CHECKOUT / "examples" / "curves" / "README.md"]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *EXAMPLES, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("design/*.md"))]


def _anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://", "/docs/")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


def test_every_page_is_linked_from_the_readme():
    readme = PAGES[0].read_text(encoding="utf-8")
    assert not [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name}" not in readme]


def test_the_page_of_commands_has_them_all_and_their_exit_codes():
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    section = page.partition("## Commands")[2].partition("## Exit codes")[0]
    verbs = set(re.findall(r"`parity ([\w-]+)", section))
    group: Any = get_command(app)
    assert verbs == set(group.list_commands(None))
    assert sorted(map(int, re.findall(r"^\| (\d) \|", page, re.MULTILINE))) == sorted(EXIT_CODES.values())


def test_the_glossary_defines_each_term_once():
    terms = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) == len({term.lower() for term in terms})
    expected = {
        "arm",
        "replicate",
        "control",
        "run-to-run noise",
        "prior",
        "window",
        "margin",
        "token tax",
        "attempt",
        "epoch",
        "spool",
        "look",
    }
    assert expected <= {term.lower() for term in terms}
