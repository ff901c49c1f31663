"""What workers read: the digest of the data at each place, by the newest run that a worker began
to train on it.

Only workers write it, in the transaction that records a run's manifest. A curve that is reused,
and an external run, whose manifest says what its sender likes, are no evidence of what lies at a
path now.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.locks import hold_lock
from server.database.tables import DataRead, Job, Run
from server.jobs.workers import short
from server.json_digest import digest
from training.spec import JobSpec, RunSpec


def place_of(spec: JobSpec | RunSpec) -> str | None:
    """SHA-256 of where a specification's data lie; None for a source without a path, which belongs
    to the trainer.
    """
    if spec.data.path is None:
        return None
    where: dict[str, Any] = {"source": spec.data.source, "path": posixpath.normpath(spec.data.path)}
    if spec.engine == "maxtext":  # what its digest covers (`training.engines.maxtext.data_digest`)
        options = {
            "tokenizer_path": spec.maxtext.tokenizer_path,
            "eval_path": spec.maxtext.eval_path,
            "hf_train_files": spec.maxtext.hf_train_files,
        }
        where |= {"data": spec.data.document(), "maxtext": options}
    return digest(where)


def record_data(session: Session, spec: RunSpec, run_id: str, manifest: Mapping[str, str]) -> None:
    """Note what a worker has just read for a run, as its manifest says. Call it in a worker's
    transaction, which holds the run.
    """
    place, read = place_of(spec), manifest.get("data_digest")
    if place is None or read is None:
        return
    hold_lock(session, f"data {place}")  # two workers may be the first to read a place
    row = session.get(DataRead, place) or DataRead(place=place)
    row.digest, row.run_id = read, run_id
    session.add(row)


def changed_since(session: Session, job: Job, then: set[str | None]) -> str | None:
    """Why the data of a job, whose runs read the digests `then`, are others now, or may be; None if
    nothing is known against them.

    The data of a user's own trainer are known from what later runs of such trainers state: one that
    states another digest is enough, so that no further statement takes it back.
    """
    if job.data_place is None or not then:
        return None
    what = f"the data at {job.spec['data']['path']}"
    if job.engine == "external":
        other_reads = (
            Job.data_place == job.data_place,
            Job.id > job.id,
            Job.engine == "external",
            Run.manifest.is_not(None),
        )
        rows = session.execute(
            select(Run.id, Run.manifest).join(Job, Job.id == Run.job_id).where(*other_reads)
        )
        stated = ((run_id, (manifest or {}).get("data_digest")) for run_id, manifest in rows)
        run_id, now = next(
            ((run_id, read) for run_id, read in stated if read not in then), (None, None)
        )
        if run_id is None:
            return None
        return f"{what} changed: run {run_id} states {short(now)}, this job {_listed(then)}"
    read = session.get(DataRead, job.data_place)
    if then == {read and read.digest}:
        return None
    if read is None:
        return f"no worker has recorded a digest of {what}"
    return f"{what} changed: run {read.run_id} read {short(read.digest)}, this job {_listed(then)}"


def _listed(digests: set[str | None]) -> str:
    return ", ".join(sorted(map(short, digests)))
