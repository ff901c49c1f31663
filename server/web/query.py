"""Query parameters and headers that the routes of curves share, and a fast JSON response for long documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import TypeAdapter

from server.web.limits import LARGEST

FirstStep = Annotated[int, Query(alias="from", ge=0, le=LARGEST, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=LARGEST, description="last step")]
Spacing = Annotated[Literal["linear", "log"], Query(description="buckets of equal length in steps, or in the logarithm of the step")]


def json_response(adapter: TypeAdapter[Any], document: object, headers: Mapping[str, str]) -> Response:
    """A document of long columns as JSON, serialized directly; the framework's own conversion takes five times as long."""
    return Response(adapter.dump_json(document), media_type="application/json", headers=dict(headers))
