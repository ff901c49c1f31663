"""What a trainer's run may be called and log: each limit at its value, and one beyond it."""

import json
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from parity.client import delivery, run, spool
from parity.client import recorder as recorder_module
from parity.client.run import RunError, _check_names, _wrong_project

PROJECT: dict[str, Any] = {
    "project": "p",
    "arm": "a",
    "baseline": None,
    "seed": None,
    "planned_steps": None,
}


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("project", ["x", "x" * 200], ["", "x" * 201]),
        ("arm", ["x", "x" * 64], ["", "x" * 65, None]),
        ("baseline", [None, "x", "x" * 64], ["", "x" * 65]),
        ("seed", [None, 0, 2**53], [-1, 2**53 + 1]),
        ("planned_steps", [None, 1, 2**53], [0, 2**53 + 1]),
    ],
)
def test_a_project_is_named_within_its_limits(
    name: str, allowed: list[Any], refused: list[Any]
) -> None:
    assert [_wrong_project("", PROJECT | {name: each}) for each in allowed] == [""] * len(allowed)
    assert all(_wrong_project("", PROJECT | {name: each}) for each in refused)


def _is_refused(*names: str) -> bool:
    try:
        _check_names(names)
    except RunError:
        return True
    return False


def test_a_row_has_64_values_with_names_of_64_characters() -> None:
    sixty_four = ("loss", *(f"v{at}" for at in range(63)))
    assert (_is_refused(*sixty_four), _is_refused(*sixty_four, "one")) == (False, True)
    assert (_is_refused("loss", "x" * 64), _is_refused("loss", "x" * 65)) == (False, True)


def test_the_columns_of_a_row_are_those_that_the_server_takes() -> None:
    from server.api.step_bodies import _MAX_COLUMNS

    assert run._MOST_COLUMNS == delivery._COLUMNS_AT_ONCE == _MAX_COLUMNS


def test_200_000_rows_wait_for_a_disk_and_the_next_is_dropped() -> None:
    recorder, told = object.__new__(recorder_module.Recorder), []
    recorder._rows, recorder._refused = deque([{"step": 1}] * 199_999), threading.Event()
    recorder._complain = lambda about, _: told.append(about)
    recorder.add({"step": 2})
    assert (len(recorder._rows), told) == (200_000, [])
    recorder.add({"step": 3})
    assert (recorder._rows[-1], told) == ({"step": 2}, ["full"])


def test_the_longest_end_of_a_run_is_found_at_the_end_of_its_spool(tmp_path: Path) -> None:
    """A message of 2,000 characters, each of which JSON writes with twelve."""
    message = "\N{GRINNING FACE}" * run._MESSAGE_CHARACTERS
    end = json.dumps({"end": "failed", "message": message})
    assert (run._MESSAGE_CHARACTERS, len(end) < spool._LONGEST_LINE) == (2000, True)
    path = tmp_path / "spool"
    for line, is_found in ((end, True), (end.ljust(65_535), True), (end.ljust(65_536), False)):
        path.write_text(f"{'x' * 100_000}\n{line}\n")
        assert spool.is_whole(path) == is_found
