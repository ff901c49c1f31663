"""Times as dates, as pandas and cloud trackers write them."""

from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.columns.dates import seconds_of_date
from tests.parity.readers.refusals import is_refused


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0.0),
        ("1970-01-01 00:01:00.250", 60.25),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_date_is_seconds_since_1970(text: str, seconds: float | None) -> None:
    assert seconds_of_date(text) == seconds


def test_a_table_with_dates_is_read_and_one_with_words_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"

    def write(time: str) -> str:
        path.write_text(f"step,loss,wall_time\n1,2.5,1970-01-01 00:00:01\n2,2.4,{time}\n")
        return str(path)

    read = read_run(write("1970-01-01 00:00:02"))
    assert read.columns["unix_seconds"].tolist() == [1.0, 2.0]
    assert is_refused(lambda: read_run(write("later")))
    # a date is no loss and no step
    path.write_text("step,loss\n1,2.5\n2,1970-01-01\n")
    assert is_refused(lambda: read_run(str(path)))
