"""Where a run trains, and that its process gets the variables that decide its bits and no
secret.
"""

import os

import pytest

from server.settings import Settings
from workers.slots import Slot, environment, slots


def _settings(tmp_path, **values):
    return Settings(state_dir=tmp_path, **values)


def test_each_emulated_run_has_a_core_of_its_own(tmp_path):
    usable = sorted(os.sched_getaffinity(0))
    assert slots(_settings(tmp_path, slots=len(usable))) == [Slot(core=core) for core in usable]
    assert slots(_settings(tmp_path, slots=len(usable) + 1)) == [Slot()] * (len(usable) + 1)


def test_each_run_on_gpus_has_a_gpu_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    settings = _settings(tmp_path, capability="sm100", slots=2)
    assert slots(settings) == [Slot(gpu="3"), Slot(gpu="5")]
    made = environment(settings, Slot(gpu="5"))
    assert (made["CUDA_VISIBLE_DEVICES"], made["JAX_PLATFORMS"]) == ("5", "cuda")
    with pytest.raises(ValueError, match="PARITY_SLOTS is 3, expected at most the 2 GPUs"):
        slots(_settings(tmp_path, capability="sm100", slots=3))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,3")
    # two runs on one GPU would share its memory
    with pytest.raises(ValueError, match="at most the 1 GPUs"):
        slots(settings)


def test_emulated_runs_train_on_a_gpu_where_the_worker_offers_one(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings = _settings(tmp_path, capability="gpu", slots=1)
    assert settings.serves == "cpu"  # the capability of a job of engine emulated
    assert slots(settings) == [Slot(gpu="0")]
    # jax then has no processor to fall back to
    assert environment(settings, slots(settings)[0])["JAX_PLATFORMS"] == "cuda"
    assert {
        kind: _settings(tmp_path, capability=kind).serves for kind in ("cpu", "sm90", "sm100")
    } == {
        "cpu": "cpu",
        "sm90": "sm90",
        "sm100": "sm100",
    }


def test_a_training_process_gets_what_decides_bits_and_no_secret(tmp_path):
    inherited = {
        "PATH": "/bin",
        "NVTE_NVFP4_DISABLE_RHT": "1",
        "XLA_FLAGS": "--x",
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "PARITY_DATABASE_URL": "postgresql+psycopg://me:secret@db/parity",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HF_TOKEN": "secret",
    }
    made = environment(_settings(tmp_path), Slot(core=0), inherited)
    assert made.items() >= {
        (name, inherited[name])
        for name in ("PATH", "NVTE_NVFP4_DISABLE_RHT", "XLA_FLAGS", "JAX_DEFAULT_MATMUL_PRECISION")
    }
    assert "secret" not in " ".join(made.values())
    assert made["JAX_PLATFORMS"] == "cpu"
    assert "CUDA_VISIBLE_DEVICES" not in made


def test_a_training_process_asks_for_huge_pages_where_its_operator_says_nothing_else(tmp_path):
    assert (
        environment(_settings(tmp_path), Slot(), {})["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    )
    inherited = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    assert (
        environment(_settings(tmp_path), Slot(), inherited)["GLIBC_TUNABLES"]
        == inherited["GLIBC_TUNABLES"]
    )
