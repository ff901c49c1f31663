"""Profiles of recorded runs: numbers in the record, files in the run's folder, and Nsight Systems around the process."""

import threading

import numpy as np

from server.database import store
from server.database.tables import Run
from training.spec import Arm
from workers import lease, supervisor, trainer
from workers.slots import Slot


def _train(settings, database, worker):
    with database.write() as session:
        held = lease.claim(session, worker, settings.lease_seconds)
    supervisor.train(settings, database, held, Slot(), threading.Event())
    with database.read() as session:
        assert session.get_one(Run, held.run_id).state == "finished"
        return held, store.read(session, held.run_id, "profile")


def test_a_traced_run_under_nsys_is_profiled(settings, database, submit, make_worker, tmp_path, monkeypatch):
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(
        '#!/bin/sh\nfor word; do case $word in --output=*) report="${word#--output=}.nsys-rep";; esac; done\n'
        'while [ "$1" != -m ]; do python="$1"; shift; done\n"$python" "$@"\nstatus=$?\nsleep 0.3\necho report > "$report"\nexit $status\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/usr/bin:/bin")
    submit(steps=400, baseline=Arm(recipe="bf16"))
    held, (steps, columns) = _train(settings.model_copy(update={"profile_steps": 5, "nsys": True}), database, make_worker())
    assert steps.tolist()[-1] == 399
    assert 5 <= columns["traced_steps"][-1] < 400
    assert 0 < columns["compute_share"][-1] <= 1
    assert columns["peak_memory_bytes"][-1] > 1 << 26
    assert np.isfinite(columns["compile_seconds"]).all()
    folder = settings.artifacts / f"{held.run_id}-{held.epoch}"
    assert list(folder.glob("plugins/profile/*/*.trace.json.gz"))
    assert [path.name for path in folder.glob("*.nsys-rep")] == ["nsys-%h-%p.nsys-rep"]  # its report was waited for


def test_without_nsys_on_the_path_the_run_is_trained_all_the_same(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert trainer.nsys(settings.model_copy(update={"nsys": True}), str(tmp_path / "artifacts")) == []
    assert trainer.nsys(settings, str(tmp_path / "artifacts")) == []
    assert not (tmp_path / "artifacts").exists()
