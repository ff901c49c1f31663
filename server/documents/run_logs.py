"""The last log lines of each attempt at a run, without secrets, if this machine has them.

A worker writes logs to its own state folder (`logs/runs/RUN-ATTEMPT.log`). A server that shares the folder shows them, any other
server names the machine that has them. The message of a failed attempt contains its last lines on every server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from server.documents.runs import AttemptDocument
from server.errors import NotFoundError
from server.logs import without_secrets
from server.records import frozen, of

_READ_BYTES = 262_144
_LINE_CHARACTERS = 2000
_ARTIFACTS = 100


@frozen
class AttemptLog:
    """The last lines of one attempt, oldest first; `missing` gives the reason if there are none. `cut` is true if earlier lines exist.

    `artifacts` are the attempt's files in `artifacts/RUN-ATTEMPT` of this machine's state folder, usually traces.
    """

    attempt: int
    state: str
    worker: str | None
    lines: list[str]
    cut: bool
    missing: str | None
    artifacts: list[str]


def attempt_logs(state_dir: Path, run_id: str, attempts: Sequence[AttemptDocument], lines: int) -> list[AttemptLog]:
    """The log of each attempt, newest first."""
    return [_log(state_dir, f"{run_id}-{attempt.attempt}", attempt, lines) for attempt in reversed(attempts)]


def artifact(state_dir: Path, run_id: str, attempt: int, name: str) -> Path:
    """The file of this name that an attempt wrote on this machine; NotFoundError if there is none."""
    left = _left(state_dir, f"{run_id}-{attempt}")  # names are looked up, never joined to a path
    if name not in left:
        raise NotFoundError(
            f"attempt {attempt} of run {run_id} has no file {name!r:.200} on this machine; /runs/{run_id}/log lists its files"
        )
    return left[name]


def _log(state_dir: Path, name: str, attempt: AttemptDocument, wanted: int) -> AttemptLog:
    path = state_dir / "logs" / "runs" / f"{name}.log"
    lines, cut, missing = [], False, None
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        where = f"worker {attempt.worker}" if attempt.worker else "the machine that trained it"
        missing = f"not on this machine: it is {path.name} in logs/runs of the PARITY_STATE_DIR of {where}, until retention drops it"
    else:
        every = without_secrets(text).splitlines()[1 if size > _READ_BYTES else 0 :]
        lines = [line[:_LINE_CHARACTERS] for line in every[-wanted:]]
        cut = size > _READ_BYTES or len(every) > wanted
    files = sorted(_left(state_dir, name))[:_ARTIFACTS]
    return of(AttemptLog, attempt, lines=lines, cut=cut, missing=missing, artifacts=files)


def _left(state_dir: Path, name: str) -> dict[str, Path]:
    """The files of an attempt (RUN-ATTEMPT), by their names within its folder, without links."""
    folder = state_dir / "artifacts" / name
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()}
