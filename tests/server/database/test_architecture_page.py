"""docs/architecture.md shows the moves that the code allows, all of them and no others."""

import re

import pytest

from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_MOVES
from server.settings import CHECKOUT, Settings

PAGE = (CHECKOUT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize(
    ("of", "moves"), [("job", JOB_MOVES), ("run", RUN_MOVES), ("attempt", ATTEMPT_MOVES)]
)
def test_the_table_is_the_code(of, moves):
    rows = re.findall(rf"^\| {of} \| (\w+) \|(.*)\|$", PAGE, re.MULTILINE)
    assert {start: set(re.findall(r"\w+", ends)) for start, ends in rows} == {
        start: set(ends) for start, ends in moves.items() if ends
    }


def test_every_setting_that_the_page_names_exists():
    named = set(re.findall(r"PARITY_([A-Z_]+)", PAGE))
    assert named
    assert {name.lower() for name in named} <= set(Settings.model_fields)
