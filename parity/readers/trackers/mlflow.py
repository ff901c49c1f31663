"""A run in MLflow's tracking store, read with MLflow's own client: a server, a folder (`./mlruns`)
or a database (`sqlite:///mlflow.db`).

Which store is MLflow's own setting (MLFLOW_TRACKING_URI, or its default).
`MlflowClient.get_metric_history` returns every value, page by page; the charts' endpoints, which
sample, are not used. MLflow counts no values, so the proof that nothing is missing at the end is
the run's latest value, which the history must contain. Databases store infinity as the largest
float, which is turned back.

Source: MLflow 3.17 (store/tracking/sqlalchemy_store.py, file_store.py, rest_store.py).
"""

import contextlib
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlparse

from parity.extras import installation
from parity.readers.columns.names import LOSS, STEP
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.track import Series
from parity.readers.errors import ReadError, UnreachableSourceError
from parity.readers.trackers.run import (
    TrackerRun,
    ended_words,
    first_line,
    package_errors,
    same_number,
    tracker_package,
    with_tries,
)
from parity.wording import count

_INFINITY = 1.7976931348623157e308
_DEFAULTS: Mapping[str, str] = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's own takes minutes to give a dead server up
    "MLFLOW_ALLOW_FILE_STORE": "true",  # MLflow no longer writes to folders; they can be read
}
_ENDED = ("FINISHED", "FAILED", "KILLED")
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
_DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED")


def read_mlflow(source: str, run_id: str, named_columns: Mapping[str, str]) -> TrackerRun:
    """The run RUN_ID. Raises ReadError where it is unknown, going, empty or incomplete,
    UnreachableSourceError where no server answers.
    """
    if not run_id.strip() or "/" in run_id:
        raise ReadError(
            f"{source}: {run_id!r} is not a run id; expected the id of the run's page, such as "
            "mlflow:0f3c5e0f9a7b4d8c"
        )
    mlflow = tracker_package("mlflow", "mlflow", source)
    _refuse_missing_store(source, mlflow)
    with (
        _defaults(),
        package_errors(lambda error: _refusal(source, _shown(mlflow.get_tracking_uri()), error)),
    ):
        client = mlflow.MlflowClient()
        run = client.get_run(run_id)
        _refuse_unusable(source, run)
        latest = dict(run.data.metrics)
        if not latest:
            raise ReadError(
                f"{source}: the run has no metric; expected a training loss, logged with its step"
            )
        history = functools.cache(
            lambda name: _history(source, client, run_id, name, float(latest[name]))
        )
        columns = with_tries(
            lambda named: columns_from_series(latest, history, named, source),
            [*latest],
            named_columns,
            source,
            is_large=True,
        )
        if _state(client.get_run(run_id)) != _state(run):
            raise ReadError(
                f"{source}: the run changed while it was read; read it again once it has ended"
            )
    steps = columns.values[STEP]
    if len(steps) > 1 and not steps.any():
        raise ReadError(
            f"{source}: all {count(len(steps), 'value')} of {columns.names[LOSS]!r} have step 0; "
            "expected the training step: log it with log_metric(..., step=STEP)"
        )
    noted = columns.noted(f"MLflow's whole history, {ended_words(str(run.info.status))}")
    return TrackerRun(columns=noted, config=dict(run.data.params))


def _refuse_missing_store(source: str, mlflow: ModuleType) -> None:
    """Raise ReadError for a folder or a database that is not there: MLflow's client would make an
    empty one.
    """
    uri = str(mlflow.get_tracking_uri())
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file", "sqlite"):
        return
    path = parsed.path if parsed.scheme else uri
    if parsed.scheme == "sqlite":
        path = path.removeprefix("/")
    if not Path(unquote(path)).exists():
        raise ReadError(
            f"{source}: MLflow's tracking store {_shown(uri)} does not exist; set "
            "MLFLOW_TRACKING_URI, such as http://127.0.0.1:5000, ./mlruns or sqlite:///mlflow.db"
        )


@contextlib.contextmanager
def _defaults() -> Iterator[None]:
    """Set MLflow's variables for the time of reading, except for those that the user has set."""
    ours = {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _refuse_unusable(source: str, run: Any) -> None:
    if run.info.lifecycle_stage == "deleted":
        raise ReadError(f"{source}: the run was deleted; restore it, or name another one")
    if run.info.status not in _ENDED:
        raise ReadError(
            f"{source}: the run is {run.info.status}; a run is judged once it has ended: wait, or, "
            "if its process is gone, end it with "
            f"MlflowClient().set_terminated({run.info.run_id!r}, 'KILLED')"
        )


def _state(run: Any) -> str:
    """The run's status and latest values as text, in which NaN equals NaN."""
    return f"{run.info.status} {sorted(run.data.metrics.items())}"


def _history(source: str, client: Any, run_id: str, name: str, latest: float) -> Series:
    """Every value of a metric as (step, value) in the order of time; raises ReadError where the
    run's latest value is not among them.
    """
    metrics = sorted(client.get_metric_history(run_id, name), key=lambda metric: metric.timestamp)
    series = [(int(metric.step), _value(float(metric.value))) for metric in metrics]
    if not any(same_number(value, _value(latest)) for _, value in series):
        raise ReadError(
            f"{source}: MLflow returned {count(len(series), 'value')} of {name!r} without the "
            f"run's latest, {latest!r}; only a whole "
            "history is judged: read the run again, or export it as CSV"
        )
    return series


def _shown(uri: str) -> str:
    """A store's address without a user's name and password."""
    return re.sub(r"//[^/@]*@", "//", str(uri))


def _value(value: float) -> float:
    if abs(value) >= _INFINITY:
        return math.copysign(math.inf, value)
    return value


def _refusal(source: str, uri: str, error: Exception) -> ReadError:
    """The one line for an error of the package; `uri` is the store's."""
    code, line = str(getattr(error, "error_code", "")), first_line(error)
    if isinstance(error, ImportError) or "unsupported uri" in str(error).lower():
        return ReadError(
            f"{source}: MLflow cannot open the store {uri}; expected http://HOST, a folder, or a "
            f"database such as sqlite:///mlflow.db, which needs {installation('mlflow')}"
        )
    if code in _UNKNOWN:
        return ReadError(
            f"{source}: MLflow has no such run in its store ({line}); check the id and "
            "MLFLOW_TRACKING_URI"
        )
    if code in _DENIED:
        return ReadError(
            f"{source}: MLflow refuses access ({line}); set MLFLOW_TRACKING_USERNAME and "
            "_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    return UnreachableSourceError(
        f"{source}: MLflow's store {uri} does not answer ({line}); nothing was read"
    )
