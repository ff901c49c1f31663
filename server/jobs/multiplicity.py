"""Which look of how many a job is, and how many candidates share the error."""

from __future__ import annotations

from parity.judging.multiplicity import MAX_LOOKS, Multiplicity
from server.database.tables import Job


def multiplicity_of(job: Job) -> Multiplicity | None:
    """Which look of how many a job is, and how many candidates share the error; None if its looks
    are not counted.
    """
    if job.look is None or job.look_candidates is None:
        return None
    looks = job.read_policy().looks
    if job.looked_at is not None:  # a project, whose looks nobody registers before they are taken
        looks = min(MAX_LOOKS, max(job.look, looks))
        return Multiplicity(
            look=min(job.look, looks), looks=looks, candidates=job.look_candidates, registered=True
        )
    return Multiplicity(look=job.look, looks=looks, candidates=job.look_candidates, registered=True)
