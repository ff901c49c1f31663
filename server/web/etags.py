"""Entity tags of responses about ended runs and jobs. These no longer change, so repeating such a request is cheap."""

from __future__ import annotations

import hashlib

from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run

_FORMAT = 2  # raise it with a change that alters the response to the same request


def entity_tag(ended: Run | Job, *question: object) -> str | None:
    """The tag of a response about a run or a job that has ended; None before its end.

    It is made from the identity of the record, not from the response, so that it is known before anything is read. It is a weak tag,
    because the same response may be sent in several encodings.
    """
    state, over = (ended.state, RUN_ENDED) if isinstance(ended, Run) else (ended.status, JOB_ENDED)
    if state not in over:
        return None
    # After a run's end only retention changes its message, when it deletes the curve.
    messages = [run.message for run in ([ended] if isinstance(ended, Run) else ended.runs)]
    content = repr((_FORMAT, ended.id, state, ended.finished_at, messages, question))
    return f'W/"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


def not_modified(tag: str | None, if_none_match: str) -> bool:
    """Whether the client already has this response."""
    tags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return tag is not None and (tag.removeprefix("W/") in tags or "*" in tags)


def tagged(tag: str | None) -> dict[str, str]:
    """The headers of a response with this tag: clients may cache it privately and must check the tag before each use."""
    return {} if tag is None else {"ETag": tag, "Cache-Control": "private, no-cache"}
