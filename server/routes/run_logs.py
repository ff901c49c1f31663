"""What a run's trainer printed, and the files it left, over REST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse

from server.database.lookup import find_run
from server.documents.job import attempt_documents
from server.documents.run_logs import AttemptLog, artifact, attempt_logs
from server.web.auth import requires
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["runs"], dependencies=[Depends(requires("view"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogDocument:
    """The logs of a run's attempts, newest first; none for a run that has not begun, or that you train yourself."""

    run: str
    attempts: list[AttemptLog]


@router.get("/runs/{run_id}/log")
def log(
    run_id: str,
    context: InContext,
    lines: Annotated[int, Query(ge=1, le=2000, description="how many of the last lines of each attempt")] = 200,
) -> RunLogDocument:
    """The last lines that the trainer of each attempt printed. Tokens, passwords and keys are cut out."""
    with context.database.read() as session:
        run = find_run(session, run_id)
        attempts = [] if run.capability == "external" else attempt_documents(session, run.job)[run_id]
    return RunLogDocument(run=run_id, attempts=attempt_logs(context.settings.state_dir, run_id, attempts, lines))


@router.get("/runs/{run_id}/artifacts/{attempt}/{name:path}", response_class=FileResponse)
def run_artifact(run_id: str, attempt: int, name: str, context: InContext) -> FileResponse:
    """A file that an attempt left beside its log (a trace, as a rule), where the server shares its worker's state folder."""
    with context.database.read() as session:
        find_run(session, run_id)
    file = artifact(context.settings.state_dir, run_id, attempt, name)
    return FileResponse(file, filename=file.name, media_type="application/octet-stream")
