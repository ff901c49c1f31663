"""Runs as files, and a call of the command line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs of 1,500 steps: a baseline with a rerun, one candidate as good, one worse."""
    folder = tmp_path_factory.mktemp("runs")
    t, rng = np.arange(1500), np.random.default_rng(0)
    batch = rng.normal(0, 0.06, 1500)
    paths = {}
    for name, gap in (
        ("fp8", 0.0),
        ("fp8_again", 0.001),
        ("mxfp8", -0.002),
        ("nvfp4", 0.03),
        ("edge", 0.0125),
    ):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + gap + rng.normal(0, 0.01, 1500)
        paths[name] = str(folder / f"{name}.csv")
        Path(paths[name]).write_text(
            "step,loss\n" + "".join(f"{i},{v:.6f}\n" for i, v in zip(t, loss, strict=True))
        )
    return paths


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls the command line in this process: exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return call
