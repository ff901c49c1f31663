"""Runs that the trackers' own packages write: one known loss in each of them, and processes that
are gone at the end.
"""

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

STEPS = 1200
NAN_STEP, INFINITE_STEP = 700, 705
CONFIG = {"recipe": "nvfp4", "seed": 1, "optimizer": {"lr": 3e-4}, "fp8_recipe": "delayed"}


def loss(step):
    """The loss of a step: one NaN and one infinity in a power law with a little noise."""
    if step == NAN_STEP:
        return math.nan
    if step == INFINITE_STEP:
        return math.inf
    return 2.5 + 8 * (step + 1) ** -0.5 + 0.05 * math.sin(12.9898 * step)


def check_curve(curve):
    """The curve must have every step and every value, bit for bit."""
    assert curve.steps.tolist() == list(range(STEPS))
    assert [repr(value) for value in curve.loss.tolist()] == [
        repr(loss(step)) for step in range(STEPS)
    ]
    assert (curve.recipe, curve.seed, curve.context) == ("nvfp4", 1, {"learning_rate": "0.0003"})
    assert any(
        note.startswith("from the run's config: recipe nvfp4, seed 1") for note in curve.notes
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(line, folder: Path, url: str, **environment):
    """A server in a process group of its own, once its address answers."""
    with (folder / "server.log").open("wb") as log:
        started = subprocess.Popen(
            line,
            cwd=folder,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 120
            while not _answers(url):
                assert started.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.1)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_settings_of_the_host(monkeypatch, tmp_path):
    """No tracking server, key or home folder of whoever runs the tests."""
    for name in [
        name
        for name in os.environ
        if name.startswith(("MLFLOW_", "WANDB_"))
        or name in ("TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID")
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
