"""Each trainer and exporter of a list that was made before one was tried (sources.toml): read
without an option, with the gap, interval and codes of the same numbers as CSV; or refused.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.parity.readers.logs.breadth.outcome import outcome
from tests.parity.readers.logs.breadth.shapes import SHAPES, SOURCES

UNREAD = {
    "ggml-opt progress bar": "the mean of the epoch so far",
}
"""What the refusal of a shape says that is not read."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_read_and_judged_as_the_table_of_its_numbers(name: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, name)
    if name in UNREAD:
        assert found.startswith("refused: ")
        assert UNREAD[name] in found
    else:
        assert not found


def test_nine_in_ten_are_read_of_each_kind_of_trainer() -> None:
    assert set(SHAPES) == set(SOURCES)
    listed = Counter(source["kind"] for source in SOURCES.values())
    unread = Counter(SOURCES[name]["kind"] for name in UNREAD)
    assert len(listed) == 5
    assert all(number >= 7 for number in listed.values())
    assert sum(unread.values()) <= 0.1 * len(SHAPES)
    assert sum(source["before"] == "read" for source in SOURCES.values()) == 20
