"""What the routes of curves are asked in common: a range of steps, and whether the caller has the answer already."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header, Query

MAX_STEP = 2**53
FirstStep = Annotated[int, Query(alias="from", ge=0, le=MAX_STEP, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP, description="last step")]
Spacing = Annotated[Literal["linear", "log"], Query(description="ranges of equal length in steps, or in the step's logarithm")]
IfNoneMatch = Annotated[str, Header(description="the ETag of an earlier answer")]
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "What If-None-Match names is still right"}}
