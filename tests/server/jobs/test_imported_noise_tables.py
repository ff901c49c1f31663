"""Groups of reruns from a table: imported whole or not at all, and used only by jobs that name
their family.
"""

import dataclasses
import json

import pytest

from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.noise.noise_table import COLUMNS, NoiseTable, read_noise_table
from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import ImportedGroup, Job
from server.errors import InvalidError, ServiceError
from server.jobs.conclude import conclude
from server.jobs.imported_noise import import_noise_table, imported_groups, imported_noise_tables
from server.jobs.judge_input import case_of
from server.jobs.noise_tables import keep_reruns, noise_table_on_record, reruns_of
from server.jobs.outlook import noise_families_for, planned
from server.jobs.submit import config_hash, submit_job
from tests.server.analyses import stated_rounding
from training.spec import ArmSpec

POLICY = policy_from_mapping({"margin": "1.0%"})
HEAD = ",".join(COLUMNS)
MXFP8 = {"candidates": (ArmSpec(recipe="mxfp8"),)}


def row(number, family="mine", **cells):
    """A row of a table: five runs at a loss of 1.4 that differ by 0.0008 or a little more."""
    values = {
        "family": family,
        "group": f"g{number}",
        "runs": "5",
        "mean_loss": "1.4",
        "sd": repr(0.0008 + 0.0001 * number),
    }
    about = {
        "unit": "nats",
        "rounding": "nearest",
        "varies": "seed",
        "source": "our runs",
        "licence": "internal",
    }
    return ",".join((values | about | cells).get(column, "") for column in COLUMNS)


TABLE = "\n".join(
    [
        HEAD,
        *(row(number) for number in range(5)),
        *(row(number, rounding="stochastic") for number in range(5, 10)),
    ]
)
OTHER = "\n".join(row(number, "other") for number in range(20, 24))


@pytest.fixture
def imported(database):
    """A function that imports a table as the holder of token t1."""

    def run(table=TABLE, family=None):
        with database.write() as session:
            return import_noise_table(session, table, family, "t1")

    return run


def _rows(database):
    with database.read() as session:
        return imported_noise_tables(session).rows


@pytest.mark.both_databases
def test_a_table_is_kept_with_owner_source_and_licence_and_twice_changes_nothing(
    database, imported
):
    first = imported()
    assert (first.families, first.new_groups, first.known_groups) == (["mine"], 10, 0)
    rows = _rows(database)
    assert {tuple(one.items()) for one in rows} == {
        tuple(one.items()) for one in read_noise_table(TABLE).rows
    }
    with database.read() as session:
        group = imported_groups(session, "mine")["g3"]
        assert (group.imported_by, group.cells["source"], group.cells["licence"]) == (
            "t1",
            "our runs",
            "internal",
        )
    again = imported()
    assert (again.new_groups, again.known_groups) == (0, 10)
    assert _rows(database) == rows


def test_one_family_of_a_table_and_further_groups_of_it_later(database, imported):
    assert imported(f"{TABLE}\n{OTHER}", "other").families == ["other"]
    assert {one["family"] for one in _rows(database)} == {"other"}
    more = imported("\n".join([HEAD, row(30, "other")]))
    assert (more.new_groups, len(_rows(database))) == (1, 5)


