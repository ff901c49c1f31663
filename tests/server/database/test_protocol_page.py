"""docs/protocol.md shows the moves that the code allows, all of them and no others."""

import re

import pytest

from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_MOVES
from server.settings import CHECKOUT, Settings

PAGE = (CHECKOUT / "docs" / "protocol.md").read_text()


@pytest.mark.parametrize(("heading", "moves"), [("Jobs", JOB_MOVES), ("Runs", RUN_MOVES), ("Attempts", ATTEMPT_MOVES)])
def test_the_table_is_the_code(heading, moves):
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \|(.*)\|$", section, re.MULTILINE)
    shown = {start: set(re.findall(r"\w+", ends)) for start, ends in rows if start != "from"}
    assert shown == {start: set(ends) for start, ends in moves.items()}


def test_every_setting_that_the_page_names_exists():
    named = set(re.findall(r"PARITY_([A-Z_]+)", PAGE))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)
