"""Runs in trackers, with stand-ins for their packages: whole, or refused in one line. `make
test-trackers` tries the real packages.
"""

import shutil
import sys
import tomllib

import pytest

from parity.cli import main
from parity.readers import read_run, read_runs
from parity.readers.errors import ReadError, SeveralRunsError, UnreachableSourceError
from parity.readers.run_names import run_name
from parity.readers.trackers.sources import is_source
from parity.readers.trackers.wandb_folder import offline_files
from server.settings import CHECKOUT
from tools.make_tracker_fixtures import NAN_STEP, STEPS

RUN = {"mlflow": "1", "trackio": "llm/small", "wandb": "team/llm/r1"}


def source(name, record):
    return f"mlflow:{record['info']['run_id']}" if name == "mlflow" else f"{name}:{RUN[name]}"


@pytest.mark.parametrize("name", ["mlflow", "trackio", "wandb"])
def test_a_run_is_read_whole_with_its_config(name, request, whole):
    curve = read_run(source(name, request.getfixturevalue(name)))
    steps, losses = whole
    if name == "mlflow":  # its databases store infinity as the largest float
        losses[NAN_STEP] = "inf"
    assert (curve.steps.tolist(), [repr(value) for value in curve.loss.tolist()]) == (steps, losses)
    assert (curve.recipe, curve.seed) == ("nvfp4", 1)
    read = {"loss_name": "train/loss", "loss_meaning": "training loss"}
    assert curve.context == (read if name == "wandb" else {**read, "learning_rate": "0.0003"})


@pytest.mark.parametrize("name", ["mlflow:x", "trackio:llm/x", "wandb:a/b/c"])
def test_a_package_that_is_missing_says_what_to_install(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", name, f"other={name}"])
    (line,) = capsys.readouterr().err.splitlines()
    package = name.partition(":")[0]
    assert ended.value.code == 2
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert f"the package {package} is not installed" in line
    packages, _, extra = line.partition("pip install ")[2].partition(" (")
    assert set(packages.split()) == {need.partition(">")[0] for need in extras[package]}
    assert extra == f'the extra "{package}")'


def test_a_package_is_imported_only_for_its_own_source(data, imports):
    read_run(str(data / "trackers" / "run-small.wandb"))
    read_run(str(data / "maxtext_nan_abort.jsonl"))
    assert imports == []


@pytest.mark.parametrize(
    "name",
    [
        "wandb:r1",
        "wandb:team/llm/r1/x",
        "wandb://r1",
        "mlflow:",
        "mlflow:1/2",
        "trackio:llm",
        "trackio:/x",
        "trackio:llm/",
    ],
)
def test_a_name_of_another_shape_is_refused_with_the_shape(name, wandb, mlflow, trackio):
    with pytest.raises(ReadError, match="expected"):
        read_run(name)


def test_a_prefix_always_means_the_tracker(tmp_path, monkeypatch, whole, trackio):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trackio:llm").mkdir()
    (tmp_path / "trackio:llm" / "small").write_text("step,loss\n0,1.0\n")
    assert len(read_run("trackio:llm/small").steps) == STEPS
    assert len(read_run("./trackio:llm/small").steps) == 1
    assert not is_source("./mlflow:1")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("wandb:team/llm/nvfp4-s1", "nvfp4-s1"),
        ("mlflow:0f3c", "0f3c"),
        ("trackio:llm/a/b", "b"),
        ("logs/wandb/offline-run-20261122_190643-nvfp4-s1", "nvfp4-s1"),
        ("wandb/offline-run-20261122_190643-x/run-x.wandb", "run-x"),
    ],
)
def test_a_run_has_a_short_name(name, short):
    assert run_name(name) == short


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"info": {"status": "RUNNING"}}, "the run is RUNNING"),
        ({"info": {"lifecycle_stage": "deleted"}}, "was deleted"),
        ({"metrics": {}}, "no metric"),
        ({"metrics": {"train/loss": 3.125}}, "without the run's latest, 3.125"),
        ({"history": {"train/loss": [[1, 0, 3.0], [2, 0, 3.230297]]}}, "have step 0"),
    ],
)
def test_mlflow_refuses_what_is_no_whole_run(mlflow, change, words):
    for key, value in change.items():
        mlflow[key] = {**mlflow[key], **value} if value and key == "info" else value
    with pytest.raises(ReadError, match=words):
        read_run(source("mlflow", mlflow))


def test_mlflow_refuses_a_run_that_changes_while_it_is_read(mlflow, monkeypatch):
    client = sys.modules["mlflow"].MlflowClient
    history = client.get_metric_history

    def read(self, run_id, name):
        values = history(self, run_id, name)
        mlflow["metrics"] = {name: 3.0}
        return values

    monkeypatch.setattr(client, "get_metric_history", read)
    with pytest.raises(ReadError, match="changed while it was read"):
        read_run(source("mlflow", mlflow))


