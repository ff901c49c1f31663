"""Entity tags of responses about ended runs and jobs. These no longer change, so repeating such a
request is cheap.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Header, Response

from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run

_FORMAT = 2  # raise it with a change that alters the response to the same request


def entity_tag(ended: Run | Job, *question: object) -> str | None:
    """The tag of a response about a run or a job that has ended; None before its end.

    It is made from the identity of the record, not from the response, so that it is known before
    anything is read. It is a weak tag, because the same response may be sent in several encodings.
    """
    state, over = (ended.state, RUN_ENDED) if isinstance(ended, Run) else (ended.status, JOB_ENDED)
    if state not in over:
        return None
    # After a run's end only retention changes its message, when it deletes the curve.
    messages = [run.message for run in ([ended] if isinstance(ended, Run) else ended.runs)]
    content = repr((_FORMAT, ended.id, state, ended.finished_at, messages, question))
    return f'W/"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


class NotModifiedError(Exception):
    """The client already has the response; `problems.install` answers 304 with these headers."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__("not modified")
        self.headers = headers


_IfNoneMatch = Annotated[str, Header(description="the ETag of an earlier response")]


class ClientCopy:
    """What a route knows of the copy that its client has."""

    def __init__(self, response: Response, if_none_match: _IfNoneMatch = "") -> None:
        self._response = response
        self._known = {part.strip().removeprefix("W/") for part in if_none_match.split(",")}

    def check(self, ended: Run | Job, *question: object, vary: str | None = None) -> dict[str, str]:
        """Tag the response about a run or a job; returns its headers. Ends the request with 304 if
        the client already has the response.

        Clients may cache a tagged response privately, and must check the tag before each use.
        """
        tag = entity_tag(ended, *question)
        headers = {} if vary is None else {"Vary": vary}
        if tag is not None:
            headers |= {"ETag": tag, "Cache-Control": "private, no-cache"}
            if self._known & {tag.removeprefix("W/"), "*"}:
                raise NotModifiedError(headers)
        self._response.headers.update(headers)
        return headers


Tags = Annotated[ClientCopy, Depends()]
UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The response named by If-None-Match is still current"}
}
