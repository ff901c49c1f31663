"""What workers read at a place, and when the data there count as others."""

from dataclasses import replace

import pytest

from server.database.tables import DataRead, Job
from server.jobs import data_digests
from server.jobs.data_digests import changed_since, place_of
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, JobSpec

pytestmark = pytest.mark.both_databases
TEXT = Data(source="text", path="/data/c", sequence_length=32, batch_size=2)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {"path": "/data/./c/"}, True),
        ({}, {"batch_size": 4}, True),  # reads the same bytes
        ({}, {"path": "/data/d"}, False),
        ({}, {"source": "tokens"}, False),
    ],
)
def test_a_place_is_a_source_and_a_path(make_job, one, other, same):
    places = [place_of(make_job(data=replace(TEXT, **changes))) for changes in (one, other)]
    assert (places[0] == places[1]) is same
    assert all(len(place) == 64 for place in places)


def test_data_without_a_path_belong_to_the_trainer_and_those_of_maxtext_have_their_tokenizer(
    make_job,
):
    assert place_of(make_job(data=Data(source="markov"))) is None
    arms = {"baseline": ArmSpec(recipe="bf16"), "candidates": (ArmSpec(recipe="fp8_current"),)}
    data = Data(source="grain", path="/data/c", sequence_length=32, batch_size=2)
    jobs = [
        JobSpec(
            name="m",
            engine="maxtext",
            data=data,
            maxtext=MaxTextOptions(tokenizer_path=path),
            **arms,
        )
        for path in ("/t/1", "/t/2")
    ]
    first, second = map(place_of, jobs)
    assert None not in (first, second)
    assert first != second


@pytest.fixture
def job(database, make_job):
    """The row of a job on TEXT that is not saved."""
    spec = make_job(data=TEXT)
    return Job(id="j1", engine="emulated", spec=spec.document(), data_place=place_of(spec))


def _record(session, make_job, digest):
    (_, run), *_ = make_job(data=TEXT).runs()
    data_digests.record_data(session, run, "r1", {"data_digest": digest} if digest else {})


def test_the_newest_read_decides(database, make_job, job):
    with database.write() as session:
        assert "no worker has recorded" in changed_since(session, job, {"d1"})
        assert changed_since(session, job, set()) is None, "no run of it has begun"
        _record(session, make_job, "d1")
        assert changed_since(session, job, {"d1"}) is None
        assert "this job d1, d2" in changed_since(session, job, {"d1", "d2"})
        _record(session, make_job, "d2")
        assert "run r1 read d2, this job d1" in changed_since(session, job, {"d1"})
        _record(session, make_job, None)
        _record(session, make_job, "d1")
        assert changed_since(session, job, {"d1"}) is None
    with database.read() as session:
        assert session.query(DataRead).count() == 1


def test_what_a_later_run_of_a_strangers_trainer_states_is_not_taken_back(
    api, database, request_body
):
    request_body["job"] |= {"engine": "external", "data": {"source": "text", "path": "/data/c"}}

    def attached(digest):
        job = api.post("/api/v1/jobs", json=request_body).json()
        run = job["arms"][0]["runs"][0]["id"]
        assert (
            api.post(
                f"/api/v1/runs/{run}:attach", json={"manifest": {"data_digest": digest}}
            ).status_code
            == 200
        )
        return job["id"]

    def reason(job_id):
        with database.read() as session:
            return changed_since(session, session.get_one(Job, job_id), {"d1"})

    first = attached("d1")
    attached("d1")
    assert reason(first) is None
    attached("d2")
    attached("d1")
    assert "states d2, this job d1" in reason(first)
