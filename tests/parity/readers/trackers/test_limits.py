"""How much of a tracker's answer is taken: at each limit, and one beyond it."""

from typing import Any

import pytest

from parity.readers.trackers.run import first_line
from parity.readers.trackers.trackio import _rows


def test_a_trackers_error_is_cut_to_160_characters() -> None:
    assert [len(first_line(ValueError("x" * size))) for size in (160, 161)] == [160, 160]


@pytest.mark.parametrize(("rows", "asked"), [(4999, 1), (5000, 2)])
def test_a_full_page_of_trackios_rows_is_followed_by_another(rows: int, asked: int) -> None:
    pages = []

    def call(_name: str, _project: str, query: str) -> dict[str, Any]:
        after = int(query.partition("id > ")[2].split()[0])
        pages.append(after)
        left = range(after + 1, rows)
        row = {"timestamp": "1", "step": 1, "metrics": "{}"}
        return {"rows": [{"id": at, **row} for at in left[:5000]]}

    assert len(_rows(call, "p", "r")) == rows
    assert pages == [-1, 4999][:asked]
