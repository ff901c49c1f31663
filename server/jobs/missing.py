"""What a queued job lacks: sentences that its sender reads when the job is submitted, before it
waits for hours and then fails.

What it answers: will this job train as it stands, and what will it take?

    worker        no live worker can take it (`server.jobs.workers.why_waiting`)
    tokenizer     MaxText's, which tokens are made with; it has no default that fits a model
    data          nothing on this server has read the place where its data lie
    GPU           no run of its engine has finished on a GPU here, and its authors have run none
    device hours  as measured on an equal run, else modelled; and the job's limit of training time,
                  if a run exceeds it

All but the first concern jobs for GPUs alone, where a failed attempt is dear. Model of the device
hours, where nothing was measured:

    seconds of a run = 6 parameters tokens / (0.4 peak devices)       the dense bf16 peak of an H100
      or a B200

The assumption that can fail: a large model reaches 40 % of that peak. An emulated or a small one
does not, and low precision is meant to be faster; so the hours are an order of magnitude, and the
sentence says that they are modelled.
"""

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.wording import count, short_percent, tokens_words
from server.database.tables import DataRead, Job, Run
from server.jobs.fingerprint import job_spec
from server.jobs.outlook import equal_earlier_run
from training.rules import OTHERS_TRAINERS
from training.spec import JobSpec

_PEAKS = {"sm90": ("an H100", 0.99e15), "sm100": ("a B200", 2.25e15)}
_REACHED = 0.4
_HOUR = 3600.0


def missing(session: Session, job: Job, waiting: str | None) -> list[str]:
    """The sentences for a job of which nothing has started yet; none for any other. `waiting`: why
    no live worker can take it, or None.
    """
    if job.status != "queued" or job.engine in OTHERS_TRAINERS:
        return []
    found = [waiting] if waiting else []
    if job.capability in _PEAKS:
        spec = job_spec(job)
        found += [
            *_tokenizer(spec),
            *_data(session, job, spec),
            *_first_on_a_gpu(session, job),
            *_hours(session, job, spec),
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


def _hours(session: Session, job: Job, spec: JobSpec) -> Iterator[str]:
    earlier = equal_earlier_run(session, spec, job.read_policy())
    device, peak = _PEAKS[job.capability]
    if earlier is not None and earlier.step_seconds is not None:
        seconds, how = (
            earlier.step_seconds * spec.schedule.steps,
            f"by the steps of run {earlier.run}",
        )
    else:
        tokens = spec.schedule.steps * spec.data.tokens_per_step
        seconds = 6.0 * spec.model.parameters * tokens / (_REACHED * peak * job.devices)
        how = (
            f"modelled: {tokens_words(tokens)} a run at {short_percent(_REACHED)} of {device}'s "
            "bf16 peak"
        )
    lengths = [run.length / spec.schedule.steps for run in job.runs if run.state == "queued"]
    longest, total = seconds / _HOUR, sum(lengths) * seconds * job.devices / _HOUR
    runs = (
        f"{count(len(lengths), 'run')} of up to {_hours_text(longest)} h on "
        f"{count(job.devices, 'device')}"
    )
    yield f"About {_hours_text(total)} device hours: {runs} ({how})."
    if job.max_run_seconds is not None and seconds > job.max_run_seconds:
        yield (
            f"A run would be failed after {_hours_text(job.max_run_seconds / _HOUR)} h, the limit "
            "of its training time (max_run_seconds)."
        )


def _hours_text(hours: float) -> str:
    """Three digits, without an exponent."""
    if hours >= 100:
        return f"{hours:,.0f}"
    return f"{hours:.3g}"
