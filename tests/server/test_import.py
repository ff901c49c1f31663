"""`parity import` against a real server: files of several kinds become finished runs, or are
refused with what they lack.
"""

import json

import httpx2
import numpy as np
import pytest

from parity import cli
from parity.judging.policy import policy_from_mapping
from parity.readers.tables.growing_table import GrowingTable
from parity.readers.trackers import sources
from parity.readers.trackers.run import TrackerRun
from server.database.metrics import store
from server.database.tables import Run
from server.jobs.submit import submit_job
from server.settings import CHECKOUT
from tests.parity.cli.schemas import check
from training.spec import ArmSpec, ShortReruns

READ = {"loss_name": "loss", "loss_meaning": "training loss"}
"""What a reader records of the loss that it took, beside what was stated."""
SAMPLE = CHECKOUT / "tests" / "data" / "events.out.tfevents.sample"


@pytest.fixture
def runs(database, make_job):
    spec = make_job(
        80,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        return [
            run.id for run in submit_job(session, spec, policy_from_mapping({"margin": "1%"})).runs
        ]


def _import(served, capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", *words, "--server", served])
    captured = capsys.readouterr()
    return ended.value.code, captured.out + captured.err


def test_a_pair_is_imported_and_judged(served, ended, database, runs, tmp_path, capsys):
    rows = [
        f"{step},{3 - step / 100},0.5,{3 - step / 90 if step % 20 == 0 else ''}"
        for step in range(80)
    ]
    (tmp_path / "fp8.csv").write_text("step,loss,grad_norm,val_loss\n" + "\n".join(rows) + "\n")
    pair = (
        str(tmp_path / "fp8.csv"),
        str(SAMPLE),
        "--as-run",
        runs[0],
        "--as-run",
        runs[1],
        "--context",
        "device_class=h100",
    )
    code, output = _import(served, capsys, *pair)
    assert code == 0, output
    assert (
        f"{runs[1]} {SAMPLE}: 80 steps, 0 to 79, stride 1, 0 gaps, 10 steps logged again" in output
    )
    with database.read() as session:
        job_id = session.get_one(Run, runs[0]).job_id
    with httpx2.Client(base_url=served, timeout=60) as client:
        ended(client, job_id)
    with database.read() as session:
        _, columns = store.read(session, runs[0], "train")
        assert columns["lm_loss"].tolist() == [3 - step / 100 for step in range(80)]
        assert columns["grad_norm"].tolist() == [0.5] * 80
        assert store.read(session, runs[0], "validation")[0].tolist() == [0, 20, 40, 60]
        assert np.isnan(store.read(session, runs[1], "train")[1]["lm_loss"][70])
        job = session.get_one(Run, runs[0]).job
        assert job.status == "concluded"
        assert job.runs[0].manifest == {"device_class": "h100", "engine": "external"} | READ
        (verdict,) = job.verdicts
        assert json.loads(verdict.document)["nonfinite"]["candidate"]  # NaN at step 70


def test_what_is_not_whole_is_refused_before_anything_is_sent(
    served, database, runs, tmp_path, capsys
):
    (tmp_path / "gap.csv").write_text(
        "step,loss\n" + "\n".join(f"{step},2.0" for step in range(80) if not 20 <= step < 25) + "\n"
    )
    both = (str(SAMPLE), str(tmp_path / "gap.csv"), "--as-run", runs[0], "--as-run", runs[1])
    code, output = _import(served, capsys, *both)
    assert code == 2
    assert "5 of 80 steps are missing between step 0 and 79" in output
    with database.read() as session:
        assert [session.get_one(Run, run).state for run in runs] == ["awaiting_data"] * 2
    assert _import(served, capsys, *both, "--allow-incomplete")[0] == 0
    with database.read() as session:
        assert [session.get_one(Run, run).state for run in runs] == ["finished"] * 2
    assert _import(served, capsys, str(SAMPLE))[0] == 2
    code, output = _import(served, capsys, str(SAMPLE), "--as-run", runs[0])
    assert code == 2
    assert "has ended (finished)" in output


def test_json_has_one_object_per_run_and_nothing_else(served, runs, tmp_path, capsys):
    (tmp_path / "fp8.csv").write_text(
        "step,loss\n" + "\n".join(f"{step},2.0" for step in range(80)) + "\n"
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(
            ["import", str(tmp_path / "fp8.csv"), "--as-run", runs[0], "--json", "--server", served]
        )
    (imported,) = document = json.loads(capsys.readouterr().out)
    check("imported-runs", document)
    assert ended.value.code == 0
    assert (imported["run"], imported["file"]) == (runs[0], str(tmp_path / "fp8.csv"))
    assert {
        key: imported[key] for key in ("steps", "first", "last", "stride", "gaps", "duplicates")
    } == {
        "steps": 80,
        "first": 0,
        "last": 79,
        "stride": 1,
        "gaps": 0,
        "duplicates": 0,
    }


def test_a_table_of_many_runs_is_imported_by_arm(served, database, make_job, tmp_path, capsys):
    spec = make_job(
        80,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current", replicates=2),
        candidates=(ArmSpec(recipe="nvfp4", replicates=2),),
    )
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1%"}))
        job_id, runs = job.id, {(run.arm.name, run.replicate): run.id for run in job.runs}
    rows = [
        f"{arm},{number},s{number},{step},{3 - step / 100 + number + worse}"
        for arm, worse in (("fp8_current", 0.0), ("nvfp4", 0.1))
        for number in range(2)
        for step in range(80)
    ]
    (tmp_path / "runs.csv").write_text("recipe,run,system,step,loss\n" + "\n".join(rows) + "\n")
    words = (
        str(tmp_path / "runs.csv"),
        "--arm-by",
        "recipe",
        "--run-by",
        "run",
        "--job",
        job_id,
        "--context",
        "device_class=h100",
    )
    code, output = _import(served, capsys, *words)
    assert code == 0, output
    assert f"{runs['nvfp4', 1]} {tmp_path / 'runs.csv'}, run 1 of nvfp4: 80 steps" in output
    with database.read() as session:
        for (arm, number), run in runs.items():
            _, columns = store.read(session, run, "train")
            assert columns["lm_loss"][0] == pytest.approx(
                3.0 + number + (0.1 if arm == "nvfp4" else 0.0)
            )
            assert (
                session.get_one(Run, run).manifest
                == {"device_class": "h100", "engine": "external", "system": f"s{number}"} | READ
            )
    (tmp_path / "runs.csv").write_text(
        "recipe,run,system,step,loss\n" + "\n".join(rows[:-80]) + "\n"
    )
    code, output = _import(served, capsys, *words)
    assert (code, "nvfp4 has 1 run, but job" in output) == (2, True)


def test_a_short_rerun_is_imported_like_a_run_of_its_own_length(
    served, ended, database, make_job, tmp_path, capsys
):
    spec = make_job(
        400,
        engine="external",
        candidates=(ArmSpec(recipe="mxfp8"),),
        short_reruns=ShortReruns(runs=1, stop_at=0.5),
    )
    rng = np.random.default_rng(1)
    batch = rng.normal(0, 0.1, 400)
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1%"}))
        job_id, runs = job.id, [(run.id, run.kind, run.planned_steps) for run in job.runs]
    for number, (run, kind, steps) in enumerate(runs):
        loss = (
            2
            + np.exp(-np.arange(steps) / 40)
            + batch[:steps]
            + rng.normal(0, 0.01, steps)
            + rng.normal(0, 0.002)
        )
        file = tmp_path / f"{number}.csv"
        file.write_text(
            "step,loss\n"
            + "\n".join(f"{step},{value:.6f}" for step, value in enumerate(loss))
            + "\n"
        )
        if kind == "short":
            short = tmp_path / "short.csv"
            short.write_text("".join(file.read_text().splitlines(keepends=True)[:150]))
            code, output = _import(served, capsys, str(short), "--as-run", run)
            assert (code, "this run takes 200 steps" in output) == (2, True)
        code, output = _import(served, capsys, str(file), "--as-run", run)
        assert code == 0, output
    with httpx2.Client(base_url=served, timeout=60) as client:
        ended(client, job_id)
    with pytest.raises(SystemExit):
        cli.main(["status", job_id, "--server", served])
    assert capsys.readouterr().out.count("stops early") == 2
    with database.read() as session:
        (verdict,) = session.get_one(Run, runs[0][0]).job.verdicts
        tau = json.loads(verdict.document)["tau"]
    assert [tau[arm]["early_stopped"]["runs"] for arm in ("baseline", "candidate")] == [1, 1]


def test_a_trackers_run_brings_its_config_and_nothing_is_half_imported(
    served, database, runs, monkeypatch, capsys
):
    configs = {
        "fp8": {"recipe": "fp8_current", "lr": 1e-3},
        "nvfp4": {"recipe": "nvfp4", "lr": 1e-3},
        "other": {"recipe": "mxfp8"},
    }

    def read(source, path, wanted):
        rows = "step,loss\n" + "\n".join(f"{step},{3 - step / 100}" for step in range(80)) + "\n"
        return TrackerRun(columns=GrowingTable(source, wanted).read(rows), config=configs[path])

    monkeypatch.setattr(sources, "SOURCES", {"mlflow:": read})
    ids = ("--as-run", runs[0], "--as-run", runs[1])
    code, output = _import(served, capsys, "mlflow:fp8", "mlflow:other", *ids)
    assert (code, "its recipe is mxfp8, but run" in output) == (2, True)
    with database.read() as session:
        assert [session.get_one(Run, run).state for run in runs] == ["awaiting_data"] * 2
    code, output = _import(
        served, capsys, "mlflow:fp8", "mlflow:nvfp4", *ids, "--context", "learning_rate=0.002"
    )
    assert code == 0, output
    assert "from the run's config: recipe nvfp4, learning_rate 0.001" in output
    with database.read() as session:
        assert (
            session.get_one(Run, runs[1]).manifest
            == {"engine": "external", "learning_rate": "0.002"} | READ
        )
