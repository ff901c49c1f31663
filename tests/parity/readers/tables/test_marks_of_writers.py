"""What writers leave among the rows of a table: names that a restart wrote again, remarks, and
carriage returns alone. None of them is a row, and a row that is commented out is none of them.
"""

from pathlib import Path

import pytest

from parity.judging.curves.curve import LAST_LINE_CUT
from parity.readers import ReadError, read_run

ROWS = [f"{step},{3 - step / 100},1e-3" for step in range(20)]
HEADER = "step,loss,lr"
OBJECTS = ", ".join(
    f'{{"step": {step}, "loss": {3 - step / 100}, "of": {{"a": 1}}}}' for step in range(20)
)


def losses(folder: Path, *lines: str, end: str = "\n") -> list[float]:
    path = folder / "run.csv"
    path.write_bytes((end.join(lines) + end).encode())
    return read_run(str(path)).loss.tolist()


@pytest.mark.parametrize("mark", [HEADER, "# restarted", "# restarted from step 10, again"])
def test_marks_among_the_rows_are_no_rows(mark: str, tmp_path: Path) -> None:
    plain = losses(tmp_path, HEADER, *ROWS)
    assert len(plain) == 20
    assert losses(tmp_path, HEADER, *ROWS[:10], mark, *ROWS[10:]) == plain


def test_a_table_of_carriage_returns_is_read(tmp_path: Path) -> None:
    assert losses(tmp_path, HEADER, *ROWS, end="\r") == losses(tmp_path, HEADER, *ROWS)


def test_a_row_that_is_commented_out_is_not_left_out_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="line 12: '#10' in the step column"):
        losses(tmp_path, HEADER, *ROWS[:10], f"#{ROWS[10]}", *ROWS[11:])


@pytest.mark.parametrize("end", [",", ",\n", ", {", ', {"step": 20, "loss": 9.0'])
def test_a_list_of_objects_whose_end_is_missing_is_read_and_says_so(
    end: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    path.write_text(f"[{OBJECTS}{end}")
    run = read_run(str(path))
    assert len(run.loss) == 20
    assert LAST_LINE_CUT in run.context
    path.write_text(f"[{OBJECTS}]")
    assert LAST_LINE_CUT not in read_run(str(path)).context


def test_a_list_that_is_broken_elsewhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('[{"step": 1, "loss": 2.5}, {"step": 2 "loss": 2.4}, {"step": 3, "loss": 2.3},')
    with pytest.raises(ReadError, match="not valid JSON"):
        read_run(str(path))
