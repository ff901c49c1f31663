"""The reruns on record, by family, as the table that `parity compare --floors` reads."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from server.jobs.floors import floors_on_record
from server.web.auth import requires
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["floors"], dependencies=[Depends(requires("view"))])


@router.get("/floors", response_class=Response, responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}})
def table(context: InContext) -> Response:
    """The groups of reruns on record (CSV): family, runs, mean loss and its standard deviation over runs, rounding."""
    with context.database.read() as session:
        text = floors_on_record(session).csv()
    return Response(text, media_type="text/csv")
