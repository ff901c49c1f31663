"""The process that reads uploaded files limits itself."""

import gzip
import json
import subprocess
import sys

import pytest

from parity.readers import ReadError
from server import upload_reader
from server.settings import CHECKOUT


def test_text_is_counted_unpacked(tmp_path):
    for name, content in (("a.csv", b"x" * 1000), ("b.csv.gz", gzip.compress(b"x" * 1000)), ("c.parquet", b"x" * 1000)):
        path = tmp_path / name
        path.write_bytes(content)
        counted = 0 if name == "c.parquet" else 1000
        assert upload_reader._text_bytes(str(path), 1000) == counted
        if counted:
            with pytest.raises(ReadError, match="larger than 64 MiB unpacked"):
                upload_reader._text_bytes(str(path), 999)
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"x" * 1000)[:-12])
    with pytest.raises(ReadError, match="can't be unpacked"):
        upload_reader._text_bytes(str(tmp_path / "torn.csv.gz"), 1000)


_SCRIPT = """
import sys
from server import upload_reader
upload_reader.MAX_NUMBERS = 11
read = upload_reader.read_run
upload_reader.read_run = lambda name, **more: bytearray(3 << 30) if name == "greedy.parquet" else read(name, **more)
sys.exit(upload_reader.main())
"""


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a.csv", "greedy.parquet"], "greedy.parquet: reading it takes more than 2 GiB of memory"),
        (["a.csv", "a.csv", "a.csv"], "a.csv: with this file the request has 12 numbers, expected at most 11"),
    ],
)
def test_files_of_a_request_are_limited_together(tmp_path, names, says):
    (tmp_path / "a.csv").write_text("step,loss\n0,2.5\n1,nan\n")
    asked = json.dumps([{"name": name, "columns": {}, "label": "a"} for name in names])
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    told = subprocess.run(command, cwd=CHECKOUT, input=asked, capture_output=True, text=True, check=True)
    *read, refused = map(json.loads, told.stdout.splitlines())
    assert read == [{"columns": [], "duplicates": 0, "notes": []}] * (len(names) - 1)
    assert refused["refused"].startswith(says)
