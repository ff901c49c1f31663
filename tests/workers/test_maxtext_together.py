"""Real MaxText in two processes on this machine's processors, as two nodes would train: started by
a wrapper under a worker, recorded by it, evaluated together, and trained again after one process
was killed. `make test-maxtext` runs it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from server.database.metrics import store
from server.database.tables import Run
from server.settings import CHECKOUT
from tests.workers.conftest import claim_next
from training.environment.maxtext_installed import VARIABLE
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, Model, Schedule
from workers import supervisor
from workers.slots import Slot

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
SRUN = (sys.executable, str(Path(__file__).with_name("play_srun.py")), "2")
STEPS, EVALUATED = 600, 400


@pytest.fixture
def train(settings, database, submit, make_worker, tmp_path, monkeypatch):
    """A function that claims the run of a job for two processes and trains it; returns its id."""
    subprocess.run(
        [os.environ[VARIABLE], CHECKOUT / "tools" / "maxtext_data.py", tmp_path], check=True
    )
    # MaxText has one port for processes without GPUs
    monkeypatch.setenv("PARITY_COORDINATOR", "127.0.0.1:1234")
    tokens = str(tmp_path / "train.parquet")
    submit(
        engine="maxtext",
        layer_policy="all_linears",
        devices=2,
        baseline=ArmSpec(recipe="bf16"),
        candidates=(ArmSpec(recipe="fp8_delayed"),),
        model=Model(vocab_size=512, d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=128),
        data=Data(source="grain", path=tokens, sequence_length=64, batch_size=4),
        schedule=Schedule(steps=STEPS, warmup_steps=2, validation_every=EVALUATED),
        maxtext=MaxTextOptions(
            hardware="cpu",
            implementation="xla",
            grain_file_type="parquet",
            grain_worker_count=0,
            tokenizer_path=str(tmp_path / "spm.model"),
            eval_path=tokens,
            eval_steps=2,
        ),
    )
    worker = make_worker()
    worker.device |= {"devices": 2, "processes": 2, "slices": [2]}

    def attempt(meanwhile=None):
        claim = claim_next(database, worker, 3600.0)
        if meanwhile is not None:
            threading.Thread(target=meanwhile, args=(claim,), daemon=True).start()
        launching = settings.model_copy(update={"wrapper": SRUN})
        supervisor.train(launching, database, claim, Slot(), threading.Event())
        return claim.run_id

    return attempt


def _second_process():
    """The second of the two MaxTexts that train, or None."""
    for child in psutil.Process().children(recursive=True):
        words = " ".join(child.cmdline())
        if "maxtext.trainers" in words and "run_name=run" in words and "metrics_file" not in words:
            return child
    return None


def test_two_processes_train_one_run_and_one_killed_alone_costs_an_attempt(database, train):
    killed = []

    def kill_one(claim):
        while not killed:
            time.sleep(0.2)
            with database.read() as session:
                begun = session.get_one(Run, claim.run_id).steps_done
            if begun and (process := _second_process()):
                process.send_signal(signal.SIGKILL)
                killed.append(begun)

    run_id = train(kill_one)
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert (run.state, run.crashes) == ("queued", 1), run.message
    assert train() == run_id
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert (run.state, run.code, run.steps_done) == ("finished", None, STEPS), run.message
        assert run.manifest["processes"] == "2"
        steps, columns = store.read(session, run_id, "train")
        at, held_out = store.read(session, run_id, "validation", ["loss"])
    assert steps.tolist() == list(range(STEPS))
    assert columns["lm_loss"][-1] < columns["lm_loss"][0]
    assert at.tolist() == [EVALUATED]
    assert 0 < held_out["loss"][0] < columns["lm_loss"][0] + 0.1
