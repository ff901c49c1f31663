"""Parquet tables, with pyarrow and without it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "run.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ReadError, match="needs pyarrow; install it: pip install pyarrow"):
        read_run(str(path))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    table = pyarrow.table(
        {
            "step": [1, 2, 3],
            "train/loss": [2.5, float("nan"), None],
            "grad_norm": [1.0, None, 2.0],
            "note": ["a", "b", "c"],
        }
    )
    parquet.write_table(table, path)
    run = read_run(str(path))
    assert run.steps.tolist() == [1, 2, 3]
    assert np.isnan(run.loss[1:]).all()
    assert run.columns["grad_norm"][0] == 1.0
    with pytest.raises(ReadError, match="expected numbers in the loss column"):
        read_run(str(path), columns={"loss": "note"})
    with pytest.raises(ReadError, match="no column 'x'"):
        read_run(str(path), columns={"loss": "x"})
    shutil.copy(path, tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:40])
    with pytest.raises(ReadError, match="not a readable Parquet"):
        read_run(str(tmp_path / "cut.parquet"))
