"""The trackers' packages are not installed here: stand-ins give back what the packages returned
(tools/make_tracker_fixtures.py).
"""

import importlib
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tools.make_tracker_fixtures import STEPS, loss


@pytest.fixture
def recorded(data):
    """A function that reads what a package returned."""
    return lambda name: json.loads((data / "trackers" / f"{name}.json").read_text())


@pytest.fixture(autouse=True)
def absent(monkeypatch):
    """No tracker's package is there, whatever this environment has."""
    for name in ("wandb", "mlflow", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def install(monkeypatch):
    """A function that puts a stand-in for a package, or a module of it, in place."""

    def put(name, **contents):
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return put


@pytest.fixture
def whole():
    """The steps and the losses, as text, of the fixtures' run; its one NaN is an infinity in
    MLflow's.
    """
    return list(range(STEPS)), [repr(loss(step)) for step in range(STEPS)]


@pytest.fixture
def mlflow(install, recorded):
    """MLflow with one run on record; a test changes the record before it reads."""
    record = recorded("mlflow")

    class Client:
        def get_run(self, run_id):
            if run_id != record["info"]["run_id"]:
                raise LookupError("Run not found")
            data = SimpleNamespace(params=record["params"], metrics=record["metrics"])
            return SimpleNamespace(info=SimpleNamespace(**record["info"]), data=data)

        def get_metric_history(self, _run_id, name):
            return [
                SimpleNamespace(timestamp=time, step=step, value=value)
                for time, step, value in record["history"][name]
            ]

    install(
        "mlflow", MlflowClient=Client, get_tracking_uri=lambda: "http://me:secret@tracking.example"
    )
    return record


@pytest.fixture
def trackio(install, recorded):
    """trackio with one run on record."""
    record = recorded("trackio")

    def query_project(_project, query):
        last = int(query.partition("id > ")[2].split()[0])
        limit = int(query.rpartition("LIMIT ")[2])
        return {"rows": [row for row in record["rows"] if row["id"] > last][:limit]}

    install("trackio")
    install(
        "trackio.server",
        get_runs_for_project=lambda project: record["runs"] if project == "llm" else [],
        get_run_summary=lambda *_: dict(record["summary"]),
        query_project=query_project,
    )
    return record


@pytest.fixture
def wandb(install):
    """W&B with one run; a test changes the record before it reads."""
    rows = [
        {
            "_step": step,
            "train/loss": loss(step),
            "train/global_step": step,
            "_timestamp": 1.7e9 + step,
        }
        for step in range(STEPS)
    ]
    record: dict[str, Any] = {
        "rows": rows,
        "state": "finished",
        "lines": STEPS,
        "counted": STEPS,
        "config": {"recipe": "nvfp4", "seed": 1},
    }
    record["error"] = None  # what the package raises when it is called

    class Run:
        state = property(lambda _: record["state"])
        config = property(lambda _: record["config"])
        historyLineCount = property(lambda _: record["lines"])  # noqa: N815
        historyKeys = property(  # noqa: N815
            lambda _: {"keys": {"train/loss": {"typeCounts": [{"count": record["counted"]}]}}}
        )

        def scan_history(self, *, use_cache):
            assert not use_cache
            return iter(record["rows"])

    class Api:
        def __init__(self, **_):
            if record["error"]:
                raise record["error"]

        def run(self, path):
            assert path == "team/llm/r1"
            return Run()

    install("wandb", Api=Api, Settings=lambda **settings: settings, setup=lambda _: None)
    return record


@pytest.fixture
def imports(monkeypatch):
    """The packages that are imported, in order."""
    names = []
    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: names.append(name) or real(name))
    return names
