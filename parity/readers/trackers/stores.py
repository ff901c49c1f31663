"""Runs in MLflow, in trackio and in W&B, each read with the tracker's own client; W&B's offline
files without it.
"""

import contextlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlparse

from parity.readers.columns import (
    LOSS,
    STEP,
    Columns,
    NoLossError,
    ReadError,
    Series,
    UnreachableSourceError,
    os_words,
)
from parity.readers.logs import join_parts, message_fields, signed_64, submessages
from parity.readers.series import from_series
from parity.readers.trackers.run import (
    NO_ROWS,
    TrackerRun,
    columns_of_rows,
    ended_words,
    first_line,
    package_errors,
    same_number,
    tracker_package,
)
from parity.wording import count

# A run in MLflow's tracking store, read with MLflow's own client: a server, a folder (`./mlruns`)
# or a database (`sqlite:///mlflow.db`).
#
# Which store is MLflow's own setting (MLFLOW_TRACKING_URI, or its default).
# `MlflowClient.get_metric_history` returns every value, page by page; the charts' endpoints, which
# sample, are not used. MLflow counts no values, so the proof that nothing is missing at the end is
# the run's latest value, which the history must contain. Databases store infinity as the largest
# float, which is turned back.
#
# Source: MLflow 3.17 (store/tracking/sqlalchemy_store.py, file_store.py, rest_store.py).

_INFINITY = 1.7976931348623157e308
_DEFAULTS: Mapping[str, str] = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's own takes minutes to give a dead server up
    "MLFLOW_ALLOW_FILE_STORE": "true",  # MLflow no longer writes to folders; they can be read
}
_MLFLOW = "mlflow-skinny alembic sqlalchemy"  # the client alone; the other two open databases
_ENDED = ("FINISHED", "FAILED", "KILLED")
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
_DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED")


