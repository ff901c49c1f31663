"""What a server says in the bundle of a job, and nobody can recompute: the job's id, the job whose
fail stands against its pass, and the sign-offs of its verdicts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.frozen import frozen
from parity.judging.verdict.sign_offs import sha256_of
from parity.typed_json import shown

JOB, SIGN_OFFS = "job.json", "sign_offs.json"
JOB_ID = re.compile(r"j[0-9a-f]{12,}-[0-9a-f]{10}")
_SIGNED = {"candidate", "who", "state", "expires_at", "reason", "verdict_sha256"}


@frozen
class BundleJob:
    """The job that a bundle was made of, and the one whose fail on the same question stood against
    its pass at that time, if any.
    """

    id: str
    failed_by: str | None = None


def read_job(value: Mapping[str, Any]) -> BundleJob:
    """The job of a bundle from its file. Raises ValueError for anything else in it."""
    job = BundleJob(**value) if value.keys() == {"id", "failed_by"} else None
    if job is None or not _is_job(job.id) or not (job.failed_by is None or _is_job(job.failed_by)):
        raise ValueError(f"{JOB} is not the record of a job")
    return job


def read_sign_offs(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sign-offs of a bundle from their file. Raises ValueError for anything else in it."""
    listed = value.get("sign_offs")
    if not isinstance(listed, list) or not all(
        isinstance(entry, dict) and entry.keys() >= _SIGNED for entry in listed
    ):
        raise ValueError(f"{SIGN_OFFS} is not a list of sign-offs")
    return listed


def sign_offs_of_no_verdict(
    sign_offs: Sequence[Mapping[str, Any]], recorded: object
) -> Iterator[str]:
    """A line for each sign-off that does not belong to a verdict of the bundle."""
    verdicts = (
        [verdict for verdict in recorded if isinstance(verdict, dict)]
        if isinstance(recorded, list)
        else []
    )
    if not sign_offs:
        return
    names = {
        sha256_of(verdict): (verdict.get("candidate") or {}).get("name") for verdict in verdicts
    }
    for index, sign_off in enumerate(sign_offs):
        if (
            sign_off["state"] != "void"
            and names.get(str(sign_off["verdict_sha256"])) != sign_off["candidate"]
        ):
            candidate = shown(sign_off["candidate"])
            yield f"sign_offs[{index}]: of no verdict on {candidate} in the bundle"


def job_words(job: BundleJob) -> str:
    """What the server said of a job, as a sentence."""
    if job.failed_by is None:
        return f"job {job.id}: no fail stood against it when the bundle was made"
    return (
        f"job {job.id}: a pass of it did not count when the bundle was made, because job "
        f"{job.failed_by} failed the same question"
    )


def sign_off_words(sign_off: Mapping[str, Any]) -> str:
    """What the server said of a sign-off, as a sentence."""
    who, candidate, state, until, reason = (
        printable(sign_off[key]) for key in ("who", "candidate", "state", "expires_at", "reason")
    )
    return (
        f"sign-off of {candidate} by {who}, {state} when the bundle was made, until {until}: "
        f"{reason}"
    )


def printable(value: object) -> str:
    """A value of a file as one line of printable ASCII, plain text without quotes."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return value
    return ascii(value)


def _is_job(value: object) -> bool:
    return isinstance(value, str) and JOB_ID.fullmatch(value) is not None
