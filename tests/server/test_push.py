"""`parity compare --push` against a real server: a job with every run, its page, and what happens when it breaks off."""

import json

import numpy as np
import pytest

from parity.cli import main as cli
from server.database import store
from server.database.tables import Job

STEPS = 1500


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    t, rng = np.arange(STEPS), np.random.default_rng(0)
    batch = rng.normal(0, 0.06, STEPS)
    paths = {}
    for name, gap in (("fp8", 0.0), ("mxfp8", -0.002), ("my nvfp4", 0.03)):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + gap + rng.normal(0, 0.01, STEPS)
        paths[name] = folder / f"{name}.csv"
        paths[name].write_text("step,loss,lr\n" + "".join(f"{i},{v:.6f},0.001\n" for i, v in zip(t, loss, strict=True)))
    return {name: str(path) for name, path in paths.items()}


def _compare(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", *words])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def _only_job(database):
    with database.read() as session:
        return session.query(Job).one().id


def test_a_comparison_gets_a_page_with_the_same_verdicts(served, database, files, capsys):
    words = (files["fp8"], files["mxfp8"], files["my nvfp4"], "--planned-steps", "1500", "--margin", "1%", "--rounding", "mxfp8=nearest")
    recipes = ("--recipe", "fp8=fp8", "--recipe", "my nvfp4=other:mine", "--context", "fp8:engine=x", "--context", "mxfp8:engine=x")
    call = (*words, *recipes, "--context", "my nvfp4:engine=x", "--push", "--server", served)
    code, out, err = _compare(capsys, *call)
    assert (code, err) == (1, "")
    job = _only_job(database)
    assert out.splitlines()[-1] == f"page: {served}/jobs/{job}"
    with database.read() as session:
        row = session.get_one(Job, job)
        assert row.status == "concluded"
        assert [(arm.name, arm.recipe) for arm in row.arms] == [("fp8", "other:fp8"), ("mxfp8", "other:mxfp8"), ("my_nvfp4", "other:mine")]
        assert {run.rounding for run in row.runs} == {"nearest", None}
        assert row.runs[0].manifest == {"engine": "external", "trainer_engine": "x"}
        assert "lr" not in store.read(session, row.runs[0].id, "train")[1]
        theirs = {verdict.candidate: json.loads(verdict.document) for verdict in row.verdicts}
    ours = json.loads(_compare(capsys, *words, *recipes, "--context", "my nvfp4:engine=x", "--json")[1])["verdicts"]
    for own, name in zip(ours, ("mxfp8", "my_nvfp4"), strict=True):
        assert theirs[name]["verdict"] == own["verdict"]
        assert theirs[name]["gap"] == own["gap"]
        assert theirs[name]["codes"] == own["codes"]
    # The same comparison again is the same job.
    assert _compare(capsys, *call)[1].splitlines()[-1] == f"page: {served}/jobs/{job}"
    assert _only_job(database) == job