def read_mlflow(source: str, run_id: str, wanted: Mapping[str, str]) -> TrackerRun:
    """The run RUN_ID. Raises ReadError where it is unknown, going, empty or incomplete,
    UnreachableSourceError where no server answers.
    """
    if not run_id.strip() or "/" in run_id:
        raise ReadError(
            f"{source}: {run_id!r} is not a run id; expected the id of the run's page, such as "
            "mlflow:0f3c5e0f9a7b4d8c"
        )
    mlflow = tracker_package("mlflow", _MLFLOW, source)
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
        columns = from_series(
            latest,
            lambda name: _history(source, client, run_id, name, float(latest[name])),
            wanted,
            source,
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
            f"database such as sqlite:///mlflow.db, which needs pip install {_MLFLOW}"
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


# A run of trackio, read with trackio's own package: on this machine, or on the server that
# TRACKIO_SPACE_ID or TRACKIO_SERVER_URL names.
#
# trackio's calls for logs sample to at most 3,000 rows, so the rows are read with its call for
# queries, page by page, and counted against its summary of the run, before and after. trackio does
# not record whether a run has ended; the note says so.
#
# Source: trackio 0.43 (server.py, sqlite_storage.py, remote_client.py).

COUNTER = "step"
_PAGE = 5_000  # trackio refuses a query of more than 10,000 rows
# the first one that is set counts, as in trackio
_SERVER_VARIABLES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")

Call = Callable[..., Any]
"""A call of trackio's API by name and arguments."""


def read_trackio(source: str, path: str, wanted: Mapping[str, str]) -> TrackerRun:
    """The run PROJECT/RUN, RUN its name or id. Raises ReadError where it is unknown, ambiguous or
    empty; UnreachableSourceError.
    """
    project, slash, name = path.partition("/")
    if not (project.strip() and slash and name.strip()):
        raise ReadError(
            f"{source}: {path!r} is not PROJECT/RUN; expected such as trackio:llm/nvfp4-seed1"
        )
    trackio = tracker_package("trackio", "trackio", source)
    where = next(
        (os.environ[variable] for variable in _SERVER_VARIABLES if os.environ.get(variable)), None
    )

    def refusal(error: Exception) -> ReadError:
        return UnreachableSourceError(
            f"{source}: trackio{_at(where)} does not answer ({first_line(error)}); nothing was read"
        )

    with package_errors(refusal):
        call = _local(trackio) if where is None else _remote(where)
        run = _one_run(source, name, call("get_runs_for_project", project), where)
        before = call("get_run_summary", project, run["name"], run["id"])
        rows = _rows(call, project, run["id"])
        after = call("get_run_summary", project, run["name"], run["id"])
    if before["num_logs"] != after["num_logs"]:
        raise ReadError(
            f"{source}: the run grew while it was read, so it is still going; a run is judged once "
            "it has ended"
        )
    if len(rows) != before["num_logs"]:
        raise ReadError(
            f"{source}: trackio returned {len(rows):,} of {before['num_logs']:,} rows; only a "
            "whole run is judged: read it again"
        )
    if not rows:
        raise ReadError(f"{source}: the run has no metric; expected one row per training step")
    columns = columns_of_rows(rows, wanted, source, COUNTER)
    note = (
        f"{count(len(rows), 'row')} of trackio's log, which does not record whether the run has "
        "ended"
    )
    return TrackerRun(columns=columns.noted(note), config=dict(before["config"] or {}))


def _local(trackio: Any) -> Call:
    """The API on the databases of this machine; trackio's server has the same calls."""
    server = tracker_package(f"{trackio.__name__}.server", "trackio", "trackio")
    return lambda name, *arguments: getattr(server, name)(*arguments)


def _remote(where: str) -> Call:
    client = tracker_package("trackio.remote_client", "trackio", "trackio").RemoteClient(
        where, hf_token=os.environ.get("HF_TOKEN")
    )
    return lambda name, *arguments: client.predict(*arguments, api_name=f"/{name}")


def _one_run(
    source: str, name: str, runs: list[dict[str, Any]], where: str | None
) -> dict[str, Any]:
    """The run of that id, or the only one of that name."""
    match = [run for run in runs if run["id"] == name] or [
        run for run in runs if run["name"] == name
    ]
    if len(match) == 1:
        return match[0]
    if match:
        ids = ", ".join(str(run["id"]) for run in match[:10])
        raise ReadError(
            f"{source}: {len(match)} runs are called {name!r}; name one by its id: {ids}"
        )
    known = ", ".join(dict.fromkeys(str(run["name"]) for run in runs[:10]))
    raise ReadError(
        f"{source}: trackio{_at(where)} has no such run; "
        f"{f'its project has {known}' if runs else 'it has no such project'}"
    )


def _at(where: str | None) -> str:
    if not where:
        return " on this machine"
    return f" at {where.partition('?')[0]}"


def _rows(call: Call, project: str, run_id: str) -> list[dict[str, Any]]:
    """Every row of the run in the order of time, with trackio's own step."""
    quoted = str(run_id).replace("'", "''")
    entries: list[dict[str, Any]] = []
    last = -1
    while True:
        query = (
            f"SELECT id, timestamp, step, metrics FROM metrics WHERE run_id = '{quoted}' AND id > "  # noqa: S608
            f"{last} ORDER BY id LIMIT {_PAGE}"
        )
        page = call("query_project", project, query)["rows"]
        entries += page
        if len(page) < _PAGE:
            break
        last = int(page[-1]["id"])
    entries.sort(key=lambda entry: (entry["timestamp"], entry["id"]))
    return [{**json.loads(entry["metrics"]), COUNTER: entry["step"]} for entry in entries]


# A run on a W&B server, read with W&B's own package: key and host as that package has them.
#
# `Run.history` samples, and `Run.scan_history` samples too where it is given keys, so the scan is
# made without keys and its rows are counted against the server's own numbers: all lines of the
# history, or all values of the loss. W&B's cache knows a run by its id alone, and is not used. A
# run that is still going is refused.
#
# Source: W&B's package 0.31 (apis/public/runs.py, history.py) and the queries that its process
# sends.

WANDB_COUNTER = "_step"
_TIMEOUT_SECONDS = 120
# W&B's own: minutes
_PATIENCE = {
    "x_graphql_retry_max": 3,
    "x_graphql_retry_wait_max_seconds": 20.0,
    "x_graphql_timeout_seconds": 30.0,
}
_GOING = ("running", "pending", "preempting", "preempted")
_WANDB_ENDED = ("finished", "crashed", "failed", "killed")
_WANDB_UNKNOWN = re.compile(
    r"could not find (?:run|project)|HTTP 404|run .*not found", re.IGNORECASE
)
_BUSY = re.compile(
    r"HTTP (?:429|5\d\d)|rate limit|timed? ?out|in time|connection|no such host|dial "
    r"tcp|EOF|network is unreachable",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"api key|log ?in|credentials|HTTP 40[13]|unauthorized|permission|not authenticated",
    re.IGNORECASE,
)


def read_wandb(source: str, path: str, wanted: Mapping[str, str]) -> TrackerRun:
    """The run ENTITY/PROJECT/RUN. Raises ReadError where it is unknown, going, empty or incomplete;
    UnreachableSourceError.
    """
    if len([part for part in path.split("/") if part.strip()]) != 3 or path.count("/") != 2:
        raise ReadError(
            f"{source}: {path!r} is not ENTITY/PROJECT/RUN; expected the path of the run's page, "
            "such as wandb:team/llm/3kz0q1vd"
        )
    wandb = tracker_package("wandb", "wandb", source)
    with package_errors(lambda error: _wandb_refusal(source, error)):
        # no prompt for a key, nothing printed
        wandb.setup(wandb.Settings(silent=True, **_PATIENCE))
        run = wandb.Api(timeout=_TIMEOUT_SECONDS).run(path)
        state, config, lines = (
            str(run.state),
            dict(run.config),
            getattr(run, "historyLineCount", None),
        )
        keys = getattr(run, "historyKeys", None) or {}
        _refuse_going(source, state)
        rows = list(run.scan_history(use_cache=False))
        after = wandb.Api(timeout=_TIMEOUT_SECONDS).run(path)
        _refuse_going(source, str(after.state))
    if lines != getattr(after, "historyLineCount", None):
        raise ReadError(
            f"{source}: the run changed while it was read; read it again once it has ended"
        )
    if not rows:
        raise ReadError(f"{source}: {NO_ROWS}")
    try:
        columns = columns_of_rows(rows, wanted, source, WANDB_COUNTER)
    except NoLossError:
        _prove_complete(source, rows, lines, keys, None)
        raise
    _prove_complete(source, rows, lines, keys, columns.names[LOSS])
    return TrackerRun(
        columns=columns.noted(f"{count(len(rows), 'row')} of W&B's history, {ended_words(state)}"),
        config=config,
    )


def _refuse_going(source: str, state: str) -> None:
    if state in _GOING:
        raise ReadError(
            f"{source}: the run is {state}; a run is judged once it has ended: wait, or stop it"
        )
    if state not in _WANDB_ENDED:
        raise ReadError(
            f"{source}: the run's state is {state!r}; expected one of {', '.join(_WANDB_ENDED)}"
        )


def _prove_complete(
    source: str, rows: list[dict[str, Any]], lines: object, keys: Any, loss: str | None
) -> None:
    """Raise ReadError unless the server's count of lines, or of values of the loss, is that of the
    rows that were read.

    Fewer values of the loss than the server counts are refused in any case: a NaN that was lost on
    the way would hide a divergence.
    """
    expected = _counted(keys, loss)
    own = sum(row.get(loss) is not None for row in rows) if loss is not None else None
    if len({row.get(WANDB_COUNTER) for row in rows}) != len(rows):
        raise ReadError(
            f"{source}: some of the {len(rows):,} rows that W&B returned are there twice; read the "
            "run again"
        )
    if expected is not None and own is not None and own < expected:
        raise ReadError(
            f"{source}: W&B returned {own:,} of {expected:,} values of {loss!r}; only a whole run "
            "is judged: read it again, or export the run as CSV"
        )
    if (isinstance(lines, int) and lines == len(rows)) or (
        expected is not None and expected == own
    ):
        return
    if isinstance(lines, int):
        got = f"{len(rows):,} of {lines:,} rows"
    elif expected is not None:
        got = f"{own:,} of {expected:,} values of {loss!r}"
    else:
        raise ReadError(
            f"{source}: W&B does not say how many rows the run has, so a sampled history would not "
            "be seen; export the run as CSV"
        )
    raise ReadError(
        f"{source}: W&B returned {got}; only a whole run is judged: read it again, or export the "
        "run as CSV"
    )


def _counted(keys: Any, loss: str | None) -> int | None:
    """How many values of the loss the server has, by its table of keys; None where it does
    not say.
    """
    try:
        types = keys["keys"][loss]["typeCounts"]
        total = math.fsum(float(each["count"]) for each in types)
    except (KeyError, TypeError, ValueError):
        return None
    return int(total)


def _wandb_refusal(source: str, error: Exception) -> ReadError:
    """The one line for an error of the package."""
    text = str(error)
    reason = re.findall(r"HTTP \d{3}[^\n]*|connection refused|no such host", text)
    line = str(reason[-1])[:160] if reason else first_line(error)
    if _WANDB_UNKNOWN.search(text):
        return ReadError(
            f"{source}: W&B has no such run, or the key may not read it; check entity, project and "
            "run id"
        )
    if _BUSY.search(text):
        return UnreachableSourceError(
            f"{source}: W&B does not answer ({line}); nothing was read: try again later"
        )
    if _KEY.search(text):
        return ReadError(
            f"{source}: W&B refuses the key, or there is none ({line}); run `wandb login`, or set "
            "WANDB_API_KEY"
        )
    return UnreachableSourceError(f"{source}: W&B returned an error ({line}); nothing was read")


# A run that W&B wrote offline: `run-ID.wandb` in a folder `offline-run-DATE-ID`, read without W&B's
# package, which has no reader for it.
#
# A file is a header of 7 bytes, then blocks of 32 KiB with records in LevelDB's log format:
# checksum (4 bytes, CRC-32 of type and data), length (2), type (1: whole, 2 to 4: first, middle and
# last part). A record is a protobuf message: a row of the history, an update of the config, the
# run, its exit. A last record that is cut short (a process that was killed, or still writes) is
# left out and noted; a record that is damaged anywhere else is refused.
#
# Source: W&B's package 0.31: wandb_internal.proto (field numbers below), its transaction log's
# reader and writer, and files that it wrote.

SUFFIX = ".wandb"
RUN_FOLDERS = ("offline-run-*", "run-*")
FILE_COUNTER = "_step"
_MAGIC, _HEADER, _BLOCK = b":W&B\xe1\xbe\x00", 7, 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # of Record
_ITEM, _STEP, _STEP_NUMBER = 1, 2, 1  # of HistoryRecord, HistoryStep
# of HistoryItem, ConfigItem
_FILE_KEY, _NESTED_KEY, _BOOLEAN, _INTEGER, _NUMBER, _TEXT, _JSON, _VALUE_JSON = (
    1,
    2,
    4,
    5,
    6,
    7,
    8,
    16,
)
_UPDATE, _REMOVE, _RUN_CONFIG = 1, 2, 4  # of ConfigRecord, RunRecord
_EXIT_CODE = 1  # of RunExitRecord


@dataclass(slots=True)
class _Contents:
    """What a file has: the run's config, the rows, and how it ended (None: no exit on record)."""

    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    notes: list[str] = field(default_factory=list)


def run_id(file: Path) -> str:
    """The id of a file's run, which W&B writes into its name."""
    return file.name.removesuffix(SUFFIX).removeprefix("run-")


def read(source: str, files: Sequence[Path], wanted: Mapping[str, str]) -> TrackerRun:
    """The run in its files, in the order in which they were written. Raises ReadError."""
    contents = [_contents(file) for file in files]
    config: dict[str, Any] = {}
    parts: list[Columns] = []
    for file, each in zip(files, contents, strict=True):
        config |= each.config
        if each.rows:
            parts.append(
                columns_of_rows(each.rows, wanted, str(file), FILE_COUNTER).noted(*each.notes)
            )
    if not parts:
        raise ReadError(f"{source}: {NO_ROWS}")
    rows = count(sum(len(each.rows) for each in contents), "row")
    if len(parts) == 1:
        joined = parts[0]
    else:
        joined = join_parts(parts, (f"{count(len(parts), 'file')} of a resumed run",))
    return TrackerRun(
        columns=joined.noted(f"{rows} of W&B's offline history", _ended(contents[-1])),
        config=config,
    )


def _ended(last: _Contents) -> str:
    if last.exit_code is None:
        return "W&B recorded no end of the run: its process was killed, or still writes"
    if last.exit_code == 0:
        return "the run is finished"
    return f"the run ended with exit code {last.exit_code}"


def _contents(file: Path) -> _Contents:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ReadError(
            f"{file}: cannot be read ({os_words(error)}); check the file and its permissions"
        ) from None
    if data[:_HEADER] != _MAGIC:
        raise ReadError(
            f"{file}: does not begin like a .wandb file of version 0; expected the file that W&B "
            "writes into a run's folder"
        )
    contents = _Contents()
    for number, record in enumerate(_records(data, file, contents.notes), 1):
        try:
            _take(record, contents)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ReadError(
                f"{file}: record {number:,} is not one that W&B 0.31 writes "
                f"({type(error).__name__}); export the run as CSV"
            ) from None
    return contents


def _records(data: bytes, file: Path, notes: list[str]) -> Iterator[bytes]:
    """Each record's bytes. What is cut short at the end is noted; what is damaged before it raises
    ReadError.
    """
    parts: list[bytes] = []
    at = _HEADER
    while at < len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEADER:
            at += room
            continue
        if at + _HEADER > len(data):
            break
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        end = at + _HEADER + length
        if (checksum, length, kind) == (0, 0, 0) and not any(data[at:]):
            break  # room that was reserved and never written
        fits = length <= room - _HEADER and kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)
        if fits and end > len(data):
            break
        payload = data[at + _HEADER : end]
        if not fits or zlib.crc32(payload, zlib.crc32(bytes([kind]))) != checksum:
            raise ReadError(
                f"{file}: damaged at byte {at:,} of {len(data):,}; expected the file as W&B wrote "
                "it: copy it again"
            )
        if (kind in (_WHOLE, _FIRST)) != (not parts):
            raise ReadError(
                f"{file}: the record at byte {at:,} does not follow the one before it; copy the "
                "file again"
            )
        parts.append(payload)
        at = end
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
            parts = []
    else:
        if not parts:
            return
    notes.append("the last record is cut short and left out")


