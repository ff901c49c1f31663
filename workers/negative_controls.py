"""The negative control of each launcher: does it also train without the files of the commit? The
result is one file per launcher, empty if it does not train.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from server.settings import Settings
from workers.commands.launched_trainer import trains_without_its_commit
from workers.commands.launchers import LauncherError


def is_needed(settings: Settings, digest: str, launcher: str, paths: Sequence[str]) -> bool:
    """Whether a launcher has yet to be started without the commit's files. Raises LauncherError if
    it was, and trained.
    """
    result = _result_path(settings, digest)
    if not result.exists():
        return True
    if step := result.read_text(encoding="utf-8"):
        raise LauncherError(trains_without_its_commit(launcher, ", ".join(paths), step))
    return False


def write_result(settings: Settings, digest: str, step: int | None) -> None:
    """Write down which step a launcher reported without the commit's files, so that nobody reads a
    part of it; None: it reported none.
    """
    path = _result_path(settings, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{threading.get_ident()}")
    part.write_text("" if step is None else str(step), encoding="utf-8")
    part.replace(path)


def _result_path(settings: Settings, digest: str) -> Path:
    return (settings.state_dir / "launchers").resolve() / digest
