"""What the routes of curves have in common: a range of steps, whether the caller has the answer already, and answers that are long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Response
from pydantic import TypeAdapter

MAX_STEP = 2**53
FirstStep = Annotated[int, Query(alias="from", ge=0, le=MAX_STEP, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP, description="last step")]
Spacing = Annotated[Literal["linear", "log"], Query(description="ranges of equal length in steps, or in the step's logarithm")]
IfNoneMatch = Annotated[str, Header(description="the ETag of an earlier answer")]
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "What If-None-Match names is still right"}}


def long_answer(form: TypeAdapter[Any], document: object, headers: Mapping[str, str]) -> Response:
    """A document of long columns as JSON, written at once: the framework's way over plain values takes five times as long."""
    return Response(form.dump_json(document), media_type="application/json", headers=dict(headers))
