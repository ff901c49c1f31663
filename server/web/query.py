"""Query parameters that the routes of curves share."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from server.web.limits import LARGEST

FirstStep = Annotated[int, Query(alias="from", ge=0, le=LARGEST, description="first step")]
LastStep = Annotated[int | None, Query(alias="to", ge=0, le=LARGEST, description="last step")]
Spacing = Annotated[Literal["linear", "log"], Query(description="buckets of equal length in steps, or in the logarithm of the step")]
