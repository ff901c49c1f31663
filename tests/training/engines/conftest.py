"""A Python that plays a recorded MaxText, and a run that it trains."""

import os
import stat
import sys
from pathlib import Path

import pytest

from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, JobSpec, Model, RunSpec, Schedule

PLAYER = Path(__file__).with_name("play_maxtext.py")


@pytest.fixture
def player(tmp_path):
    """The path of an executable that stands for a Python with MaxText."""
    path = tmp_path / "python-with-maxtext"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {PLAYER} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def environment(player):
    return {"PARITY_MAXTEXT_PYTHON": player, "PATH": os.environ["PATH"]}


@pytest.fixture
def job(tmp_path):
    """A function that makes a job for the player: bf16 against MaxText's own fp8, as long as the
    recorded session.
    """
    for name in ("train.parquet", "spm.model"):
        (tmp_path / name).write_bytes(b"tokens")

    def make(**changes) -> JobSpec:
        values = {
            "name": "maxtext",
            "engine": "maxtext",
            "baseline": ArmSpec(recipe="bf16", replicates=2),
            "candidates": (ArmSpec(recipe="fp8_delayed", replicates=2),),
            "model": Model(vocab_size=512),
            "data": Data(source="grain", path=str(tmp_path / "train.parquet")),
            "schedule": Schedule(steps=85, warmup_steps=5),
            "maxtext": MaxTextOptions(
                hardware="cpu",
                implementation="xla",
                grain_file_type="parquet",
                tokenizer_path=str(tmp_path / "spm.model"),
            ),
        }
        return JobSpec(**values | changes)

    return make


@pytest.fixture
def spec(job) -> RunSpec:
    return next(job().runs())[1]
