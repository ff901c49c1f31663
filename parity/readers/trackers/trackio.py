"""A run of trackio, read with trackio's own package: on this machine, or on the server that
TRACKIO_SPACE_ID or TRACKIO_SERVER_URL names.

trackio's calls for logs sample to at most 3,000 rows, so the rows are read with its call for
queries, page by page, and counted against its summary of the run, before and after. trackio does
not record whether a run has ended; the note says so.

Source: trackio 0.43 (server.py, sqlite_storage.py, remote_client.py).
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from parity.readers.errors import ReadError, UnreachableSourceError
from parity.readers.trackers.run import (
    TrackerRun,
    columns_of_rows,
    first_line,
    package_errors,
    tracker_package,
)
from parity.wording import count

COUNTER = "step"
_PAGE = 5_000  # trackio refuses a query of more than 10,000 rows
# the first one that is set counts, as in trackio
_SERVER_VARIABLES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
Call = Callable[..., Any]
"""A call of trackio's API by name and arguments."""


def read_trackio(source: str, path: str, named_columns: Mapping[str, str]) -> TrackerRun:
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
            f"{source}: trackio{_place(where)} does not answer ({first_line(error)}); nothing was "
            "read"
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
    columns = columns_of_rows(rows, named_columns, source, COUNTER)
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
    names = ", ".join(dict.fromkeys(str(run["name"]) for run in runs[:10]))
    raise ReadError(
        f"{source}: trackio{_place(where)} has no such run; "
        f"{f'its project has {names}' if runs else 'it has no such project'}"
    )


def _place(where: str | None) -> str:
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
