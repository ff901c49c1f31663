"""docs/decisions: the index lists every page once, and every page has the one format."""

import re

import pytest

from server.settings import CHECKOUT

FOLDER = CHECKOUT / "docs" / "decisions"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
STATUS = r"Accepted|Superseded by \d{4}"


def test_the_index_lists_each_page_with_its_title_date_and_status() -> None:
    index = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \| (\S+) \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    pages = []
    for page in PAGES:
        text = page.read_text("utf-8")
        number, title = re.match(r"# (\d{4}) (.+)\n", text).groups()
        date, status = re.search(r"^\*\*Date\.\*\* (\S+)\. \*\*Status\.\*\* (.+)\.$", text, re.MULTILINE).groups()
        pages.append((number, page.name, title, date, status))
    assert index == pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name[:4])
def test_a_page_has_the_one_format(page) -> None:
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.name[:4]} ")
    assert re.match(rf"# .+\n\n\*\*Date\.\*\* \d{{4}}-\d\d-\d\d\. \*\*Status\.\*\* ({STATUS})\.\n\n\*\*Context\.\*\* ", text)
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Date", "Context", "Decision", "Consequence"]


def test_numbers_are_unique() -> None:
    numbers = [page.name[:4] for page in PAGES]
    assert len(numbers) == len(set(numbers)) > 0


@pytest.mark.parametrize("page", [*PAGES, FOLDER / "README.md"], ids=lambda page: page.name[:4])
def test_linked_files_and_named_tests_exist(page) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (FOLDER / target).exists(), target
    for path in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", text):
        assert (CHECKOUT / path).exists(), path
