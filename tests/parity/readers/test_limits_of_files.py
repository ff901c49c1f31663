"""The limits of the readers, each at its value: read there, refused or cut beyond it."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import MAX_STEP, curve_from_arrays
from parity.readers.columns.names import listed
from parity.readers.columns.number import step_number
from parity.readers.curve.plausibility import check_repeats, check_values
from parity.readers.curve.step_unit import other_unit, unit_change
from parity.readers.errors import NoLossError, ReadError
from parity.readers.files import text as file_text
from parity.readers.files.text import read_text
from parity.readers.logs import mlperf
from parity.readers.logs.lines.look_alikes import LookAlikes
from parity.readers.logs.pattern import PATTERN, PatternLog
from parity.readers.logs.printed_line import read_line
from parity.readers.logs.tensorboard import read_tensorboard
from parity.readers.run_tables.cells import read_cells
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.proposed_options import _proposed_sizes, proposed_options
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.size_table import read_sizes


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except ReadError:
        return True
    return False


@pytest.mark.parametrize(("size", "refused"), [(2**20, False), (2**20 + 1, True)])
def test_a_line_has_a_mebibyte(tmp_path: Path, size: int, refused: bool) -> None:
    path = tmp_path / "run.csv"
    path.write_text("x" * size)
    assert is_refused(lambda: read_text(str(path))) == refused


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("size", "refused"), [(4096, False), (4097, True)])
def test_a_file_has_four_gibibytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    size: int,
    refused: bool,
) -> None:
    """With a limit of four KiB, of what is in the file once it is unpacked."""
    assert file_text.MAX_BYTES == 4 * 2**30
    monkeypatch.setattr(file_text, "MAX_BYTES", 4096)
    path = tmp_path / f"run.csv{suffix}"
    with gzip.open(path, "wb") if suffix else path.open("wb") as file:
        file.write(b"1,2\n" * 1024 + b"3" * (size - 4096))
    assert is_refused(lambda: read_text(str(path))) == refused


@pytest.mark.parametrize(("step", "refused"), [(0, False), (-1, True), (2**53, False)])
def test_a_step_is_exact_as_a_float(step: float, refused: bool) -> None:
    assert is_refused(lambda: step_number(float(step), "here")) == refused
    assert MAX_STEP == 2**53
    assert is_refused(lambda: step_number(2.0**53 + 2, "here"))


def test_an_error_shows_60_characters_of_a_name_and_twelve_names() -> None:
    assert listed(["x" * 60]) == repr("x" * 60)
    assert listed(["x" * 61]) == repr("x" * 60 + "…")
    twelve, more = (listed([f"n{at}" for at in range(number)]) for number in (12, 13))
    assert ("n11" in twelve, "n11" in more, "n12" in more) == (True, True, False)


@pytest.mark.parametrize(
    ("loss", "is_noted"),
    [(0.0, False), (-1e-9, True), (30.0, False), (30.000001, True)],
)
def test_a_loss_in_nats_is_from_0_to_30(loss: float, is_noted: bool) -> None:
    notes = check_values(np.array([2.0, loss]), "loss", "a.csv")
    assert bool(notes) == is_noted
    alone = is_refused(lambda: check_values(np.array([loss]), "loss", "a.csv"))
    assert alone == is_noted


@pytest.mark.parametrize(
    ("rows", "repeated", "refused"),
    [(50, 2, False), (50, 3, True), (990, 10, False), (990, 11, True)],
)
def test_two_rows_or_one_in_a_hundred_may_repeat_a_step(
    rows: int, repeated: int, refused: bool
) -> None:
    """Each row that repeats stands behind the one that it repeats, as rows of two ranks do."""
    steps = np.sort(np.concatenate([np.arange(rows), np.arange(repeated)])).astype(float)
    loss = np.linspace(3.0, 2.0, len(steps))
    assert is_refused(lambda: check_repeats(steps, loss, "a.csv")) == refused


def _curve(*steps: int) -> Any:
    return curve_from_arrays(np.array(steps, float), np.full(len(steps), 2.0), label="a")


@pytest.mark.parametrize(("stride", "other"), [(49, False), (50, True)])
def test_strides_that_differ_50_fold_are_of_two_units(stride: int, other: bool) -> None:
    left, right = _curve(*range(1, 21)), _curve(*range(1000, 1000 + 20 * stride, stride))
    assert other_unit(left, right) == other


@pytest.mark.parametrize(("number", "other"), [(20, False), (21, True)])
def test_runs_with_one_step_in_twenty_in_common_are_of_one_unit(number: int, other: bool) -> None:
    left, right = _curve(*range(number)), _curve(*range(0, 50 * number, 50))
    assert other_unit(left, right) == other


@pytest.mark.parametrize(("before", "after", "seen"), [(21, 21, True), (20, 21, False)])
def test_a_change_of_unit_is_seen_with_twenty_strides_on_each_side(
    before: int, after: int, seen: bool
) -> None:
    for left, right in ((before, after), (after, before)):
        steps = [*range(1, left + 1), *(100_000 * at for at in range(1, right + 1))]
        assert (unit_change(np.array(steps)) is not None) == seen


@pytest.mark.parametrize(("size", "error"), [(64 * 2**20, NoLossError), (64 * 2**20 + 1, None)])
def test_a_tensorboard_record_has_64_mebibytes(
    tmp_path: Path, size: int, error: type[Exception] | None
) -> None:
    """The file ends within the record: a length that may be is noted, and no scalar is found."""
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(struct.pack("<Q", size) + bytes(100))
    with pytest.raises(ReadError) as refused:
        read_tensorboard(str(path), {})
    assert isinstance(refused.value, NoLossError) == (error is NoLossError)


@pytest.mark.parametrize(("number", "refused"), [(2, False), (3, True)])
def test_a_folder_has_5000_mlperf_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, refused: bool
) -> None:
    assert mlperf._MOST_FILES == 5000
    monkeypatch.setattr(mlperf, "_MOST_FILES", 2)
    for at in range(number):
        (tmp_path / f"result_{at}.txt").write_text(f"{mlperf.MARK} {{}}\n")
    assert is_refused(lambda: mlperf.result_files(tmp_path)) == refused


@pytest.mark.parametrize(("blanks", "found"), [(0, 1), (1, 0)])
def test_a_log_is_known_by_its_first_64_kibibytes(tmp_path: Path, blanks: int, found: int) -> None:
    before = " " * (2**16 - len(mlperf.MARK) + blanks)
    (tmp_path / "result_0.txt").write_text(before + mlperf.MARK)
    assert len(mlperf.result_files(tmp_path)) == found


def _table(tmp_path: Path, rows: list[str]) -> str:
    path = tmp_path / "many.csv"
    path.write_text("\n".join(rows))
    return str(path)


@pytest.mark.parametrize(("number", "refused"), [(1, True), (2, False), (20, False), (21, True)])
def test_a_table_has_two_to_twenty_arms(tmp_path: Path, number: int, refused: bool) -> None:
    table = _table(tmp_path, ["arm,run,step,loss", *(f"a{at},0,1,2.0" for at in range(number))])
    layout = RunTable(arm="arm", run=("run",))
    assert is_refused(lambda: read_run_table(table, layout)) == refused
    assert (proposed_options(table) == []) == refused


@pytest.mark.parametrize(("number", "refused"), [(100, False), (101, True)])
def test_a_table_has_a_hundred_sizes(tmp_path: Path, number: int, refused: bool) -> None:
    rows = [f"{arm},0,{at},2.0" for arm in "ab" for at in range(number)]
    table = _table(tmp_path, ["arm,run,params,loss", *rows])
    layout = RunTable(arm="arm", run=("run",))
    assert is_refused(lambda: read_sizes(table, layout, ["params"])) == refused


@pytest.mark.parametrize(("number", "sizes"), [(5, ["params", "tokens"]), (6, None)])
def test_five_lengths_a_size_are_final_losses_and_six_are_a_curve(
    tmp_path: Path, number: int, sizes: list[str] | None
) -> None:
    rows = [f"{arm},{size},{at},2.0" for arm in "ab" for size in (1, 2) for at in range(number)]
    cells = read_cells(_table(tmp_path, ["arm,params,tokens,loss", *rows]))
    assert _proposed_sizes(cells, "arm") == sizes


def _found_by_pattern(line: str) -> float | None:
    log = PatternLog("run.log", {PATTERN: r"loss=(?P<loss>\S+)"})
    log.feed(f"{line}\n" * 8)
    return None if is_refused(log.columns) else log.columns().values["loss"][0]


def _found_in_print(line: str) -> float | None:
    found = read_line(line)
    return found and found.values.get("loss")


@pytest.mark.parametrize("find", [_found_by_pattern, _found_in_print])
def test_4096_characters_of_a_line_are_looked_at(find: Callable[[str], float | None]) -> None:
    line = "step 7 loss=2.5"
    assert find(line.rjust(4096)) == 2.5
    assert find(line.rjust(4096) + " and more") == 2.5
    assert find(line.rjust(4096 + 3)) is None


@pytest.mark.parametrize("find", [_found_by_pattern, _found_in_print])
@pytest.mark.parametrize("loss", ["2.513", "1,234.5", "2.5e-3", "nan"])
@pytest.mark.parametrize("cut", [1, 2])
def test_a_number_that_is_cut_there_is_not_read_as_another(
    find: Callable[[str], float | None], loss: str, cut: int
) -> None:
    assert find(f"step 7 loss={loss}".rjust(4096 + cut)) is None


@pytest.mark.parametrize(("others", "unread"), [(4095, 1), (4096, 0)])
def test_4096_kinds_of_lines_that_were_not_read_are_remembered(others: int, unread: int) -> None:
    alike = LookAlikes()
    for at in range(others):
        alike.count(chr(0x4E00 + at), 0, 1)  # digits would all be alike
    alike.count("loss 2.0", 0, 1)
    alike.count("loss 1.9", 1, 0)
    assert alike.unread == unread
