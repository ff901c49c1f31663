"""Runs in an experiment tracker (W&B, MLflow, trackio), read whole by its own package: which names
are runs.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from parity.readers.table import choose_run
from parity.readers.trackers import stores
from parity.readers.trackers.run import TrackerRun

# Which names are runs of a tracker, and which module reads them. The prefixes have their one home
# here.
#
#     wandb:ENTITY/PROJECT/RUN     a run on a W&B server
#     mlflow:RUN_ID                a run in MLflow's tracking store: a server, a folder or a
#                                  database
#     trackio:PROJECT/RUN          a run of trackio, by name or id, on this machine or on a trackio
#                                  server
#     run-ID.wandb, or its folder  a run that W&B wrote offline
#
# A prefix always means the tracker; write ./wandb:x for a file of that name.

SOURCES: Mapping[str, Callable[[str, str, Mapping[str, str]], TrackerRun]] = {
    "wandb:": stores.read_wandb,
    "mlflow:": stores.read_mlflow,
    "trackio:": stores.read_trackio,
}


def is_source(name: str) -> bool:
    """Whether a name is a run in a tracker."""
    return name.startswith(tuple(SOURCES))


def source_name(name: str) -> str:
    """A short name for a tracker's run: the last part of its path."""
    return name.rstrip("/").rpartition(":")[2].rpartition("/")[2] or name


def read_source(name: str, wanted: Mapping[str, str]) -> TrackerRun:
    """A run that `is_source`. Raises ReadError where it cannot be read whole,
    UnreachableSourceError where its server does not answer.
    """
    prefix = next(prefix for prefix in SOURCES if name.startswith(prefix))
    return SOURCES[prefix](name, name.removeprefix(prefix), wanted)


def offline_name(stem: str) -> str:
    """A short name for a run that W&B wrote to disk: its id, without the date; any other stem as it
    is.
    """
    return re.sub(r"^(?:offline-)?run-\d{8}_\d{6}-(?=.)", "", stem)


def offline_files(path: str) -> tuple[Path, ...]:
    """The .wandb files of a path in order: the file itself, or those of a run folder or of the
    folder `wandb`; () where it has none.
    """
    if path.endswith(stores.SUFFIX):
        return (Path(path),)
    folder = Path(path)
    if not folder.is_dir():
        return ()
    nested = [file for run in stores.RUN_FOLDERS for file in folder.glob(f"{run}/*{stores.SUFFIX}")]
    files = {file.resolve(): file for file in (*folder.glob(f"*{stores.SUFFIX}"), *nested)}
    return tuple(sorted(files.values(), key=lambda file: (_begun(file), file)))


def _begun(file: Path) -> str:
    """When W&B began a file, as its folder's name has it: a run may go on offline after a part that
    was sent, or the other way round.
    """
    date = re.search(r"run-(\d{8}_\d{6})-", file.resolve().parent.name)
    return date[1] if date else ""


def read_offline(path: str, run: str | None, wanted: Mapping[str, str]) -> TrackerRun:
    """The run that W&B wrote to the files of a path; a resumed run has several, of which the later
    ones replace what they repeat.

    `run` is the id of one of several. Raises SeveralRunsError where none is named, ReadError where
    one cannot be read.
    """
    by_run: dict[str, list[Path]] = {}
    for file in offline_files(path):
        by_run.setdefault(stores.run_id(file), []).append(file)
    chosen = choose_run(by_run, run, path if not is_source(f"{path}:") else f"./{path}")
    return stores.read(path, by_run[chosen], wanted)
