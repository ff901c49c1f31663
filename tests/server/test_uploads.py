"""Files of a request are read as `parity compare` reads them, or refused in one sentence."""

import base64
import gzip
import importlib.util
import io
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from parity.readers import read_run
from server import uploads
from server.errors import InvalidError, UnavailableError
from server.uploads import Brought, Upload, read_uploads

DATA = Path(__file__).parents[1] / "data"


def _brought(form, content, **more):
    upload = Upload(format=form, base64=base64.encodebytes(content).decode(), **more)
    return Brought(pointer="/baseline/0/file", upload=upload, label="mine")


def _parquet(steps, **columns):
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"step": np.arange(steps), **columns}), buffer)
    return buffer.getvalue()


def test_every_format_is_read_as_compare_reads_it(tmp_path):
    rows = b"step,ce,grad_norm\n0,2.5,1\n2,nan,1\n2,inf,2\n4,,3\n6,0.1,4\n"
    files = [
        ("csv", "a.csv", rows, {"loss": "ce"}),
        ("csv", "b.csv.gz", gzip.compress(rows), {"loss": "ce"}),
        ("jsonl", "c.jsonl.gz", (DATA / "maxtext_session.jsonl.gz").read_bytes(), {}),
        ("jsonl", "d.jsonl", (DATA / "maxtext_nan_abort.jsonl").read_bytes(), {}),
        ("tensorboard", "e.tfevents", (DATA / "events.out.tfevents.sample").read_bytes(), {"learning_rate": "lr64"}),
        ("parquet", "f.parquet", _parquet(50, loss=np.where(np.arange(50) == 7, np.nan, 0.1)), {}),
    ]
    read = read_uploads([_brought(form, content, columns=columns) for form, _, content, columns in files])
    for found, (_, name, content, columns) in zip(read, files, strict=True):
        (tmp_path / name).write_bytes(content)
        expected = read_run(str(tmp_path / name), columns=columns, label="mine")
        assert (found.digest(), found.completeness, found.notes, found.label) == (
            expected.digest(),
            expected.completeness,
            expected.notes,
            "mine",
        )
        assert {name: values.tobytes() for name, values in found.columns.items()} == {
            name: values.tobytes() for name, values in expected.columns.items()
        }
    assert read[0].completeness.duplicates == 1
    assert read[0].notes == ("1 rows without a loss left out",)


@pytest.mark.parametrize(
    ("form", "content", "says"),
    [
        ("csv", b"tok,ce\n1,2\n", 'no step column among \'tok\', \'ce\'; name it with "columns": {"step": "NAME"}'),
        ("csv", gzip.compress(b"step,loss\n" + b" " * (64 << 20), 1), "larger than 64 MiB unpacked"),
        ("parquet", _parquet(20)[:-9], "no readable Parquet"),
    ],
)
def test_what_can_not_be_read_is_refused_in_a_sentence(form, content, says):
    with pytest.raises(InvalidError) as refused:
        read_uploads([_brought(form, content)])
    (problem,) = refused.value.errors
    assert problem.pointer == "/baseline/0/file"
    assert says in problem.detail
    assert "upload-" not in problem.detail


def test_what_needs_no_reader_is_refused_without_one(monkeypatch):
    monkeypatch.setattr(uploads.subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert read_uploads([]) == []
    with pytest.raises(InvalidError, match="/baseline/0/file/base64: no base64"):
        read_uploads([Brought(pointer="/baseline/0/file", upload=Upload(format="csv", base64="a,b\n1,2"), label="")])
    with pytest.raises(InvalidError, match="brings 201 files, expected at most 200"):
        read_uploads([_brought("csv", b"")] * 201)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidError, match="pyarrow is not installed"):
        read_uploads([_brought("parquet", b"")])


def test_a_reader_that_ends_too_early_refuses_the_file_it_was_at(monkeypatch):
    files = [Brought(pointer=f"/baseline/{number}/file", upload=Upload(format="csv", base64=""), label="") for number in range(2)]
    killed = uploads.subprocess.CompletedProcess([], -9, stdout=b'{"columns": [], "duplicates": 0, "notes": []}\n{"col', stderr=b"")
    monkeypatch.setattr(uploads.subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(InvalidError, match="/baseline/1/file: reading it broke off"):
        read_uploads(files)
    monkeypatch.undo()
    monkeypatch.setattr(uploads, "_SECONDS", 0.01)
    with pytest.raises(InvalidError, match=r"/baseline/0/file: .*longer than 0.01 s"):
        read_uploads(files)


def test_requests_that_wait_for_a_reader_leave_threads_for_the_others(monkeypatch):
    """A server has 40 threads for its requests; each that waits here would be missed by a trainer or a page."""
    reading, done = threading.Event(), uploads.subprocess.CompletedProcess([], 1, stdout=b"", stderr=b"")

    def read(*_, **__):
        reading.wait(20)
        return done

    monkeypatch.setattr(uploads.subprocess, "run", read)
    with ThreadPoolExecutor(30) as threads:
        asked = [threads.submit(read_uploads, [_brought("csv", b"step,loss\n0,1\n")]) for _ in range(30)]
        try:
            refused = [one.exception() for one in islice(as_completed(asked, 10), 22)]
        finally:
            reading.set()
    assert all(isinstance(error, UnavailableError) for error in refused), refused
    assert sum(isinstance(one.exception(), InvalidError) for one in asked) == 8
    assert uploads._PLACES.acquire(blocking=False)
    uploads._PLACES.release()
