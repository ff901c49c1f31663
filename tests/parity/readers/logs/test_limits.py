"""How much of a log is read: at each limit, and one beyond it."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.readers.errors import NoLossError, ReadError
from parity.readers.logs import mlperf
from parity.readers.logs.lines.look_alikes import LookAlikes
from parity.readers.logs.pattern import PATTERN, PatternLog
from parity.readers.logs.printed_line import read_line
from parity.readers.logs.tensorboard import read_tensorboard
from tests.parity.readers.refusals import is_refused


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


@pytest.mark.parametrize("end", [0, 1, 4, len(mlperf.MARK) - 1, len(mlperf.MARK)])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(("mark", "found"), [(mlperf.MARK, 1), (mlperf.MARK[1:], 0)])
def test_a_log_is_known_by_an_event_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, end: int, mark: str, found: int
) -> None:
    """The first event may stand across the border of two blocks of the file."""
    monkeypatch.setattr(mlperf, "_BLOCK", 64)
    (tmp_path / "result_0.txt").write_text(" " * (64 * blocks - end) + mark + "\n")
    assert len(mlperf.result_files(tmp_path)) == found


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
