"""docs/design: pages in the index and the site; sections say why they hold and until when;
references lead somewhere.
"""

import re

import pytest

from server.settings import CHECKOUT

FOLDER = CHECKOUT / "docs" / "design"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
SECTION = re.compile(r"[^*].+?\n\n\*\*Why\.\*\* .+?\n\n\*\*Holds until\*\* .+\.", re.DOTALL)
CODE = (
    "parity",
    "parity_lab",
    "server",
    "training",
    "workers",
    "tools",
    "experiments",
    "benchmarks",
    "tests",
)


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _anchor(title: str) -> str:
    """The name that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_index_and_site_list_each_page_with_its_title() -> None:
    pages = {page.name: _title(page.read_text("utf-8")) for page in PAGES}
    index = re.findall(
        r"^\| \[(.+)\]\((\w+\.md)\) \| .+ \|$",
        (FOLDER / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    site = re.findall(
        r"^ +- (.+): design/(\w+\.md)$", (CHECKOUT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    assert len(index) == len(pages)
    assert {name: title for title, name in index} == pages
    assert [row for row in site if row[1] != "README.md"] == index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_section_has_the_decision_why_it_holds_and_until_when(page) -> None:
    _, *sections = re.split(r"^## .+\n\n", page.read_text("utf-8"), flags=re.MULTILINE)
    assert sections
    assert not [section for section in sections if not SECTION.fullmatch(section.strip())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page) -> None:
    for path in re.findall(
        r"`([a-z_]+/[\w/]+(?:\.\w+)?)`", page.read_text("utf-8").replace("`parity/judge`", "")
    ):
        assert (CHECKOUT / path).exists(), path


def test_references_in_code_lead_to_a_section() -> None:
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    anchors = {
        name: {_anchor(title) for title in re.findall(r"^## (.+)$", text, re.MULTILINE)} | {""}
        for name, text in texts.items()
    }
    found = []
    for module in (module for folder in CODE for module in (CHECKOUT / folder).rglob("*.py")):
        for name, anchor in re.findall(
            r"docs/design/(\w+\.md)#?([\w-]*)", module.read_text("utf-8")
        ):
            found.append(name)
            assert anchor in anchors.get(name, set()), f"{module}: {name}#{anchor}"
    assert found
