"""Run-to-run noise that a job borrows from the reruns of earlier jobs."""

import dataclasses
import json
import re
from collections.abc import Callable

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.noise.emulated_table import DEMO, SMALL, emulated_noise_table
from parity.judging.noise.noise_table import read_noise_table
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job, Run
from server.jobs.conclude import conclude
from server.jobs.judge_input import case_of
from server.jobs.noise_tables import (
    DEMO_SPEC,
    borrowed_noise_table,
    emulated_family,
    family_in,
    family_of,
    keep_reruns,
    newest_family,
    noise_table_on_record,
    reruns_of,
)
from server.settings import CHECKOUT
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule

Recorded = Callable[..., str]


@pytest.fixture(autouse=True)
def nothing_ships():
    """Overrides that of the other tests of the server: here the reruns that ship with the judge
    are used.
    """


@pytest.fixture
def earlier(database: Database, recorded: Recorded) -> list[str]:
    """Four concluded jobs of one family with five runs per arm: 8 groups that round to nearest, 4
    that round stochastically.
    """
    return [_job(database, recorded, rerun, judged=False) for rerun in range(1, 5)]


def _job(
    database: Database, recorded: Recorded, rerun: int, *, gap: float = 0.0, judged: bool = True
) -> str:
    job_id = recorded(
        {"nvfp4": gap, "mxfp8": 0.0}, rerun=rerun, steps=300, replicates=5 if not judged else 2
    )
    with database.write() as session:
        job = session.get_one(Job, job_id)
        for run in job.runs:
            run.rounding = "stochastic" if run.arm.name == "nvfp4" else "nearest"
        if not judged:
            job.status = "concluded"
            keep_reruns(job, reruns_of(session, job))
    if judged:
        conclude(database, job_id)
    return job_id


def test_a_group_is_what_one_job_trained_of_one_recipe(database, earlier):
    with database.read() as session:
        job = session.get_one(Job, earlier[0])
        (family,) = noise_table_on_record(session).families.values()
        assert family.name == family_of(job)
        assert len(family.groups) == 12
        first = next(
            group
            for group in family.groups
            if earlier[0] in group.group and group.group.startswith("fp8")
        )
        (runs,) = [list(arm.runs) for arm in job.arms if arm.name.startswith("fp8")]
        means = [
            store.read(session, run.id, "train", ["lm_loss"])[1]["lm_loss"][240:].mean()
            for run in runs
        ]
        assert (first.runs, first.rounding) == (5, "nearest")
        assert (first.mean_loss, first.sd) == pytest.approx((np.mean(means), np.std(means, ddof=1)))


def test_the_first_job_borrows_from_the_small_models_that_ship_with_the_engine(database, recorded):
    job_id = _job(database, recorded, 9)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.noise_table == emulated_noise_table().only({SMALL}).csv()
        for row in job.verdicts:
            document = json.loads(row.document)
            assert document["tau"]["candidate"]["borrowed"]["family"] == SMALL
            assert "RUN_NOISE_BORROWED" in document["codes"]


def _spec(**changes):
    return dataclasses.replace(DEMO_SPEC, **changes).document()


def test_the_specification_that_ships_its_reruns_is_that_of_the_demo():
    for name in ("demo.yaml", "demo-quick.yaml"):
        written = TypeAdapter(JobSpec).validate_python(
            yaml.safe_load((CHECKOUT / "examples" / name).read_text("utf-8"))["job"]
        )
        assert emulated_family(written.document()) == DEMO, name
        # as the record has it
        assert emulated_family(json.loads(json.dumps(written.document()))) == DEMO, name


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({"name": "mine", "seed": 7, "candidates": (ArmSpec(recipe="nvfp4", replicates=3),)}, DEMO),
        ({"schedule": Schedule(steps=1000, validation_every=100, statistics_every=25)}, DEMO),
        ({"schedule": Schedule(steps=1001)}, SMALL),
        ({"schedule": Schedule(steps=1000, learning_rate=3e-3)}, SMALL),
        ({"schedule": Schedule(steps=1000, final_fraction=0.2)}, SMALL),
        ({"schedule": Schedule(steps=1000, final_fraction=0.21)}, None),
        ({"data": Data(source="parity_docs", batch_size=4)}, SMALL),
        ({"data": Data(source="text", path="/data/text")}, SMALL),
        ({"model": Model(n_layers=4)}, SMALL),
        ({"model": Model(preset="llama3-5m")}, SMALL),
        ({"model": Model(preset="llama3-20m")}, None),
        ({"layer_policy": "all_linears"}, SMALL),
        ({"engine": "external"}, None),
    ],
)
def test_what_ships_is_used_by_small_models_whose_rate_decays(changes, family):
    assert emulated_family(_spec(**changes)) == family


def test_the_record_counts_before_what_ships_but_not_for_the_demo(database, recorded, earlier):
    job_id = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, steps=300, rerun=9)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        assert family_in(borrowed_noise_table(session, job, family_of(job))) == family_of(job)
        job.spec = _spec()
        assert family_in(borrowed_noise_table(session, job, family_of(job))) == DEMO
        assert family_in(borrowed_noise_table(session, job, None)) == DEMO