def _take(record: bytes, contents: _Contents) -> None:
    for number, value in message_fields(record):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            contents.rows.append(_row(value))
        elif number == _CONFIG:
            _update(contents.config, value)
        elif number == _RUN:
            for config in submessages(value, _RUN_CONFIG):
                _update(contents.config, config)
        elif number == _EXIT:
            contents.exit_code = _number(value, _EXIT_CODE)


def _row(message: bytes) -> dict[str, Any]:
    """One row of the history by key; the parts of a nested key are joined by points."""
    row = {".".join(keys): item for keys, item in map(_item, submessages(message, _ITEM))}
    for step in submessages(message, _STEP):
        row[FILE_COUNTER] = _number(step, _STEP_NUMBER)
    return row


def _update(config: dict[str, Any], message: bytes) -> None:
    for number, value in message_fields(message):
        if number not in (_UPDATE, _REMOVE) or not isinstance(value, bytes):
            continue
        keys, item = _item(value)
        place = config
        for key in keys[:-1]:
            inner = place.get(key)
            place[key] = place = dict(inner) if isinstance(inner, dict) else {}
        if number == _REMOVE:
            place.pop(keys[-1], None)
        else:
            place[keys[-1]] = item


def _item(message: bytes) -> tuple[tuple[str, ...], Any]:
    """Key, in its parts, and value of a HistoryItem or a ConfigItem; raises ValueError where it has
    no key.
    """
    keys: list[str] = []
    item: Any = None
    for number, value in message_fields(message):
        if isinstance(value, int):
            if number in (_BOOLEAN, _INTEGER):
                item = bool(value) if number == _BOOLEAN else signed_64(value)
        elif number in (_FILE_KEY, _NESTED_KEY):
            keys.append(value.decode())
        elif number == _NUMBER:
            (item,) = struct.unpack("<d", value)
        elif number == _TEXT:
            item = value.decode()
        elif number in (_JSON, _VALUE_JSON):
            item = json.loads(value) if value else None
    keys = [key for key in keys if key]
    if not keys:
        raise ValueError("an item without a key")
    return tuple(keys), item


def _number(message: bytes, field: int) -> int:
    """The whole number in a field of a message; 0 where it is left out."""
    return next(
        (
            signed_64(value)
            for key, value in message_fields(message)
            if key == field and isinstance(value, int)
        ),
        0,
    )
