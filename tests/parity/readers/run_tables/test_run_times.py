"""The times of runs: units by column, and one line for what is not a time."""

from pathlib import Path

import pytest

from parity.judging.evaluations.run_times import RunTimes
from parity.readers.errors import ReadError
from parity.readers.run_tables.run_times import read_run_times


def write(folder: Path, *lines: str) -> str:
    path = folder / "times.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_times_in_their_units(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "system,arm,run,GPU,minutes_to_target,ms_per_sequence",
        "s,a,0,B200,1.5,30",
        "s,b,0,,,25",
    )
    assert read_run_times(file, "arm", ("system", "run")) == [
        RunTimes(
            arm="a",
            run="s/0",
            hardware="B200",
            step_seconds=pytest.approx(0.03),
            seconds_to_target=90.0,
        ),
        RunTimes(
            arm="b",
            run="s/0",
            hardware=None,
            step_seconds=pytest.approx(0.025),
            seconds_to_target=None,
        ),
    ]


@pytest.mark.parametrize(
    ("column", "seconds"),
    [
        ("step_seconds", 2.0),
        ("seconds_per_step", 2.0),
        ("ms_per_step", 0.002),
        ("ms_per_sample", 0.002),
        ("Seconds_Per_Sample", 2.0),
    ],
)
def test_names_of_the_time_per_step(column: str, seconds: float, tmp_path: Path) -> None:
    (times,) = read_run_times(write(tmp_path, f"arm,run,{column}", "a,0,2"), "arm", ("run",))
    assert times.step_seconds == pytest.approx(seconds)
    assert (times.seconds_to_target, times.hardware) == (None, None)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("arm,run,minutes", "a,0,2"), "no column of times among .*minutes_to_target"),
        (
            ("arm,run,step_seconds,ms_per_step", "a,0,2,2000"),
            "'step_seconds', 'ms_per_step' hold the same time",
        ),
        (("arm,run,step_seconds", "a,0,0"), "line 2: 0 in the column 'step_seconds'"),
        (("arm,run,step_seconds", "a,0,1", "a,1,inf"), "line 3: inf in the column"),
        (("arm,run,step_seconds", "a,0,fast"), "line 2: 'fast' in the column"),
        (("arm,run,step_seconds", "a,0,1", "a,0,2"), r"run 0 of a has two rows \(lines 2 and 3\)"),
        (("arm,run,step_seconds", ",0,1"), "line 2: the column 'arm' is empty"),
        (("arms,run,step_seconds", "a,0,1"), "no column 'arm' for the arm.*did you mean 'arms'"),
        (("arm,runs,step_seconds", "a,0,1"), "no column 'run' for the run"),
    ],
)
def test_what_is_not_a_table_of_times(lines: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=words):
        read_run_times(write(tmp_path, *lines), "arm", ("run",))
