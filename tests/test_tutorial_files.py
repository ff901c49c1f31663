"""docs/tutorial-files.md: its blocks in one shell, one after the other, print what the page shows
and exit as it says.
"""

import io
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

from server.settings import CHECKOUT
from tests.documentation import run_by
from tools import make_example_curves

PAGE = "docs/tutorial-files.md"
CODES = [0, 1, 3, 0, 0]


def test_the_tutorial(tmp_path, monkeypatch):
    shutil.copytree(CHECKOUT / "examples" / "curves", tmp_path / "curves")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(CHECKOUT),
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    shells = run_by(PAGE, __file__)
    script = "\n".join(f"{block.text}printf '\\n::%s::\\n' $?" for block in shells)
    words = ["bash", "-c", script]
    done = subprocess.run(
        words, cwd=tmp_path / "curves", env=environment, check=False, capture_output=True, text=True
    )
    printed, codes = (
        done.stdout.split("\n::")[:-1],
        [int(part.partition("::")[0]) for part in done.stdout.split("\n::")[1:]],
    )
    assert codes == CODES, done.stderr
    for block, text in zip(shells, printed, strict=True):
        assert block.output
        assert block.shows(text.partition("::\n")[2] if text[:1].isdigit() else text), (
            block.text,
            text,
        )

    monkeypatch.chdir(tmp_path / "curves" / "reruns")
    for block in run_by(PAGE, __file__, "python"):
        with redirect_stdout(io.StringIO()) as output:
            exec(block.text, {})  # noqa: S102
        assert block.shows(output.getvalue())


def test_the_reruns_are_those_of_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(make_example_curves, "FOLDER", tmp_path)
    make_example_curves.write_reruns()
    shipped = CHECKOUT / "examples" / "curves" / "reruns"
    assert {path.name for path in shipped.iterdir()} == {
        f"{arm}-{replicate}.csv" for arm in ("fp8", "mxfp8") for replicate in (0, 1)
    }
    for path in shipped.iterdir():
        new, old = (
            (folder / path.name).read_text("utf-8").splitlines()
            for folder in (tmp_path / "reruns", shipped)
        )
        assert [row.rpartition(",")[0] for row in new] == [row.rpartition(",")[0] for row in old]