@pytest.mark.both_databases
def test_a_later_job_borrows_from_them_and_not_from_itself(database, recorded, earlier):
    job_id = _job(database, recorded, 9)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        borrowed = read_noise_table(job.noise_table)
        assert not [row for row in borrowed.rows if job_id in row["group"]]
        document = json.loads(
            next(row.document for row in job.verdicts if row.candidate == "mxfp8")
        )
        assert document["tau"]["candidate"]["borrowed"]["family"] == family_of(job)
        assert document["tau"]["candidate"]["borrowed"]["groups"] == 8


@pytest.mark.both_databases
def test_a_verdict_is_made_again_from_what_it_borrowed_however_the_record_grows(
    database, recorded, earlier, tmp_path
):
    job_id = _job(database, recorded, 9)
    _job(database, recorded, 10, gap=0.2)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        documents = case_of(session, job).documents()
        by_name = {row.candidate: json.loads(row.document) for row in job.verdicts}
        assert [by_name[document["candidate"]["name"]] for document in documents] == json.loads(
            json.dumps(documents)
        )
        path = tmp_path / "evidence.zip"
        path.write_bytes(bundle_bytes(case_of(session, job), documents))
    assert verify(str(path)).differences == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [("steps_done", None), ("state", "failed"), ("code", "EARLY_STOP"), ("reused_from", "first")],
)
def test_runs_that_did_not_train_to_the_end_are_in_no_group(database, earlier, field, value):
    with database.write() as session:
        job = session.get_one(Job, earlier[0])
        run = next(run for run in job.runs if run.arm.name == "mxfp8")
        if field == "steps_done":
            run.planned_steps = 400
        else:
            setattr(
                run,
                field,
                next(other.id for other in job.runs if other is not run)
                if value == "first"
                else value,
            )
        session.flush()
        (family,) = reruns_of(session, job).families.values()
        assert sorted(group.runs for group in family.groups) == [4, 5, 5]


def test_too_few_groups_another_schedule_and_external_runs_are_not_used(
    database, recorded, earlier
):
    other = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, steps=301)
    with database.write() as session:
        job = session.get_one(Job, other)
        assert family_in(borrowed_noise_table(session, job, family_of(job))) == SMALL
        job.engine, job.spec = "external", job.spec | {"engine": "external"}
        assert family_of(job) is None
        assert borrowed_noise_table(session, job, family_of(job)) is None
        assert reruns_of(session, job) is None


def test_a_loss_that_is_not_finite_leaves_its_run_out(database, earlier):
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == earlier[0]).first()
        store.append(session, run.id, "train", 2, np.array([290]), {"lm_loss": np.array([np.nan])})
        (family,) = reruns_of(session, session.get_one(Job, earlier[0])).families.values()
        assert sorted(group.runs for group in family.groups) == [4, 5, 5]


@pytest.mark.parametrize("fact", ["data_digest", "device_class"])
def test_other_data_and_another_device_are_another_family(database, recorded, earlier, fact):
    job_id = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, steps=300, rerun=9)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        assert family_in(borrowed_noise_table(session, job, family_of(job))) == family_of(job)
        for run in job.runs:
            run.manifest = run.manifest | {fact: "other"}
        assert family_in(borrowed_noise_table(session, job, family_of(job))) == SMALL
        assert newest_family(session, job) != family_of(job)
        job.runs[0].manifest = job.runs[0].manifest | {fact: "a third"}
        assert family_of(job) is None


def test_a_run_that_was_trained_before_is_in_no_group(database, recorded, earlier):
    again = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, steps=300, rerun=1, replicates=5)
    with database.write() as session:
        old, new = session.get_one(Job, earlier[0]), session.get_one(Job, again)
        for run, copy in zip(old.runs, new.runs, strict=True):
            run.fingerprint = copy.fingerprint = run.id
        session.flush()
        assert reruns_of(session, old) is not None
        assert reruns_of(session, new) is None


def test_the_jobs_whose_curves_are_read_already_are_not_used(database, recorded, earlier):
    job_id = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, steps=300, rerun=9)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        source, controls = (session.get_one(Job, other).runs for other in earlier[:2])
        job.runs[0].reused_from, job.controls = source[0].id, [controls[0].id]
        session.flush()
        borrowed = {
            group.group.rpartition(" ")[2]
            for family in borrowed_noise_table(session, job, family_of(job)).families.values()
            for group in family.groups
        }
        assert borrowed == set(earlier[2:])


def test_runs_that_are_equal_bit_for_bit_make_a_group_without_spread(
    database, earlier, monkeypatch
):
    monkeypatch.setattr(
        "server.jobs.noise_tables._late_means",
        lambda _session, runs: np.array([1.4] * (len(runs) - 1) + [np.nextafter(1.4, 2.0)]),
    )
    with database.read() as session:
        (family,) = reruns_of(session, session.get_one(Job, earlier[0])).families.values()
    assert (family.groups, len(family.bit_equal), family.problems) == ((), 2, ())


def test_a_family_is_named_by_steps_and_two_digests_of_eight_digits(database, recorded, earlier):
    """Job files and imported tables name families, so a name has to outlive a version."""
    with database.read() as session:
        name = family_of(session.get_one(Job, earlier[0]))
    assert re.fullmatch(r"emulated-300-steps-[0-9a-f]{8}-[0-9a-f]{8}", name)
