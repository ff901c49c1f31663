"""The keys of a query, and query parameters that the routes of curves share.

A misspelt key would be ignored, and the response would be to another question.
"""

from typing import Annotated, Literal

from fastapi import Query
from fastapi.dependencies.models import Dependant
from starlette.requests import Request

from server.errors import InvalidError
from server.web.limits import LARGEST
from server.web.requests.texts import escaped


# in the event loop: it takes no time, and waits for no thread
async def check_query(request: Request) -> None:
    """InvalidError for a key that the route does not know, with those that it knows."""
    if not request.query_params:
        return
    keys = _query_keys(request.scope["route"].dependant)
    unknown = next((key for key in request.query_params if key not in keys), None)
    if unknown is not None:
        expected = f"one of {', '.join(keys)}" if keys else "no query at all"
        raise InvalidError.at(
            f"/query/{escaped(unknown)}",
            f"query key {unknown!r:.80} is not known here; expected {expected}",
        )


def _query_keys(dependant: Dependant) -> list[str]:
    """The keys that a route reads, and those that its dependencies read."""
    return [
        *(parameter.alias for parameter in dependant.query_params),
        *(key for part in dependant.dependencies for key in _query_keys(part)),
    ]


FirstStep = Annotated[int, Query(alias="from", ge=0, le=LARGEST, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=LARGEST, description="last step")]
Spacing = Annotated[
    Literal["linear", "log"],
    Query(description="buckets of equal length in steps, or in the logarithm of the step"),
]