def test_mlflow_without_a_server_is_infrastructure_and_hides_the_password(mlflow, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", "mlflow:other", "mlflow:another"])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 4
    assert "http://tracking.example does not answer" in line


@pytest.mark.parametrize("found", [STEPS - 1, STEPS + 1])
def test_trackio_counts_the_rows(trackio, found):
    trackio["summary"]["num_logs"] = found
    with pytest.raises(ReadError, match=f"returned {STEPS} of {found} rows"):
        read_run("trackio:llm/small")


def test_trackio_runs_of_one_name_need_an_id(trackio):
    trackio["runs"] = [*trackio["runs"], {"id": "second", "name": "small"}]
    with pytest.raises(ReadError, match=r"2 runs are called 'small'.*second"):
        read_run("trackio:llm/small")
    assert len(read_run(f"trackio:llm/{trackio['runs'][0]['id']}").steps) == STEPS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "running"}, "the run is running"),
        ({"state": "dreaming"}, "the run's state is 'dreaming'"),
        ({"rows": []}, "history is empty"),
        ({"lines": STEPS + 1, "counted": None}, "W&B returned 120 of 121 rows"),
        ({"counted": STEPS + 1}, "W&B returned 120 of 121 values"),
        ({"lines": None, "counted": None}, "does not say how many rows"),
    ],
)
def test_wandb_refuses_what_is_no_whole_run(wandb, change, words):
    wandb |= change
    with pytest.raises(ReadError, match=words) as refused:
        read_run("wandb:team/llm/r1")
    assert not isinstance(refused.value, UnreachableSourceError)


def test_wandb_rows_that_are_there_twice_are_refused(wandb):
    wandb["rows"] = [*wandb["rows"][:-1], wandb["rows"][0]]
    with pytest.raises(ReadError, match="there twice"):
        read_run("wandb:team/llm/r1")


def test_wandb_counts_by_either_number(wandb):
    wandb["lines"] = STEPS + 5  # such as rows that hold only system metrics
    assert len(read_run("wandb:team/llm/r1").steps) == STEPS


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "giving up after 3 attempt(s)\nwhile retrying: HTTP 429: rate limit exceeded",
            UnreachableSourceError,
            "HTTP 429",
        ),
        (
            "Failed to verify credentials: dial tcp 127.0.0.1:9: connect: connection refused",
            UnreachableSourceError,
            "connection refused",
        ),
        ("Could not find run <Run team/llm/r1 (not found)>", ReadError, "no such run"),
        ("No API key configured. Use `wandb login` to log in.", ReadError, "wandb login"),
        ("something else\nentirely", UnreachableSourceError, "something else"),
    ],
)
def test_wandbs_errors_are_one_line(wandb, text, kind, words):
    wandb["error"] = RuntimeError(text)
    with pytest.raises(ReadError, match=words) as refused:
        read_run("wandb:team/llm/r1")
    assert type(refused.value) is kind
    assert "\n" not in str(refused.value)


def test_an_offline_run_is_read_from_its_file_its_folder_and_by_its_id(data, tmp_path, whole):
    folder = tmp_path / "wandb" / "offline-run-20261122_190643-small"
    folder.mkdir(parents=True)
    file = shutil.copy(data / "trackers" / "run-small.wandb", folder)
    for name in (str(file), str(folder), str(tmp_path / "wandb"), f"{tmp_path}/wandb:small"):
        curve = read_run(name)
        assert (curve.steps.tolist(), [repr(value) for value in curve.loss.tolist()]) == whole
        assert (curve.recipe, curve.seed, curve.context["learning_rate"]) == ("nvfp4", 1, "0.0003")
    other = tmp_path / "wandb" / "offline-run-20261122_200000-other"
    other.mkdir()
    shutil.copy(file, other / "run-other.wandb")
    with pytest.raises(SeveralRunsError, match="2 runs"):
        read_run(str(tmp_path / "wandb"))
    assert [len(run.steps) for run in read_runs(str(tmp_path / "wandb"))] == [STEPS, STEPS]
    with pytest.raises(ReadError, match="no run 'third'"):
        read_run(f"{tmp_path}/wandb:third")


def test_a_resumed_offline_run_is_one_run(data, tmp_path):
    for time in ("190643", "200000"):
        folder = tmp_path / f"offline-run-20261122_{time}-small"
        folder.mkdir()
        shutil.copy(data / "trackers" / "run-small.wandb", folder)
    curve = read_run(str(tmp_path))
    assert (len(curve.steps), curve.completeness.duplicates) == (STEPS, STEPS)
    assert "2 files of a resumed run" in curve.notes


@pytest.mark.parametrize("names", [("run", "offline-run"), ("offline-run", "run")])
def test_the_parts_of_a_resumed_run_are_in_the_order_of_their_dates(data, tmp_path, names):
    parts = []
    for name, time in zip(names, ("190643", "200000"), strict=True):
        folder = tmp_path / f"{name}-20261122_{time}-small"
        folder.mkdir()
        parts.append(shutil.copy(data / "trackers" / "run-small.wandb", folder))
    assert [str(file) for file in offline_files(str(tmp_path))] == [str(part) for part in parts]
