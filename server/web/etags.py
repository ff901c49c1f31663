"""Entity tags of answers about runs and jobs that have ended and so do not change: repeating such a request costs nothing."""

from __future__ import annotations

import hashlib

from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run

_FORMAT = 2  # raise it with a change after which the same request gets another response


def entity_tag(ended: Run | Job, *question: object) -> str | None:
    """The tag of an answer about a run or a job that has ended; None while it has not, because then there is none.

    It is made from the identity of the record, not from the answer, so that it is known before anything is read. It is weak: the
    same answer may be sent in several encodings.
    """
    state, over = (ended.state, RUN_ENDED) if isinstance(ended, Run) else (ended.status, JOB_ENDED)
    if state not in over:
        return None
    # After its end nothing but retention writes a run's message, where it has dropped the curve.
    messages = [run.message for run in ([ended] if isinstance(ended, Run) else ended.runs)]
    content = repr((_FORMAT, ended.id, state, ended.finished_at, messages, question))
    return f'W/"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


def not_modified(tag: str | None, if_none_match: str) -> bool:
    """Whether the caller has this answer already."""
    tags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return tag is not None and (tag.removeprefix("W/") in tags or "*" in tags)


def tagged(tag: str | None) -> dict[str, str]:
    """The headers of an answer with this tag; the caller may cache it privately, and checks the tag before each use."""
    return {} if tag is None else {"ETag": tag, "Cache-Control": "private, no-cache"}
