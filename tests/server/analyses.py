"""A judged job whose candidate has another format in one layer, with kept checkpoints; and the
results of its analysis, simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.judging.curves.curve import Rounding
from parity.judging.policy import policy_from_mapping
from parity.recipes import ALWAYS_STOCHASTIC
from parity_lab.analysis import next_measurement
from parity_lab.analysis_plan import setup_from
from parity_lab.server.forks import derived_job
from parity_lab.server.tables import Analysis, AnalysisResult
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job, Run
from server.jobs.conclude import decide, write_outcome
from server.jobs.fingerprint import job_spec
from server.jobs.submit import Order, submit_job
from tests.conftest import small_job
from tests.parity_lab.simulated import measure
from training.overrides import Override
from training.spec import ArmSpec

STEPS, KEPT = 1000, 600
FAULT = Override(recipe="mxfp4", projections=("down",))
UNITS = ["0.down.fprop", "0.down.dgrad", "0.down.wgrad"]
_MANIFEST = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}


def stated_rounding(run: Run) -> Rounding:
    """How a run rounds, as a worker records it: to nearest where its recipe allows that."""
    return "stochastic" if run.arm.stated_recipe in ALWAYS_STOCHASTIC else "nearest"


def make_explained(
    database: Database,
    gap: float = 0.05,
    baseline: Any = "fp8_current",
    candidate: Any = "fp8_current",
    kept: tuple[int, ...] = (KEPT,),
    overrides: tuple[Override, ...] = (FAULT,),
    name: str = "planted",
    policy: Mapping[str, Any] = {"margin": "1.0%"},
    rate: float = 1e-3,
    broken: int = STEPS,
    **changes: Any,
) -> str:
    """A concluded job whose candidate, of this learning rate, is worse by a gap in nats; its
    weights break at step `broken`. Its id.
    """
    spec = small_job(
        STEPS,
        baseline=ArmSpec(recipe=baseline, name="base", replicates=3),
        candidates=(ArmSpec(recipe=candidate, name=name, overrides=overrides, replicates=3),),
        keep_checkpoints=kept,
        **changes,
    )
    generator, at = np.random.default_rng(3), np.arange(STEPS)
    batches = generator.normal(0, 0.01, STEPS)  # both arms see the same ones
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping(policy))
        job.status, job.device_class, job.threads = "running", "cpu:test", 1
        for run in job.runs:
            peak = rate if run.arm.position else 1e-3
            level = 1.4 + (gap if run.arm.position else 0) + generator.normal(0, 0.001)
            loss = level + np.exp(-at / 40) + batches + generator.normal(0, 0.001, STEPS)
            norms = (
                10.0
                + np.cumsum(generator.normal(0, 1e-4, STEPS))
                + (at >= broken) * 0.05 * run.arm.position
            )
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {
                    "lm_loss": loss,
                    "loss": loss,
                    "learning_rate": peak * (0.55 + 0.45 * np.cos(np.pi * at / STEPS)),
                    "param_norm": norms,
                    "update_norm": generator.lognormal(0, 0.01, STEPS),
                },
            )
            run.state, run.attempt_number, run.steps_done, run.rounding, run.manifest = (
                "finished",
                1,
                STEPS,
                stated_rounding(run),
                _MANIFEST,
            )
            run.kept_checkpoints = [*kept]
        session.flush()
        write_outcome(session, job.id, decide(session, job.id))
        return job.id


ABLATED = {"full": 0.05, "without-mlp": 0.012, "without-attention": 0.035}


def make_ablated(
    database: Database,
    engine: Any = "external",
    replicates: int = 3,
    gaps: Mapping[str, float] = ABLATED,
    spread: float = 0.001,
) -> str:
    """A concluded job of a full recipe and ablations of it, with gaps in nats; its id."""
    spec = small_job(
        STEPS,
        engine=engine,
        baseline=ArmSpec(recipe="bf16", name="base", replicates=replicates),
        candidates=tuple(
            ArmSpec(recipe="nvfp4", name=name, replicates=replicates) for name in gaps
        ),
    )
    common, at = np.random.default_rng(5).normal(0, 0.05, STEPS), np.arange(STEPS)
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1.0%"}))
        job.status, job.device_class, job.threads = "running", "cpu:test", 1
        for run in job.runs:
            generator = np.random.default_rng([run.arm.position, run.replicate])
            level = 2.0 + gaps.get(run.arm.name, 0.0) + generator.normal(0, spread)
            loss = level + np.exp(-at / 40) + common + generator.normal(0, 0.01, STEPS)
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {
                    "lm_loss": loss,
                    "loss": loss,
                    "learning_rate": 1e-3 * (0.55 + 0.45 * np.cos(np.pi * at / STEPS)),
                },
            )
            run.state, run.attempt_number, run.steps_done, run.rounding = (
                "finished",
                1,
                STEPS,
                stated_rounding(run),
            )
            run.manifest = {"data_digest": "d"}
        session.flush()
        write_outcome(session, job.id, decide(session, job.id))
        return job.id


def measured(
    database: Database,
    job_id: str,
    costs: dict[str, float],
    most: int = 10_000,
    departs: int | None = None,
) -> None:
    """Write the results of a simulated candidate, at most this many; with all of them the run has
    ended.

    `departs`: the step from which the record of its first run is not what training it again gives.
    """
    with database.write() as session:
        job = session.get_one(Job, job_id)
        setup, results = setup_from(session.get_one(Analysis, job_id).setup), {}  # type: ignore[var-annotated]
        while len(results) < most and (wanted := next_measurement(setup, results)) is not None:
            results[wanted.key] = measure(setup, wanted, costs)
            if (
                departs is not None
                and wanted.replay is not None
                and wanted.replay.arm == "candidate"
            ):
                results[wanted.key] |= {"departs": departs, "by": 0.012, "mean": 0.01}
        run = job.runs[0]
        session.add_all(
            AnalysisResult(run_id=run.id, key=key, value=value) for key, value in results.items()
        )
        job.status, run.attempt_number, run.fingerprint = "running", 1, "f"
        run.state = "finished" if next_measurement(setup, results) is None else "running"


def make_retired(database: Database, origin: str) -> str:
    """A job of forks of a question that this version does not ask, as a migration leaves it; its
    id.
    """
    with database.write() as session:
        job = session.get_one(Job, origin)
        run = {
            "kind": "retired",
            "seed": 0,
            "replicate": 0,
            "planned_steps": 40,
            "forked_from": job.runs[0].id,
        }
        spec = replace(job_spec(job), name=f"forks of {job.name}")
        made = derived_job(session, job, spec, None, Order(), [(1, run)])
        made.status, made.finished_at = "concluded", made.created_at
        made.runs[0].state, made.runs[0].attempt_number = "finished", 1
        return made.id
