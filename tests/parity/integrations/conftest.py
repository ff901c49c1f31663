"""A folder for spools, and what they contain."""

import json

import pytest


@pytest.fixture
def spools(tmp_path, monkeypatch):
    """A function that reads the rows of each spool in a run's folder, oldest first; no run is
    named, and no launcher is there.
    """
    monkeypatch.setenv("PARITY_SPOOL", str(tmp_path))
    for name in (
        "PARITY_RUN",
        "PARITY_RANK",
        "RANK",
        "LOCAL_RANK",
        "NODE_RANK",
        "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
    ):
        monkeypatch.delenv(name, raising=False)

    def read(folder="*"):
        paths = sorted(tmp_path.glob(f"{folder}/*.jsonl"))
        return [[json.loads(line) for line in path.read_text().splitlines()[1:]] for path in paths]

    return read
