"""Reruns as tables over REST: those on record, by family, and those that were imported; both as
`parity compare --noise-table` reads them.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from parity.frozen import frozen
from parity.judging.noise.noise_table import MAX_BYTES, MAX_NAME
from server.jobs.imported_noise import Import, import_noise_table, imported_noise_tables
from server.jobs.noise_tables import noise_table_on_record
from server.records import Body
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["noise tables"], route_class=BodyRoute)


@frozen
class ImportRequest(Body):
    """A noise table (CSV), and the one family of it that is imported; null: all."""

    table: Annotated[str, Field(max_length=MAX_BYTES)]
    family: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None


@router.get(
    "/noise-tables",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def table(
    context: InContext,
    of: Annotated[
        Literal["record", "imported"],
        Query(description="reruns of this server's jobs, or those that were imported"),
    ] = "record",
) -> Response:
    """The groups of reruns on record, or those imported (CSV): family, runs, mean loss and its
    standard deviation over runs, rounding.
    """
    with context.database.read() as session:
        text = (
            noise_table_on_record(session) if of == "record" else imported_noise_tables(session)
        ).csv()
    return Response(text, media_type="text/csv")


@router.post("/noise-tables", status_code=201)
def import_table(request: StrictBody[ImportRequest], context: InContext, who: Sender) -> Import:
    """Import a noise table, for jobs that name one of its families. All or nothing; the same groups
    twice change nothing.

    422 or 409 if a row is not usable, a family would not be usable, or a name belongs to a public
    family or to one on record.
    """
    with context.database.write() as session:
        return import_noise_table(session, request.table, request.family, who.id)
