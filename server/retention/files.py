"""Files of ended runs on this machine: logs, profiles, checkpoints, and compiled programs that are
made again when they are needed.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from sqlalchemy import select

from parity.extensions import lab
from parity.frozen import frozen
from server.database import clock
from server.database.sessions import Database
from server.database.states import RUN_ENDED
from server.database.tables import Run, is_id
from server.retention.batch import cutoffs, slices
from server.settings import Settings

_IDS_AT_ONCE = 500


@frozen
class OldFile:
    """A file or folder that may be deleted, the run that it is of ("": of several), its size, and
    why.
    """

    what: Literal["log", "profiles", "checkpoints", "program"]
    size_bytes: int
    why: str
    path: Path
    of: str = ""

    def delete(self) -> None:
        """Delete it; another worker that shares the folder may have done so already."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path.unlink(missing_ok=True)


def old_files(settings: Settings, database: Database) -> Iterator[OldFile]:
    """What may be deleted now. A file of a run that the database does not have is left alone,
    unless jobs are deleted too.
    """
    with database.read() as session:
        # the database's clock, because a machine's may jump ahead
        old = cutoffs(settings, clock.now(session))
    for path in sorted((settings.state_dir / "jax-cache").glob("*")):
        if path.is_file() and _changed_at(path) < old.keys:
            why = "compiled PARITY_RETENTION_KEY_DAYS ago"
            yield OldFile(what="program", size_bytes=path.stat().st_size, why=why, path=path)
    if old.curves is None:
        return
    folders: Mapping[Literal["log", "profiles", "checkpoints"], Sequence[Path]] = {
        "log": sorted((settings.state_dir / "logs" / "runs").glob("*.log")),
        "profiles": sorted(settings.artifacts.glob("*")),
        "checkpoints": sorted(settings.checkpoints.glob("*")),
    }
    for what, paths in folders.items():
        aged = [
            (path, path.name if what == "checkpoints" else path.stem.rsplit("-", 1)[0])
            for path in paths
            if _changed_at(path) < old.curves
        ]
        for some in slices(
            [(path, run_id) for path, run_id in aged if is_id("r", run_id)], _IDS_AT_ONCE
        ):
            states = _states(database, [run_id for _, run_id in some])
            for path, run_id in some:
                state = states.get(run_id)
                if state in RUN_ENDED or (state is None and old.jobs is not None):
                    why = f"the run has ended ({state})" if state else "the run's job was deleted"
                    yield OldFile(what=what, of=run_id, size_bytes=_size(path), why=why, path=path)


def _states(database: Database, run_ids: Sequence[str]) -> dict[str, str]:
    """The states of these runs; that of a run is `forked` while a run that has not ended, or the
    lab, needs its checkpoint.
    """
    with database.read() as session:
        states: dict[str, str] = {
            row.id: row.state
            for row in session.execute(select(Run.id, Run.state).where(Run.id.in_(run_ids)))
        }
        forked = select(Run.forked_from).where(
            Run.forked_from.in_(run_ids), Run.state.not_in(RUN_ENDED)
        )
        tables = lab().part("tables")
        needed = tables.parents_in_use(session).intersection(run_ids) if tables else ()
        return states | {
            run_id: "forked" for run_id in (*session.scalars(forked), *needed) if run_id
        }


def _changed_at(path: Path) -> float:
    """When it changed last, unix seconds; never if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _size(path: Path) -> int:
    inside = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in inside)
