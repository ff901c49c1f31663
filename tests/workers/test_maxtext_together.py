"""Real MaxText in two and in four processes on this machine's processors, as so many nodes would
train: started by a wrapper under a worker, killed and resumed, evaluated together, and judged.
`make test-maxtext` runs it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Attempt, Job, Run
from server.jobs import conclude, verdict_rows
from server.jobs.submit import Order, submit_job
from server.settings import CHECKOUT
from tests.workers.conftest import claim_next
from training.environment.maxtext_installed import VARIABLE
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, Model, Schedule
from workers import supervisor
from workers.slots import Slot

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
SRUN = (sys.executable, str(Path(__file__).with_name("play_srun.py")))
STEPS, SAVED = 120, 60
# Nobody measured the noise of so small a model, and none is assumed.
POLICY = policy_from_mapping(
    {"margin": "1.0%", "baseline_run_noise": "0.1%", "candidate_run_noise": "0.1%"}
)


class Together:
    """A job of baseline and candidate, and a worker whose wrapper starts so many processes."""

    def __init__(self, settings, database, worker, job_id, processes):
        self.settings = settings.model_copy(update={"wrapper": (*SRUN, str(processes))})
        self.database, self.worker, self.job_id = database, worker, job_id
        self.processes = processes

    def train(self, meanwhile=None):
        """Claim the next run and train it until its attempt ends; returns its id, or None."""
        claim = claim_next(self.database, self.worker, 3600.0)
        if claim is None:
            return None
        if meanwhile is not None:
            threading.Thread(target=meanwhile, args=(claim.run_id,), daemon=True).start()
        supervisor.train(self.settings, self.database, claim, Slot(), threading.Event())
        return claim.run_id

    def run(self, run_id):
        with self.database.read() as session:
            return session.get_one(Run, run_id)

    def curve(self, run_id):
        """The recorded steps of a run, and their losses."""
        with self.database.read() as session:
            steps, columns = store.read(session, run_id, "train", ["lm_loss"])
        return steps, columns["lm_loss"]

    def evaluated(self, run_id):
        """The steps whose checkpoints were evaluated."""
        with self.database.read() as session:
            return store.read(session, run_id, "validation", ["loss"])[0].tolist()

    def first_steps(self, run_id):
        """The first step of each attempt at a run."""
        with self.database.read() as session:
            of_run = select(Attempt.first_step).where(Attempt.run_id == run_id)
            return [*session.scalars(of_run.order_by(Attempt.attempt_number))]

    def kill_one(self, number, run_id):
        """Kill MaxText in one of the processes, once the run has trained beyond a checkpoint."""
        saved = self.settings.checkpoints / run_id / "run" / "checkpoints" / str(SAVED)
        while not saved.exists() or self.run(run_id).steps_done <= SAVED + 1:
            time.sleep(0.05)
        for process in _trainers():
            if process.environ()["JOB_COMPLETION_INDEX"] == str(number):
                process.send_signal(signal.SIGKILL)


def _trainers():
    """The MaxTexts that train."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if {"maxtext.trainers.pre_train.train", "run_name=run"} <= {*child.cmdline()}
    ]


@pytest.fixture
def make_together(settings, database, owner_database, make_job, make_worker, tmp_path, monkeypatch):
    """A function that queues a job for so many processes."""
    subprocess.run(
        [os.environ[VARIABLE], CHECKOUT / "tools" / "maxtext_data.py", tmp_path], check=True
    )
    # MaxText has one port for processes without GPUs
    monkeypatch.setenv("PARITY_COORDINATOR", "127.0.0.1:1234")
    # JAX keeps no program of the other processes, which compile each time
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    tokens = str(tmp_path / "train.parquet")

    def queue(processes, *, evaluates):
        job = make_job(
            engine="maxtext",
            layer_policy="all_linears",
            devices=processes,
            baseline=ArmSpec(recipe="bf16"),
            candidates=(ArmSpec(recipe="fp8_delayed"),),
            model=Model(vocab_size=512, d_model=64, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=128),
            data=Data(source="grain", path=tokens, sequence_length=64, batch_size=4),
            schedule=Schedule(
                steps=STEPS, warmup_steps=2, validation_every=SAVED if evaluates else 0
            ),
            maxtext=MaxTextOptions(
                hardware="cpu",
                implementation="xla",
                grain_file_type="parquet",
                grain_worker_count=0,
                tokenizer_path=str(tmp_path / "spm.model"),
                checkpoint_period=SAVED,
                eval_path=tokens,
                eval_steps=2,
            ),
        )
        with owner_database.write() as session:
            job_id = submit_job(session, job, POLICY, order=Order(reuse=False)).id
        worker = make_worker()
        worker.device |= {"devices": processes, "processes": processes, "slices": [processes]}
        return Together(settings, database, worker, job_id, processes)

    return queue


@pytest.mark.parametrize(("processes", "evaluates"), [(2, True), (4, False)])
def test_processes_train_together_to_a_verdict_and_resume_once_one_was_killed(
    make_together, processes, evaluates
):
    together = make_together(processes, evaluates=evaluates)
    baseline = together.train(partial(together.kill_one, processes - 1))
    run = together.run(baseline)
    assert (run.state, run.crashes) == ("queued", 1), run.message
    assert f"process {processes - 1}: MaxText was killed by signal 9" in run.message
    steps, losses = together.curve(baseline)
    assert len(steps) > SAVED + 1

    assert together.train() == baseline
    assert together.first_steps(baseline) == [0, SAVED + 1]
    again = together.curve(baseline)
    assert again[0].tolist() == list(range(STEPS))
    assert again[1][: len(steps)].tobytes() == losses.tobytes()

    candidate = together.train()
    assert candidate not in (None, baseline)
    assert together.train() is None
    for run in map(together.run, (baseline, candidate)):
        assert (run.state, run.code, run.steps_done) == ("finished", None, STEPS), run.message
        assert run.manifest["processes"] == str(processes)
        assert together.evaluated(run.id) == [SAVED] * evaluates

    conclude.conclude(together.database, together.job_id)
    with together.database.read() as session:
        (verdict,) = verdict_rows.verdict_documents(session.get_one(Job, together.job_id))
    assert verdict["verdict"] == "pass", verdict
