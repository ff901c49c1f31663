"""How large a file may be: read at each limit, refused beyond it."""

import gzip
from pathlib import Path

import pytest

from parity.readers.files import text as file_text
from parity.readers.files.text import read_text
from tests.parity.readers.refusals import is_refused


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
