"""Which names are runs of a tracker, and which module reads them. The prefixes have their one home
here.

    wandb:ENTITY/PROJECT/RUN     a run on a W&B server
    mlflow:RUN_ID                a run in MLflow's tracking store: a server, a folder or a database
    trackio:PROJECT/RUN          a run of trackio, by name or id, on this machine or on a trackio
                                 server
    run-ID.wandb, or its folder  a run that W&B wrote offline (`wandb_folder`)

A prefix always means the tracker; write ./wandb:x for a file of that name.
"""

from collections.abc import Callable, Mapping

from parity.readers.trackers.mlflow import read_mlflow
from parity.readers.trackers.run import TrackerRun
from parity.readers.trackers.trackio import read_trackio
from parity.readers.trackers.wandb_server import read_wandb

SOURCES: Mapping[str, Callable[[str, str, Mapping[str, str]], TrackerRun]] = {
    "wandb:": read_wandb,
    "mlflow:": read_mlflow,
    "trackio:": read_trackio,
}


def is_source(name: str) -> bool:
    """Whether a name is a run in a tracker."""
    return name.startswith(tuple(SOURCES))


def source_name(name: str) -> str:
    """A short name for a tracker's run: the last part of its path."""
    return name.rstrip("/").rpartition(":")[2].rpartition("/")[2] or name


def read_source(name: str, named_columns: Mapping[str, str]) -> TrackerRun:
    """A run that `is_source`. Raises ReadError where it cannot be read whole,
    UnreachableSourceError where its server does not answer.
    """
    prefix = next(prefix for prefix in SOURCES if name.startswith(prefix))
    return SOURCES[prefix](name, name.removeprefix(prefix), named_columns)
