"""Rank 0 writes, whatever launched the processes; the innermost launcher decides."""

import sys
from types import SimpleNamespace

import pytest

from parity.integrations.rank import LAUNCHERS, RankError, is_writer


@pytest.fixture(autouse=True)
def no_framework(monkeypatch):
    for name in ("torch", "jax", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_launchers_rank_0_writes(name):
    assert is_writer({name: "0"})
    assert not is_writer({name: "1"})


@pytest.mark.parametrize(
    ("environ", "writes"),
    [
        ({}, True),
        ({"RANK": ""}, True),
        ({"RANK": "0", "SLURM_PROCID": "0", "LOCAL_RANK": "0"}, True),
        # srun torchrun, the second node's first
        ({"RANK": "8", "SLURM_PROCID": "1", "LOCAL_RANK": "0", "NODE_RANK": "0"}, False),
        ({"OMPI_COMM_WORLD_RANK": "3", "SLURM_PROCID": "0"}, False),  # mpirun in a Slurm job
        ({"NODE_RANK": "0", "LOCAL_RANK": "0"}, True),  # Lightning's own launcher
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"PARITY_RANK": "0", "SLURM_PROCID": "3"}, True),  # a training of its own
    ],
)
def test_the_innermost_launcher_decides(environ, writes):
    assert is_writer(environ) is writes


@pytest.mark.parametrize("value", ["a", "-1", "0.0"])
def test_a_rank_that_is_no_number_from_0_is_refused(value):
    with pytest.raises(RankError, match=f"SLURM_PROCID is '{value}'"):
        is_writer({"SLURM_PROCID": value})


@pytest.mark.parametrize(("rank", "writes"), [(0, True), (1, False)])
def test_pytorchs_process_group_comes_before_the_launcher(monkeypatch, rank, writes):
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))
    assert is_writer({"RANK": str(1 - rank)}) is writes
    assert is_writer({"PARITY_RANK": "0"})


def test_without_a_process_group_pytorch_decides_nothing(monkeypatch):
    group = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))
    assert not is_writer({"RANK": "1"})


@pytest.mark.parametrize(
    ("processes", "index", "writes"), [(2, 0, True), (2, 1, False), (1, 0, False)]
)
def test_jax_decides_where_it_runs_in_several_processes(monkeypatch, processes, index, writes):
    """In one process its index is always 0, whichever of PyTorch's ranks that process is."""
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: processes > 1),
        process_count=lambda: processes,
        process_index=lambda: index,
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", SimpleNamespace(_backends={"cpu": 1}))
    assert is_writer({"RANK": "1"}) is writes


def test_jax_is_not_started_to_find_out(monkeypatch):
    jax = SimpleNamespace(distributed=SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert not is_writer({"RANK": "1"})
