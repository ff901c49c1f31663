"""What a session of some minutes begins and ends, and where it may be cut."""

from pathlib import Path

import pytest

from tools.gpu_evidence.steps import steps
from tools.tables.timetable import CUTS, MINUTES, rows, table

OUT = Path("/out")


def test_in_25_minutes_every_step_begins_and_the_pair_is_whole():
    made = list(rows(MINUTES))
    assert [row.step.name for row in made] == [step.name for step in steps(OUT, None)]
    assert {row.size for row in made if row.step.name == "pair"} == {("--steps", "4000")}
    assert max(row.end for row in made) <= MINUTES * 60 - 30


@pytest.mark.parametrize("minutes", [2, 5, 10, 15, 20])
def test_in_less_time_what_cannot_end_is_left_out(minutes):
    made = list(rows(minutes))
    assert all(row.end <= minutes * 60 for row in made)
    assert made[0].step.name == "device"


def test_the_table_says_what_there_is_after_each_cut():
    assert all(f"| {cut} | " in table() for cut in CUTS)
