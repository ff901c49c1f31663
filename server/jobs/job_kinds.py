"""Kinds of jobs that the judge does not compare: what a worker measures for one, how it ends, and
where its page is.

The lab has them all.

A job has such a kind if its run has: `Run.kind`. Nothing here imports the lab before a job of one
is met.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from sqlalchemy.orm import Session

from parity.extensions import lab
from parity.frozen import frozen
from parity.judging.noise.noise_table import NoiseTable
from server.database.tables import Job, Run


@frozen
class JobOutcome:
    """How a job ends: its verdicts (each the judge's document and its canonical text), or the
    reason why it has none.

    `paths` are those of its verdicts, as JSON by candidate. `noise_table` are the groups of reruns
    from which the verdicts borrow, `reruns` those of the job itself. A job that is not judged may
    be `complete` without a verdict; `write` writes what it has instead. With `further`, which
    calls up runs that it held back, the job does not end yet.
    """

    verdicts: Sequence[tuple[Mapping[str, Any], str]] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    noise_table: NoiseTable | None = None
    reruns: NoiseTable | None = None
    code: str | None = None
    message: str | None = None
    complete: bool = False
    write: Callable[[Session], None] | None = None
    further: Callable[[Session], None] | None = None


@frozen
class Kind:
    """A kind of job without a verdict.

    `request`: what the training process of its run measures, as a document; None: the run trains
    like any other. `conclude`: how the job ends, or goes on, once its runs have ended. `page`: the
    path of its page. `links`: what its document links to, beside what every job does.
    """

    request: Callable[[Session, Run], Mapping[str, object] | None]
    conclude: Callable[[Session, Job], JobOutcome]
    page: Callable[[Session, Job], str]
    links: Callable[[Session, Job], Mapping[str, str]]


def kind_of(job: Job) -> Kind | None:
    """The kind of a job; None for one that is judged, and where the lab is taken away."""
    name = job.runs[0].kind if job.runs else "full"
    module = lab().part("kinds") if name in lab().kinds else None
    if module is None:
        return None
    kind: Kind = module.KINDS[name]
    return kind


def needed_kind(job: Job) -> Kind:
    """The kind of a job that is not judged. Raises LookupError where the lab is taken away."""
    kind = kind_of(job)
    if kind is None:
        raise LookupError(
            f"job {job.id} has a run of kind {job.runs[0].kind}, which needs the lab; this "
            "installation has none"
        )
    return kind
