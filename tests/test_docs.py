"""The pages of the documentation: in the navigation, with the numbers of the code, and every link
leads somewhere.
"""

import re

import pytest

from parity.gate.exit_codes import EXIT_CODES
from parity.judging.policy import (
    FINISHED_NOISE,
    NOISE_PER_SLOPE,
    POINTS_TO_FAIL,
    POINTS_TO_PASS,
    STOCHASTIC_FACTOR,
    UNFINISHED_NOISE,
    WINDOW_FRACTION,
)
from server.settings import CHECKOUT
from tools.site.hooks import EXITS

DOCS = CHECKOUT / "docs"
PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "examples/curves/README.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("design/*.md")),
]
# Pages that tools/site/hooks.py adds to the site.
ADDED = {"cli.md", "python-api.md", "rest.md"}
MOST_COLUMNS = 79

_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def _anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings, and those that the page gives."""
    titles = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(
        re.findall(r'<a id="([\w-]+)"', text)
    )


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
        if not target.exists() or (
            anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_command_is_never_cut(page):
    blocks = re.findall(
        r"^ *```sh\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert [
        line for block in blocks for line in block.splitlines() if len(line) > MOST_COLUMNS
    ] == []


def test_every_page_is_in_the_navigation_once():
    nav = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    own = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    outside = {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", *ADDED}
    assert sorted(listed) == sorted(own | outside)


def test_every_exit_code_has_its_meaning_on_the_page_of_the_command_line():
    assert EXITS.keys() == EXIT_CODES.keys()


def test_the_glossary_defines_each_term_once():
    terms = re.findall(
        r"^### (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(terms) == len({term.lower() for term in terms})
    expected = {
        "arm",
        "rerun",
        "short rerun",
        "run-to-run noise",
        "final window",
        "margin",
        "token tax",
        "attempt",
        "analysis",
        "policy",
    }
    assert expected <= {term.lower() for term in terms}


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (
            "README.md",
            (
                f"in the last {_percent(WINDOW_FRACTION)} of the plan at least {POINTS_TO_PASS} "
                "logged points"
            ),
        ),
        (
            "CHANGELOG.md",
            f"A pass needs {POINTS_TO_PASS} common points in the window, a fail {POINTS_TO_FAIL}",
        ),
        ("docs/plan.md", f"a pass needs {POINTS_TO_PASS} logged steps"),
        (
            "docs/plan.md",
            (
                f"{_percent(FINISHED_NOISE)} of the loss, "
                f"{_percent(FINISHED_NOISE * STOCHASTIC_FACTOR)} with stochastic rounding"
            ),
        ),
        ("docs/method.md", f"{_percent(FINISHED_NOISE)} of `L` if the training was finished, else"),
        ("docs/method.md", f"`max({_percent(UNFINISHED_NOISE)}, {_percent(NOISE_PER_SLOPE)} |s|)`"),
    ],
)
def test_a_page_has_the_numbers_of_the_judge(page, words):
    assert words in " ".join((CHECKOUT / page).read_text(encoding="utf-8").split())


def test_nothing_is_installed_by_a_name_that_is_on_no_index():
    """Nobody holds `parity` on an index: whoever registered it would get these installs."""
    messages = [
        path
        for folder in ("parity", "server", "workers", "ci")
        for path in (CHECKOUT / folder).rglob("*.py")
    ]
    for path in [*PAGES, CHECKOUT / "action.yml", *messages]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"pip install [^#]*\bparity(\[|['\"]?$|\s*[=<>])", line), (
                f"{path.name}: {line}"
            )