REFUSED = {
    "no table": ("nothing", "a column 'nothing'"),
    "a negative variance": (row(9, group="bad", sd="-0.001"), "sd is '-0.001'"),
    "mixed units": (row(9, group="bad", unit="bits"), "unit is 'bits'"),
    "an unknown class of rounding": (row(9, group="bad", rounding="up"), "rounding is 'up'"),
    "a single group": (row(1, "alone"), "1 usable group; expected at least 3"),
    "too few runs": (
        "\n".join(row(number, "few", runs="2") for number in range(4)),
        "4 degrees of freedom",
    ),
    "no variance at all": (
        "\n".join(row(number, "zero", sd="0", mean_loss=f"1.4{number}") for number in range(4)),
        "bit for bit",
    ),
    "no class of rounding": (
        "\n".join(row(number, "unstated", rounding="") for number in range(4)),
        "not stated how its groups round",
    ),
    "losses far apart": (
        "\n".join(row(number, "far", mean_loss=f"{1 + number}") for number in range(4)),
        "within a tenth",
    ),
    "the name of a public family": (
        "\n".join(row(number, "Modded-NanoGPT-124M/track3") for number in range(4)),
        "public",
    ),
    "the name of no family": (row(1, "any-decoder"), "means no family"),
    "a formula": (row(1, "mine", source="=HYPERLINK(A1)"), "formula"),
    "a control character": (row(1, "mine", source="a\x00b"), "printable"),
    "a group twice with other values": (row(1, "mine", sd="0.5e-3"), "sd of group 'g1'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_table_is_refused_in_one_line_with_nothing_imported(database, imported, case):
    bad, words = REFUSED[case]
    with pytest.raises(ServiceError) as refused:
        imported(f"{TABLE}\n{bad}" if case != "no table" else f"{bad}\n1")
    assert words in refused.value.detail
    assert refused.value.detail.count("\n") == 0
    assert _rows(database) == ()


def test_a_group_that_was_imported_does_not_change(database, imported):
    imported()
    with pytest.raises(ServiceError, match="licence of group 'g2'"):
        imported(TABLE.replace(row(2), row(2, licence="public")))
    assert len(_rows(database)) == 10


def test_there_is_a_most_of_groups(database, imported, monkeypatch):
    monkeypatch.setattr("server.jobs.imported_noise.MOST_IMPORTED_GROUPS", 9)
    with pytest.raises(ServiceError, match="at most 9"):
        imported()
    monkeypatch.setattr("server.jobs.imported_noise.MOST_IMPORTED_GROUPS", 10)
    assert imported().new_groups == 10
    with pytest.raises(ServiceError, match="at most 10"):
        imported(f"{HEAD}\n{OTHER}")


@pytest.fixture
def on_record(database, recorded):
    """The families on record: four concluded jobs with four runs per arm."""
    for rerun in range(1, 5):
        job_id = recorded({"mxfp8": 0.0}, rerun=rerun, steps=300, replicates=4)
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status = "concluded"
            keep_reruns(job, reruns_of(session, job))
    with database.read() as session:
        return noise_table_on_record(session)


def test_what_jobs_of_this_server_measured_is_not_imported_under_its_name_or_another(
    database, imported, on_record
):
    with pytest.raises(ServiceError, match="has the name of emulated-300-steps"):
        imported(on_record.csv())
    renamed = NoiseTable(tuple({**one, "family": "mine"} for one in on_record.rows))
    with pytest.raises(ServiceError, match="has the figures of"):
        imported(renamed.csv())
    assert _rows(database) == ()


def _job(database, make_job, family, **changes):
    """A queued job of 1,500 steps that names a family."""
    with database.write() as session:
        return submit_job(session, make_job(1500, family=family, **changes), POLICY).id


def _finish(database, job_id, recorded):
    """Give the job's runs the curves of a recorded one, and judge it."""
    source = recorded({"mxfp8": 0.0}, steps=1500)
    with database.write() as session:
        curves = {
            run.arm.role: store.read(session, run.id, "train")
            for run in session.get_one(Job, source).runs
        }
        job = session.get_one(Job, job_id)
        for run in job.runs:
            steps, columns = curves[run.arm.role]
            store.append(session, run.id, "train", 1, steps, columns)
            run.state, run.attempt_number, run.steps_done, run.rounding = (
                "finished",
                1,
                len(steps),
                stated_rounding(run),
            )
            run.manifest = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}
    conclude(database, job_id)


@pytest.mark.both_databases
@pytest.mark.parametrize("engine", ["emulated", "external"])
def test_a_job_that_names_a_family_borrows_what_was_imported_when_it_was_submitted(
    database, imported, recorded, make_job, tmp_path, engine
):
    imported()
    job_id = _job(database, make_job, "mine", engine=engine, **MXFP8)
    imported("\n".join([HEAD, row(30)]))
    _finish(database, job_id, recorded)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        (verdict,) = job.verdicts
        borrowed = json.loads(verdict.document)["tau"]["candidate"]["borrowed"]
        assert (borrowed["family"], borrowed["groups"]) == ("mine", 5)
        assert {one["licence"] for one in read_noise_table(job.noise_table).rows} == {"internal"}
        path = tmp_path / "evidence.zip"
        path.write_bytes(bundle_bytes(case_of(session, job), [json.loads(verdict.document)]))
    assert verify(str(path)).differences == ()


def test_a_job_that_names_none_never_borrows_it(database, imported, recorded, make_job):
    imported()
    job_id = _job(database, make_job, None, **MXFP8)
    _finish(database, job_id, recorded)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.noise_table is None
        assert "borrowed" not in json.loads(job.verdicts[0].document)["tau"]["candidate"]
        assert "family" not in job.spec


def test_a_named_family_is_in_the_hash_and_in_the_plan_and_an_unknown_one_is_refused(
    database, imported, make_job
):
    imported()
    spec = make_job(1500, family="mine", **MXFP8)
    assert config_hash(spec, POLICY, "") != config_hash(
        dataclasses.replace(spec, family=None), POLICY, ""
    )
    with database.read() as session:
        (one,) = planned(spec, POLICY, None, noise_families_for(session, spec))
        assert [arm.basis for arm in one.plan.run_noise] == ["borrowed from mine"] * 2
        general = dataclasses.replace(spec, family="any-decoder")
        (one,) = planned(general, POLICY, None, noise_families_for(session, general))
        assert {arm.basis.partition(":")[0] for arm in one.plan.run_noise} == {
            "assumed as in any-decoder (7 families)"
        }
        with pytest.raises(InvalidError, match="is 'mime'"):
            noise_families_for(session, dataclasses.replace(spec, family="mime"))
    with pytest.raises(InvalidError, match="parity noise import"):
        _job(database, make_job, "mime")


def test_a_public_family_is_named_in_the_same_way(database, make_job):
    job_id = _job(database, make_job, "modded-nanogpt-124M/track3")
    with database.read() as session:
        assert len(read_noise_table(session.get_one(Job, job_id).noise_table).rows) >= 41
        assert session.query(ImportedGroup).count() == 0
