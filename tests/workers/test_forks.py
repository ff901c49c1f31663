"""The forks of a plan by a real worker: a question of its own needs a kind of job and its plan, and
no code of an analysis.
"""

import threading
from dataclasses import replace

import pytest

from parity.judging.policy import policy_from_mapping
from parity_lab.forks import ForkPlan, planned_forks
from parity_lab.replay import planned
from parity_lab.server import kinds
from parity_lab.server.forks import (
    derived_job,
    fork_parents,
    fork_request,
    kept_step,
    results_of,
)
from parity_lab.server.replays import recorded, replayed_runs
from server.database.tables import Job
from server.jobs.fingerprint import job_spec
from server.jobs.submit import Order, submit_job
from training.overrides import Override
from training.spec import ArmSpec
from workers import lease, supervisor
from workers.slots import Slot

STEPS, STEP, FORK_STEPS = 40, 24, 4
TAKEN_BACK = Override(recipe="bf16", projections=("down",))


@pytest.fixture
def worker(make_worker):
    return make_worker()


def test_the_forks_of_a_plan_are_trained_from_kept_checkpoints(
    settings, database, worker, make_job, monkeypatch
):
    def train():
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        supervisor.train(settings, database, claim, Slot(), threading.Event())

    arms = {"baseline": ArmSpec(recipe="bf16"), "candidates": (ArmSpec(recipe="nvfp4"),)}
    spec = make_job(steps=STEPS, keep_checkpoints=(STEP,), **arms)
    with database.write() as session:
        origin = submit_job(session, spec, policy_from_mapping({"margin": "40%"})).id
    with database.read() as session:
        runs = len(session.get_one(Job, origin).runs)
    for _ in range(runs):
        train()
    with database.write() as session:
        job = session.get_one(Job, origin)
        baseline, candidate = job.arms
        step = kept_step(candidate, None, STEPS)
        parents = fork_parents(session, candidate, step)
        replayed = replayed_runs(session, baseline, candidate, parents)
        records = [recorded(session, run, role) for role, runs in replayed.items() for run in runs]
        plan = ForkPlan(
            parents=tuple(parent.id for parent in parents),
            fork_step=step,
            fork_steps=FORK_STEPS,
            forks=planned_forks(["as-it-is", "taken-back"], [run.id for run in parents], 2),
            replays=planned(records, whole=0),
        )
        whole = job_spec(job)
        first_candidate = whole.candidates[0]
        forked = replace(
            whole,
            name="forks",
            candidates=(
                replace(first_candidate, name="as-it-is"),
                replace(first_candidate, name="taken-back", overrides=(TAKEN_BACK,)),
            ),
            keep_checkpoints=(),
        )
        run = {"kind": "why", "seed": parents[0].seed, "replicate": parents[0].replicate}
        run["planned_steps"] = int(plan.most_steps)
        made = derived_job(session, job, forked, None, Order(), [(1, run)]).id
    question = replace(
        kinds.KINDS["why"], request=lambda session, run: fork_request(session, run, plan)
    )
    monkeypatch.setitem(kinds.KINDS, "why", question)
    train()
    with database.read() as session:
        (run,) = session.get_one(Job, made).runs
        assert (run.state, run.code, run.steps_done) == ("finished", None, int(plan.most_steps))
        results = results_of(session, made)
    assert (step, plan.fork_step) == (STEP, STEP)
    # the record of both arms is bit-equal, from step 0 and from the checkpoint
    assert [replayed.state for replayed in plan.checked(results).replayed] == ["bit-equal"] * 4
    assert plan.pending(results) == ()
    losses = [
        loss
        for arm in ("as-it-is", "taken-back")
        for fork_losses in plan.losses(results, arm).values()
        for loss in fork_losses
    ]
    assert all(0.0 < loss < 20.0 for loss in losses)
    assert len(set(losses)) == len(losses) == len(plan.forks)  # arms and draws differ
