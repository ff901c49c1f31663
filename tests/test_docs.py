"""The pages of the documentation: short, each thing said once, in the navigation, and every link leads somewhere."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from parity.cli.terminal import EXIT_CODES
from parity.judging.policy import (
    FINISHED_FLOOR,
    FLOOR_PER_SLOPE,
    POINTS_TO_FAIL,
    POINTS_TO_PASS,
    STOCHASTIC_FACTOR,
    UNFINISHED_FLOOR,
    WINDOW_FRACTION,
)
from server.settings import CHECKOUT
from tools.site.hooks import EXITS

DOCS = CHECKOUT / "docs"
USER = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
WRITTEN = [*USER, *sorted(DOCS.glob("design/*.md"))]
PAGES = [*WRITTEN, CHECKOUT / "examples" / "curves" / "README.md"]
# Pages that tools/site/hooks.py adds to the site.
ADDED = {"cli.md", "python-api.md", "rest.md"}
# The most hand-written words of each page: outside the parts that a tool writes, with code blocks. To raise one, lower another.
MOST_WORDS: Mapping[str, int] = {
    "README.md": 620,
    "CONTRIBUTING.md": 270,
    "development.md": 470,
    # Tutorials
    "tutorial-files.md": 700,
    "tutorial-service.md": 800,
    # How-to
    "runs.md": 1500,
    "trainers.md": 900,
    "launchers.md": 1350,
    "maxtext.md": 700,
    "plan.md": 800,
    "gate.md": 1700,
    "jobs.md": 900,
    "explain.md": 1100,
    "many-runs.md": 1200,
    "public-verdicts.md": 500,
    "operate.md": 2500,
    # Reference
    "policy.md": 200,
    "job-file.md": 800,
    "recipes.md": 1400,
    "hardware.md": 790,
    "python.md": 400,
    "log-over-rest.md": 450,
    "settings.md": 80,
    "codes.md": 80,
    "rights.md": 80,
    "glossary.md": 600,
    # Explanation
    "method.md": 3600,
    "evidence.md": 1900,
    "attacks.md": 80,
    "arithmetic.md": 800,
    "architecture.md": 1300,
}
MOST_WORDS_OF_DESIGN, MOST_WORDS_TOGETHER = 6_500, 35_500  # tests/test_decisions.py limits each page of the design
MOST_COLUMNS, MOST_WORDS_TWICE = 79, 9

_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_GENERATED = re.compile(r"<!-- ([^:>]+): written by [^>]+-->.*?<!-- end of \1 -->", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def _hand_written(page: Path) -> str:
    """The page without the parts that a tool writes, and without comments."""
    return _COMMENT.sub("", _GENERATED.sub("", page.read_text(encoding="utf-8")))


def _words(page: Path) -> int:
    return sum(1 for word in _hand_written(page).split() if re.search(r"\w", word))


def _anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings, and those that the page gives."""
    titles = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(re.findall(r'<a id="([\w-]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://", "/docs/")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target.parent == DOCS and target.name in ADDED:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", USER, ids=lambda path: path.name)
def test_a_page_is_as_short_as_its_kind(page):
    assert page.name in MOST_WORDS, "give the page a limit"
    assert _words(page) <= MOST_WORDS[page.name]


def test_every_limit_is_of_a_page_and_all_pages_together_are_short():
    assert {page.name for page in USER} == MOST_WORDS.keys()
    design = sum(map(_words, DOCS.glob("design/*.md")))
    assert design <= MOST_WORDS_OF_DESIGN
    assert design + sum(map(_words, USER)) <= MOST_WORDS_TOGETHER


def test_no_two_pages_say_the_same():
    homes: dict[tuple[str, ...], str] = {}
    twice = set()
    for page in WRITTEN:
        words = re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "]", _BLOCK.sub(" ", _hand_written(page))).lower())
        for start in range(len(words) - MOST_WORDS_TWICE):
            row = tuple(words[start : start + MOST_WORDS_TWICE + 1])
            if homes.setdefault(row, page.name) != page.name:
                twice.add((homes[row], page.name, " ".join(row)))
    assert not twice


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_command_is_never_cut(page):
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > MOST_COLUMNS] == []


def test_every_page_is_in_the_navigation_once():
    nav = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    own = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    outside = {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", *ADDED}
    assert sorted(listed) == sorted(own | outside)


def test_every_exit_code_has_its_meaning_on_the_page_of_the_command_line():
    assert EXITS.keys() == EXIT_CODES.keys()


def test_the_glossary_defines_each_term_once():
    terms = re.findall(r"^### (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) == len({term.lower() for term in terms})
    expected = {"arm", "rerun", "short rerun", "run-to-run noise", "final window", "margin", "token tax", "attempt", "analysis", "policy"}
    assert expected <= {term.lower() for term in terms}


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("README.md", f"in the last {_percent(WINDOW_FRACTION)} of the plan at least {POINTS_TO_PASS} logged points"),
        ("CHANGELOG.md", f"A pass needs {POINTS_TO_PASS} common points in the window, a fail {POINTS_TO_FAIL}"),
        ("docs/plan.md", f"a pass needs {POINTS_TO_PASS} logged steps"),
        (
            "docs/plan.md",
            f"{_percent(FINISHED_FLOOR)} of the loss, {_percent(FINISHED_FLOOR * STOCHASTIC_FACTOR)} with stochastic rounding",
        ),
        ("docs/method.md", f"{_percent(FINISHED_FLOOR)} of `L` if the training was finished, else"),
        ("docs/method.md", f"`max({_percent(UNFINISHED_FLOOR)}, {_percent(FLOOR_PER_SLOPE)} |s|)`"),
    ],
)
def test_a_page_has_the_numbers_of_the_judge(page, words):
    assert words in " ".join((CHECKOUT / page).read_text(encoding="utf-8").split())


def test_nothing_is_installed_by_a_name_that_is_on_no_index():
    """Nobody holds `parity` on an index: whoever registered it would get these installs."""
    messages = [path for folder in ("parity", "server", "workers", "ci") for path in (CHECKOUT / folder).rglob("*.py")]
    for path in [*PAGES, CHECKOUT / "action.yml", *messages]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"pip install [^#]*\bparity(\[|['\"]?$|\s*[=<>])", line), f"{path.name}: {line}"
