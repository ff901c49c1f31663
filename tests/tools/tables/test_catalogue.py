"""Every page and file of the catalogue is what today's code writes."""

import pytest

from tools.tables.__main__ import main
from tools.tables.catalogue import TABLES
from tools.tables.generated import ROOT, GeneratedTable, rewritten

WRITTEN = [(table, path) for table in TABLES.values() for path in table.paths if not table.slow]


@pytest.mark.parametrize(
    ("table", "path"),
    WRITTEN,
    ids=[f"{table.name}-{path.relative_to(ROOT)}" for table, path in WRITTEN],
)
def test_a_page_or_file_is_of_today(table, path):
    assert table.today(path) == path.read_text(encoding="utf-8"), (
        f"run python -m tools.tables {table.name}"
    )


def test_every_part_on_a_page_is_of_a_table():
    """No mark is left of a table that is gone or that has another name."""
    begins = {
        table.marks(part)[0]
        for table in TABLES.values()
        for parts in table.parts.values()
        for part in parts
    }
    pages = [ROOT / "README.md", ROOT / "parity" / "SKILL.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        line
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if ": written by " in line
    ]
    assert sorted(found) == sorted(begins)


def test_a_page_without_marks_is_refused():
    begin, end = TABLES["rights"].marks("operations")
    with pytest.raises(ValueError, match="no"):
        rewritten(f"{end} {begin}", "rows", (begin, end))


def test_a_check_names_what_is_not_of_today_and_a_run_writes_it(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    table = GeneratedTable(name="made", parts={page: {"made": lambda: "today"}})
    begin, end = table.marks("made")
    page.write_text(f"above\n{begin}\nyesterday\n{end}\nbelow\n")
    monkeypatch.setitem(TABLES, "made", table)
    monkeypatch.setattr("tools.tables.__main__.ROOT", tmp_path)
    assert main(["made", "--check"]) == 1
    assert capsys.readouterr().out == "page.md is not of today; run python -m tools.tables made\n"
    assert main(["made"]) == 0
    assert page.read_text() == f"above\n{begin}\ntoday\n{end}\nbelow\n"
    capsys.readouterr()
    assert main(["made", "--check"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_name_is_refused_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no table 'nothing'; expected one of attacks, " in capsys.readouterr().err
