"""What a queued job lacks: sentences that its sender reads when the job is submitted, before it
waits for hours and then fails.

What it answers: will this job train as it stands, and what will it take?

    worker        no live worker can take it (`server.jobs.workers.why_waiting`)
    tokenizer     MaxText's, which tokens are made with; it has no default that fits a model
    data          nothing on this server has read the place where its data lie
    GPU           no run of its engine has finished on a GPU here, and its authors have run none
    device hours  what its runs will take (`server.jobs.device_hours`)

All but the first concern jobs for GPUs alone, where a failed attempt is dear.
"""

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.tables import DataRead, Job, Run
from server.jobs.device_hours import PEAKS, device_hours
from server.jobs.fingerprint import job_spec
from training.rules import OTHERS_TRAINERS
from training.spec import JobSpec


def missing(session: Session, job: Job, waiting: str | None) -> list[str]:
    """The sentences for a job of which nothing has started yet; none for any other. `waiting`: why
    no live worker can take it, or None.
    """
    if job.status != "queued" or job.engine in OTHERS_TRAINERS:
        return []
    found = [waiting] if waiting else []
    if job.capability in PEAKS:
        spec = job_spec(job)
        found += [
            *_tokenizer(spec),
            *_data(session, job, spec),
            *_first_on_a_gpu(session, job),
            *device_hours(
                session,
                spec,
                job.read_policy(),
                job.capability,
                [run.length / spec.schedule.steps for run in job.runs if run.state == "queued"],
                job.max_run_seconds,
            ),
        ]
    return found


def _tokenizer(spec: JobSpec) -> Iterator[str]:
    if spec.engine == "maxtext" and not spec.maxtext.tokenizer_path:
        size = f"model.vocab_size = {spec.model.vocab_size:,}"
        yield (
            "maxtext.tokenizer_path is not set: MaxText makes the tokens, and needs the tokenizer "
            f"that belongs to {size}."
        )


def _data(session: Session, job: Job, spec: JobSpec) -> Iterator[str]:
    if job.data_place is not None and session.get(DataRead, job.data_place) is None:
        tokenizer = f" or {spec.maxtext.tokenizer_path}" if spec.maxtext.tokenizer_path else ""
        yield (
            f"No worker has read {spec.data.path}{tokenizer} yet. A run fails at its start unless "
            "its worker's PARITY_DATA_ROOTS hold them."
        )


def _first_on_a_gpu(session: Session, job: Job) -> Iterator[str]:
    on_a_gpu = (
        select(Run.id)
        .join(Job, Job.id == Run.job_id)
        .where(Job.engine == job.engine, Job.device_class.like("gpu:%"))
    )
    if (
        session.scalar(on_a_gpu.where(Run.state == "finished", Run.reused_from.is_(None)).limit(1))
        is None
    ):
        yield (
            f"Engine {job.engine} has not run on a GPU yet, neither where it was written nor on "
            "this server. Try a few steps first."
        )
