"""Runs of trackio: its database on this machine, and its server."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from parity.cli import main
from parity.readers import read_run
from parity.readers.errors import ReadError, UnreachableSourceError
from tests.trackers.conftest import check_curve, free_port, process

pytest.importorskip("trackio")

LONG = 12_000  # more than trackio's calls for logs (3,000) and for queries (10,000) return at once

WRITE = """
    import math, sys
    import trackio
    sys.path.insert(0, {root!r})
    from tests.trackers.conftest import CONFIG, STEPS, loss
    trackio.init(project="llm", name="whole", config=CONFIG)
    for step in range(STEPS):
        trackio.log({{"train/loss": loss(step), "train/global_step": step}})
        if step % 100 == 0:
            trackio.log({{"eval/loss": 3.0, "train/global_step": step}})
    trackio.finish()
    trackio.init(project="llm", name="long")
    for step in range({long}):
        trackio.log({{"loss": 3.0 - step / {long}}}, step=step)
    trackio.finish()
    for run in range(2):
        trackio.init(project="llm", name="twice")
        trackio.log({{"loss": 3.0}}, step=0)
        trackio.finish()
    trackio.init(project="llm", name="no loss")
    trackio.log({{"accuracy": 0.5}}, step=0)
    trackio.finish()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of trackio's that its own process wrote."""
    folder = tmp_path_factory.mktemp("trackio")
    script = textwrap.dedent(WRITE).format(root=str(Path(__file__).parents[2]), long=LONG)
    subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TRACKIO_DIR": str(folder)},
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    port = free_port()
    script = "import trackio; trackio.show(open_browser=False, block_thread=True, host='127.0.0.1')"
    environment = {"TRACKIO_DIR": str(folder), "GRADIO_SERVER_PORT": str(port)}
    with process(
        [sys.executable, "-c", script],
        tmp_path_factory.mktemp("server"),
        f"http://127.0.0.1:{port}/version",
        **environment,
    ) as url:
        yield url.removesuffix("/version")


@pytest.fixture(params=["local", "server"])
def stored(request, monkeypatch, folder):
    """trackio reads the folder's name once, so that the local store is set for the module that has
    it.
    """
    from trackio import sqlite_storage

    if request.param == "server":
        monkeypatch.setenv("TRACKIO_SERVER_URL", request.getfixturevalue("server"))
    else:
        monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", folder)


def test_a_run_is_read_whole(stored):
    curve = read_run("trackio:llm/whole")
    check_curve(curve)
    assert "loss read from 'train/loss', step from 'train/global_step'" in curve.notes
    assert any("does not record whether the run has ended" in note for note in curve.notes)
    assert any("12 records without a training loss" in note for note in curve.notes)


def test_trackios_own_step_on_request(stored):
    curve = read_run("trackio:llm/whole", columns={"step": "step"})
    assert curve.steps.tolist() != list(range(len(curve.steps)))
    assert len(curve.steps) == 1200


def test_more_rows_than_trackio_returns_at_once(stored):
    curve = read_run("trackio:llm/long")
    assert (len(curve.steps), curve.completeness.last, curve.completeness.gaps) == (
        LONG,
        LONG - 1,
        0,
    )
    assert (
        "step is the tracker's own counter 'step': the run logged no step of its own" in curve.notes
    )


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("llm/none", "no such run"),
        ("none/whole", "no such project"),
        ("llm/twice", "2 runs are called"),
        ("llm/no loss", "no loss column"),
    ],
)
def test_what_is_no_run_is_refused(stored, run, words):
    with pytest.raises(ReadError, match=words) as refused:
        read_run(f"trackio:{run}")
    assert not isinstance(refused.value, UnreachableSourceError)


def test_a_server_that_is_not_there_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:9")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "trackio:llm/a", "trackio:llm/b"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("parity:")]
    assert ended.value.code == 4
    assert "does not answer" in line
