"""The peers of `record.py` and `charts.py`, run by a Python that has them: prints one line of JSON
with points a second, seconds, or runs.

python benchmarks/record_peers.py mlflow-log ADDRESS STEPS_A_POST POSTS
python benchmarks/record_peers.py mlflow-read ADDRESS STEPS
python benchmarks/record_peers.py mlflow-fill ADDRESS DATABASE CURVES
python benchmarks/record_peers.py trackio FOLDER STEPS
"""

import json
import os
import sqlite3
import sys
import time

COLUMNS = 12
# What MLflow's server takes at once.
_METRICS_A_REQUEST = 1000


def _run(address: str):  # type: ignore[no-untyped-def]
    from mlflow import MlflowClient  # noqa: PLC0415

    client = MlflowClient(address)
    return client, client.create_run("0").info.run_id


def mlflow_log(address: str, steps: int, posts: int) -> float:
    """Points a second of `log_batch` through MLflow's tracking server, as many requests a post as
    its limit needs.
    """
    from mlflow.entities import Metric  # noqa: PLC0415

    client, run = _run(address)

    def post(first: int) -> None:
        points = [
            Metric(f"m{column}", first + 0.1 * column, 0, first + step)
            for step in range(steps)
            for column in range(COLUMNS)
        ]
        for start in range(0, len(points), _METRICS_A_REQUEST):
            client.log_batch(
                run, metrics=points[start : start + _METRICS_A_REQUEST], synchronous=True
            )

    post(0)
    began = time.perf_counter()
    for number in range(1, posts + 1):
        post(number * steps)
    return posts * steps * COLUMNS / (time.perf_counter() - began)


def mlflow_read(address: str, steps: int) -> float:
    """Seconds of MLflow's own history read of one metric."""
    from mlflow.entities import Metric  # noqa: PLC0415

    client, run = _run(address)
    for first in range(0, steps, _METRICS_A_REQUEST):
        client.log_batch(
            run,
            metrics=[
                Metric("loss", 1.0 / (1 + first + i), 0, first + i)
                for i in range(_METRICS_A_REQUEST)
            ],
        )
    began = time.perf_counter()
    assert len(client.get_metric_history(run, "loss")) == steps
    return time.perf_counter() - began


def mlflow_fill(address: str, database: str, file: str) -> list[str]:
    """Ids of runs that have the curves (runs, steps) of a .npy file as metric lm_loss, written into
    MLflow's own SQLite tables.
    """
    import numpy as np  # noqa: PLC0415

    runs = []
    for curve in np.load(file):
        runs.append(_run(address)[1])
        rows = (
            ("lm_loss", value, 0, runs[-1], step, False)
            for step, value in enumerate(curve.tolist())
        )
        with sqlite3.connect(database, timeout=60) as connection:
            connection.executemany(
                "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values (?, "
                "?, ?, ?, ?, ?)",
                rows,
            )
            last = ("lm_loss", float(curve[-1]), 0, runs[-1], len(curve) - 1, False)
            connection.execute(
                "insert into latest_metrics (key, value, timestamp, run_uuid, step, is_nan) "
                "values (?, ?, ?, ?, ?, ?)",
                last,
            )
    return runs


def trackio_log(folder: str, steps: int) -> float:
    """Points a second of trackio's local log, until `finish` has written all of it."""
    os.environ |= {"TRACKIO_DIR": folder, "TRACKIO_ANALYTICS": "0"}
    import trackio  # noqa: PLC0415

    trackio.init(project="bench", embed=False)
    began = time.perf_counter()
    for step in range(steps):
        trackio.log({f"m{column}": step + 0.1 * column for column in range(COLUMNS)}, step=step)
    trackio.finish()
    return steps * COLUMNS / (time.perf_counter() - began)


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    work = {
        "mlflow-log": mlflow_log,
        "mlflow-read": mlflow_read,
        "mlflow-fill": mlflow_fill,
        "trackio": trackio_log,
    }[what]
    # What a peer prints goes to standard error, the answer alone to standard output.
    out, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(work(where, *(int(one) if one.isdigit() else one for one in more))), file=out)
