"""Profiles of recorded runs: numbers in the record, files in the run's folder."""

import threading

import numpy as np

from server.database.metrics import store
from server.database.tables import Run
from training.spec import ArmSpec
from workers import lease, supervisor
from workers.slots import Slot


def test_a_traced_run_is_profiled(settings, database, submit, make_worker):
    submit(steps=400, baseline=ArmSpec(recipe="bf16"))
    worker = make_worker()
    with database.write() as session:
        claim = lease.claim(session, worker, settings.lease_seconds)
    supervisor.train(
        settings.model_copy(update={"profile_steps": 5}), database, claim, Slot(), threading.Event()
    )
    with database.read() as session:
        assert session.get_one(Run, claim.run_id).state == "finished"
        steps, columns = store.read(session, claim.run_id, "profile")
    assert steps.tolist()[-1] == 399
    assert 5 <= columns["traced_steps"][-1] < 400
    assert 0 < columns["compute_share"][-1] <= 1
    assert columns["peak_memory_bytes"][-1] > 1 << 26
    assert np.isfinite(columns["compile_seconds"]).all()
    folder = settings.artifacts / f"{claim.run_id}-{claim.attempt_number}"
    assert list(folder.glob("plugins/profile/*/*.trace.json.gz"))
