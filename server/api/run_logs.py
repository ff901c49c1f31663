"""Logs and files of a run over REST: the last lines of each attempt, without secrets, if this
machine has them.

A worker writes logs to its own state folder (`logs/runs/RUN-ATTEMPT.log`). A server that shares
the folder shows them, any other server names the machine that has them. The message of a failed
attempt contains its last lines on every server.
"""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse

from parity.frozen import frozen
from server.database.lookups import find_run
from server.documents.runs import AttemptDocument, attempt_documents
from server.errors import NotFoundError
from server.logs import without_secrets
from server.records import from_attributes
from server.web.context import InContext
from server.web.limits import LARGEST
from server.web.requests.bodies import BodyRoute
from server.web.streams import Download

router = APIRouter(prefix="/api/v1", tags=["runs"], route_class=BodyRoute)

_READ_BYTES = 262_144
_LINE_CHARACTERS = 2000
_ARTIFACTS = 100


@frozen
class AttemptLog:
    """The last lines of one attempt, oldest first; `missing` gives the reason if there are none.
    `cut` is true if earlier lines exist.

    `artifacts` are the attempt's files in `artifacts/RUN-ATTEMPT` of this machine's state folder,
    usually traces.
    """

    attempt: int
    state: str
    worker: str | None
    lines: list[str]
    cut: bool
    missing: str | None
    artifacts: list[str]


@frozen
class RunLogDocument:
    """The logs of a run's attempts, newest first; empty for a run that has not begun, or with
    engine external.
    """

    run: str
    attempts: list[AttemptLog]


@router.get("/runs/{run_id}/log")
def log(
    run_id: str,
    context: InContext,
    lines: Annotated[
        int, Query(ge=1, le=2000, description="number of last lines of each attempt")
    ] = 200,
) -> RunLogDocument:
    """The last lines that the trainer of each attempt printed, without tokens, passwords and
    keys.
    """
    with context.database.read() as session:
        run = find_run(session, run_id)
        attempts = (
            [] if run.capability == "external" else attempt_documents(session, run.job)[run_id]
        )
    logs = [
        _log(context.settings.state_dir, run_id, attempt, lines) for attempt in reversed(attempts)
    ]
    return RunLogDocument(run=run_id, attempts=logs)


@router.get("/runs/{run_id}/artifacts/{attempt}/{name:path}", response_class=FileResponse)
def run_artifact(
    run_id: str,
    attempt: Annotated[int, PathParameter(ge=0, le=LARGEST)],
    name: str,
    request: Request,
    context: InContext,
) -> Response:
    """A file of an attempt, usually a trace, if the server shares its worker's state folder."""
    with context.database.read() as session:
        find_run(session, run_id)
    # names are looked up, never joined to a path
    left = _left(context.settings.state_dir, f"{run_id}-{attempt}")
    if name not in left:
        raise NotFoundError(
            f"attempt {attempt} of run {run_id} has no file {name!r:.200} on this machine; "
            f"/runs/{run_id}/log lists its files"
        )
    return Download(request, left[name])


def _log(state_dir: Path, run_id: str, attempt: AttemptDocument, most_lines: int) -> AttemptLog:
    name = f"{run_id}-{attempt.attempt}"
    path = state_dir / "logs" / "runs" / f"{name}.log"
    lines, cut, missing = [], False, None
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        where = f"worker {attempt.worker}" if attempt.worker else "the machine that trained it"
        missing = (
            f"not on this machine: it is {path.name} in logs/runs of the PARITY_STATE_DIR of "
            f"{where}, until retention drops it"
        )
    else:
        every = without_secrets(text).splitlines()[1 if size > _READ_BYTES else 0 :]
        lines = [line[:_LINE_CHARACTERS] for line in every[-most_lines:]]
        cut = size > _READ_BYTES or len(every) > most_lines
    files = sorted(_left(state_dir, name))[:_ARTIFACTS]
    return from_attributes(
        AttemptLog, attempt, lines=lines, cut=cut, missing=missing, artifacts=files
    )


def _left(state_dir: Path, name: str) -> dict[str, Path]:
    """The files of an attempt (RUN-ATTEMPT), by their names within its folder, without links."""
    folder = state_dir / "artifacts" / name
    return {
        str(file.relative_to(folder)): file
        for file in folder.rglob("*")
        if file.is_file() and not file.is_symlink()
    }
