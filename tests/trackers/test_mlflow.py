"""Runs in MLflow: a database, a folder of an older version, and a server over the database."""

import sys

import pytest

from parity.cli import main
from parity.readers import read_run
from parity.readers.errors import ReadError, UnreachableSourceError
from tests.trackers.conftest import STEPS, check_curve, free_port, loss, process

mlflow = pytest.importorskip("mlflow")
from mlflow.entities import Metric  # noqa: E402

PARAMS = {"recipe": "nvfp4", "seed": 1, "optimizer.lr": 3e-4}  # MLflow has no nested parameters
LONG = 30_000  # more than one page of MLflow's API, which has 25,000 values


def write_runs(uri):
    """Ids by name: a whole run, one that is going, one that was killed, an empty one, one without
    steps, a deleted one, a resumed one.
    """
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("llm")
    ids = {}

    def run(name, values, status="FINISHED", params=PARAMS):
        created = client.create_run(experiment, run_name=name).info.run_id
        for key, value in params.items():
            client.log_param(created, key, value)
        metrics = [
            Metric("train/loss", value, 1_700_000_000_000 + number, step)
            for number, (step, value) in enumerate(values)
        ]
        metrics += [Metric("eval/loss", 3.0, 1_700_000_000_000, 0)] if values else []
        for start in range(0, len(metrics), 1000):
            client.log_batch(created, metrics=metrics[start : start + 1000])
        if status:
            client.set_terminated(created, status)
        ids[name] = created
        return created

    run("whole", [(step, loss(step)) for step in range(STEPS)])
    run("going", [(0, 3.0)], status=None)
    run("killed", [(step, 3.0 - step / 1000) for step in range(100)], status="KILLED")
    run("empty", [])
    run("no steps", [(0, 3.0 - step / 1000) for step in range(100)])
    client.delete_run(run("deleted", [(step, 3.0) for step in range(100)]))
    run(
        "resumed", [*((step, 3.0) for step in range(60)), *((step, 2.0) for step in range(40, 100))]
    )
    return ids


@pytest.fixture(scope="module", params=["database", "folder", "server"])
def stored(request, tmp_path_factory):
    """A tracking store of each kind: its address and the ids of its runs."""
    folder = tmp_path_factory.mktemp(request.param)
    uri = (
        f"file://{folder}/mlruns" if request.param == "folder" else f"sqlite:///{folder}/mlflow.db"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.chdir(folder)
        ids = write_runs(uri)
    if request.param != "server":
        yield uri, ids
        return
    port = free_port()
    line = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with process(line, folder, f"http://127.0.0.1:{port}/health") as url:
        yield url.removesuffix("/health"), ids


@pytest.fixture
def ids(stored, monkeypatch):
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stored[0])
    return stored[1]


def test_a_run_is_read_whole(ids):
    curve = read_run(f"mlflow:{ids['whole']}")
    check_curve(curve)
    assert "MLflow's whole history, the run is finished" in curve.notes


def test_a_killed_run_is_data_and_says_so(ids):
    curve = read_run(f"mlflow:{ids['killed']}")
    assert len(curve.steps) == 100
    assert "MLflow's whole history, the run ended as KILLED" in curve.notes


def test_a_resumed_run_keeps_its_later_values(ids):
    curve = read_run(f"mlflow:{ids['resumed']}")
    assert curve.loss.tolist() == [3.0] * 40 + [2.0] * 60
    assert curve.completeness.duplicates == 20


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("going", "RUNNING"),
        ("empty", "no metric"),
        ("no steps", "step 0"),
        ("deleted", "deleted"),
        (None, "no such run"),
    ],
)
def test_what_is_no_whole_run_is_refused(ids, name, words):
    with pytest.raises(ReadError, match=words) as refused:
        read_run(f"mlflow:{ids[name] if name else 'f' * 32}")
    assert not isinstance(refused.value, UnreachableSourceError)


def test_a_column_is_named_as_in_a_table(ids):
    assert read_run(f"mlflow:{ids['whole']}", columns={"loss": "eval/loss"}).loss.tolist() == [3.0]
    with pytest.raises(ReadError, match="no column 'train/ce'"):
        read_run(f"mlflow:{ids['whole']}", columns={"loss": "train/ce"})


def test_more_values_than_a_page_has(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    run = client.create_run(client.create_experiment("long")).info.run_id
    for start in range(0, LONG, 1000):
        client.log_batch(
            run,
            metrics=[
                Metric("loss", 3.0 - step / LONG, step, step) for step in range(start, start + 1000)
            ],
        )
    client.set_terminated(run)
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    curve = read_run(f"mlflow:{run}")
    assert (len(curve.steps), curve.completeness.gaps) == (LONG, 0)


@pytest.mark.parametrize(
    ("uri", "code", "words"),
    [
        ("http://127.0.0.1:9", 4, "does not answer"),
        ("http://me:secret@127.0.0.1:9", 4, "does not answer"),
        ("sqlite:///none.db", 2, "does not exist"),
        ("./none", 2, "does not exist"),
        ("nonsense://x", 2, "which needs pip install alembic mlflow-skinny sqlalchemy"),
    ],
)
def test_a_store_that_is_not_there_is_one_line(uri, code, words, monkeypatch, capsys, tmp_path):
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SystemExit) as ended:
        main(["compare", "mlflow:" + "a" * 32, "mlflow:" + "b" * 32])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("parity:")]
    assert (ended.value.code, len(lines)) == (code, 1)
    assert words in lines[0]
    assert "secret" not in lines[0]
    assert not list(tmp_path.iterdir())
