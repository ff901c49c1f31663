"""Analyses on the record: what is planned and refused, that nothing counts one as a run of its own,
and what it answers.
"""

from functools import partial

import pytest

from parity.judging.policy import policy_from_mapping
from parity_lab.analysis_plan import setup_from
from parity_lab.server.analyses import WhyRequest, analysis_of, plan_analysis, submit_analysis
from parity_lab.server.documents import plan_document
from parity_lab.server.tables import Analysis, AnalysisResult
from server.database.tables import Job
from server.errors import ConflictError, InvalidError, NotFoundError
from server.jobs import baselines, forecasts, noise_tables
from server.jobs.again import request_of
from server.jobs.conclude import conclude
from server.jobs.fingerprint import equal_run, unsound
from server.jobs.job_kinds import kind_of
from server.jobs.submit import submit_job
from server.retention import files, jobs
from tests.server.analyses import KEPT, STEPS, UNITS, make_explained, make_retired, measured
from training.overrides import Override

pytestmark = pytest.mark.both_databases


@pytest.fixture
def explained(database):
    """A function that makes a judged job whose candidate is worse by a gap; returns its id."""
    return partial(make_explained, database)


def submitted(database, job, question=WhyRequest()):  # noqa: B008
    with database.write() as session:
        return submit_analysis(session, job, question, "me")[0].id


def test_an_analysis_is_a_job_with_one_run_on_the_device_class_of_what_it_explains(
    database, explained
):
    job_id = explained()
    made = submitted(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, made)
        (run,) = job.runs
        assert (run.kind, run.state, run.arm.name, run.seed) == ("why", "queued", "planted", 0)
        assert (job.device_class, job.threads, job.config_hash, job.submitted_by) == (
            "cpu:test",
            1,
            None,
            "me",
        )
        analysis = session.get_one(Analysis, job.id)
        assert (analysis.explains, analysis.candidate, analysis.against) == (
            job_id,
            "planted",
            "baseline",
        )
        setup = setup_from(analysis.setup)
        assert list(setup.units) == UNITS
        assert (setup.fork_step, setup.fork_steps, len(setup.parents)) == (KEPT, 100, 3)
        assert run.planned_steps >= setup.least_steps
        assert run.forked_from == setup.parents[0]
        assert analysis_of(session, job_id).job_id == analysis_of(session, made).job_id == made
    assert submitted(database, job_id) == made  # an open one with the same plan
    assert submitted(database, job_id, WhyRequest(against="bf16")) != made


def test_the_answer_names_the_planted_unit_and_stays_on_record(
    database, worker_database, explained
):
    made = submitted(database, explained())
    measured(worker_database, made, {"0.down.wgrad": 0.02})
    conclude(worker_database, made)
    with database.read() as session:
        job = session.get_one(Job, made)
        assert (job.status, job.code, job.verdicts) == ("concluded", None, [])
        answer = session.get_one(Analysis, job.id).answer
        assert [each["gemms"] for each in answer["named"]] == [["0.down.wgrad"]]
        assert answer["complete"]


def test_a_record_that_does_not_follow_from_its_specification_names_nothing(
    database, worker_database, explained, api
):
    made = submitted(database, explained())
    measured(worker_database, made, {"0.down.wgrad": 0.02}, departs=17)
    conclude(worker_database, made)
    with database.read() as session:
        job = session.get_one(Job, made)
        assert (job.status, job.code) == ("concluded", "NOT_IN_PRECISION")
        assert "at step 17 the loss on record is +0.0120 nats from it" in job.message
        first = setup_from(session.get_one(Analysis, made).setup).replays
    document = api.get(f"/api/v1/jobs/{made}/why").json()
    answer = document["answer"]
    assert (answer["complete"], answer["named"], answer["effect"]) == (True, [], None)
    assert [each["state"] for each in answer["replay"]["replays"]].index("differs") == len(
        answer["replay"]["replays"]
    ) - 1
    assert len(document["plan"]["replays"]) == len(first) == 12  # windows and the first pair whole
    assert document["plan"]["differences"] == []
    page = api.get(f"/jobs/{made}/why").text
    assert "does not follow its record" in page
    # nothing follows
    assert [
        words for words in ("Not measured yet", "follow after", "ranks causes") if words in page
    ] == []


def test_other_learning_rates_or_environments_are_listed_first(database, explained):
    job_id = explained(rate=1.3e-3)
    with database.write() as session:
        run = session.get_one(Job, job_id).arms[1].runs[0]
        run.manifest, run.attempt_number = {**run.manifest, "data_digest": "other"}, 2
        plan = plan_document(session, plan_analysis(session, job_id, WhyRequest(anyway=True)))
        listed = [(each.key, each.baseline, each.other) for each in plan.differences]
    assert listed == [
        ("learning rate at step 0", "0.001", "0.0013"),
        ("data_digest", "d", "other"),
        ("attempts", "1", "2"),
    ]


def test_a_record_that_parts_between_the_replayed_steps_has_to_be_replayed_whole(
    database, explained
):
    job_id = explained(broken=700)
    with database.read() as session:
        for anyway in (False, True):
            with pytest.raises(
                ConflictError, match=r"at step 700 .* weights or updates jump; add --whole"
            ):
                plan_analysis(session, job_id, WhyRequest(anyway=anyway))
        assert plan_analysis(session, job_id, WhyRequest(whole=True)).setup["rates"] is None


def test_every_step_is_replayed_if_that_is_asked_for(database, explained):
    job_id = explained()
    with database.read() as session:
        some, every = (
            plan_document(session, plan_analysis(session, job_id, WhyRequest(whole=whole)))
            for whole in (False, True)
        )
    assert sum(each.steps == STEPS for each in some.replays) == 2
    assert sum(each.steps == STEPS for each in every.replays) == 6
    more = every.least_steps - some.least_steps
    assert more > 3 * STEPS
    assert every.most_steps - some.most_steps == pytest.approx(more)


def test_an_analysis_that_failed_ends_its_job_with_the_reason(database, explained):
    made = submitted(database, explained())
    with database.write() as session:
        job = session.get_one(Job, made)
        job.status, run = "running", job.runs[0]
        run.state, run.code, run.message = "failed", "CHECKPOINT_NOT_FOUND", "gone"
    conclude(database, made)
    with database.read() as session:
        job = session.get_one(Job, made)
        assert (job.status, job.code, job.message) == ("failed", "CHECKPOINT_NOT_FOUND", "gone")
        assert session.get_one(Analysis, job.id).answer is None


def test_no_analysis_is_a_run_of_its_own_anywhere(database, explained):
    made = submitted(database, explained())
    measured(database, made, {})
    with database.write() as session:
        job = session.get_one(Job, made)
        assert not job.is_judged
        assert equal_run(session, "f") is None
        assert "measured the parts of a gap" in unsound(session, job.runs[0])
        assert [*noise_tables._groups(session, job, "family")] == []
        assert baselines._offered(session, job.id) == []
        with pytest.raises(ConflictError, match="has no run that was judged"):
            baselines.promote(session, "name", job.id, None, "reason", "who", None)
        with pytest.raises(ConflictError, match="is an analysis itself"):
            plan_analysis(session, made, WhyRequest())
    assert forecasts.watch(database, made) == []
    forecasts.watch(database, made, at_the_end=True)


@pytest.mark.parametrize(
    ("changes", "question", "error", "why"),
    [
        ({"gap": 0.0}, WhyRequest(), ConflictError, r"passed: its gap is .* nats .*--anyway"),
        (
            {"kept": ()},
            WhyRequest(),
            ConflictError,
            r"kept no checkpoint of step 600 \(kept: none\); add keep_checkpoints: \[600\]",
        ),
        ({}, WhyRequest(step=500), ConflictError, r"kept no checkpoint of step 500 \(kept: 600\)"),
        ({}, WhyRequest(step=STEPS), InvalidError, r"before schedule\.steps = 1000"),
        ({}, WhyRequest(fork_steps=401), InvalidError, r"fork_steps is 401, expected 1 to 400"),
        ({}, WhyRequest(budget=10), InvalidError, r"budget is 10 steps, expected at least [\d,]+ "),
        ({}, WhyRequest(candidate="other"), InvalidError, "no candidate 'other'"),
        ({"baseline": "fp8_delayed"}, WhyRequest(), InvalidError, "use against: bf16"),
        (
            {"overrides": (), "candidate": "fp8_delayed"},
            WhyRequest(),
            InvalidError,
            "without delayed scaling",
        ),
        (
            {"overrides": (), "candidate": "bf16"},
            WhyRequest(),
            InvalidError,
            "there is nothing to explain",
        ),
        (
            {"overrides": (Override(recipe="mxfp4", from_step=630),)},
            WhyRequest(fork_steps=60),
            InvalidError,
            "does not change .it does at 630",
        ),
    ],
)
def test_what_cannot_be_explained_is_refused(database, explained, changes, question, error, why):
    job_id = explained(**changes)
    with database.write() as session, pytest.raises(error, match=why):
        submit_analysis(session, job_id, question)


def test_what_was_asked_for_anyway_is_planned(database, explained):
    passed = explained(gap=0.0)
    with database.read() as session:
        plan = plan_document(session, plan_analysis(session, passed, WhyRequest(anyway=True)))
        assert plan.gap.verdict == "pass"
        assert plan.smallest_effect > 0
    delayed = explained(baseline="fp8_delayed")
    with database.read() as session:
        assert len(plan_analysis(session, delayed, WhyRequest(against="bf16")).setup["units"]) == 9


def test_a_job_that_is_open_or_has_no_analysis_says_so(database, make_job):
    with database.write() as session:
        job = submit_job(session, make_job(), policy_from_mapping({"margin": "1.0%"}))
        with pytest.raises(ConflictError, match="is queued, expected one that has ended"):
            plan_analysis(session, job.id, WhyRequest())
        with pytest.raises(NotFoundError, match="parity why"):
            analysis_of(session, job.id)


def test_what_an_open_analysis_needs_is_kept(database, explained):
    job_id = explained()
    made = submitted(database, job_id)
    with database.read() as session:
        parents = setup_from(session.get_one(Analysis, made).setup).parents
        assert job_id not in session.scalars(jobs._unneeded_jobs(1e12)).all()
    assert files._states(database, parents) == dict.fromkeys(parents, "forked")
    with database.write() as session:
        session.get_one(Job, made).runs[0].state = "cancelled"
    assert set(files._states(database, parents).values()) == {"finished"}


def test_a_job_goes_with_its_analysis(database, explained):
    job_id = explained()
    made = submitted(database, job_id)
    measured(database, made, {})
    conclude(database, made)
    with database.write() as session:
        assert jobs._drop_jobs(made, 1e12, session) > 10
        assert session.get(Job, made) is None
        assert session.query(AnalysisResult).count() == 0
        assert job_id in session.scalars(jobs._unneeded_jobs(1e12)).all()


def test_over_rest(database, explained, api):
    job_id = explained()
    plan = api.post(f"/api/v1/jobs/{job_id}/why:plan", json={})
    assert plan.status_code == 200, plan.text
    assert plan.json()["gemms"] == UNITS
    assert plan.json()["gap"]["verdict"] == "fail"
    assert plan.json()["least_steps"] < plan.json()["steps_for_one"] < plan.json()["most_steps"]
    assert api.get(f"/api/v1/jobs/{job_id}/why").status_code == 404
    made = api.post(f"/api/v1/jobs/{job_id}/why", json={"against": "bf16"})
    assert made.status_code == 202, made.text
    document = made.json()
    assert document["plan"]["against"] == "bf16"
    assert document["answer"]["complete"] is False
    assert api.get(made.headers["Location"]).json()["job"] == document["job"]
    measured(database, document["job"], {"0.down.wgrad": 0.02})
    begun = api.get(f"/api/v1/jobs/{job_id}/why").json()
    conclude(database, document["job"])
    ended = api.get(f"/api/v1/jobs/{job_id}/why").json()
    assert ended["status"] == "concluded"
    assert begun["answer"] == ended["answer"]
    assert [each["gemms"] for each in ended["answer"]["named"]] == [["0.down.wgrad"]]
    shown = api.get(f"/api/v1/jobs/{document['job']}").json()
    assert shown["verdicts"] == []
    assert api.post(f"/api/v1/jobs/{job_id}/why:plan", json={"against": "fp8"}).status_code == 422
    own = f"/jobs/{document['job']}"
    for page in (
        "/jobs",
        "/workers",
        own,
        f"{own}/why",
        f"{own}/compare",
        f"/compare?job={job_id}&job={document['job']}",
    ):
        assert api.get(page).status_code == 200, page
    for path in ("", "/overlay", "/gap", "/live", "/verdict", "/runs", "/evidence.zip"):
        assert api.get(f"/api/v1/jobs/{document['job']}{path}").status_code < 500, path


def test_a_job_of_a_question_of_the_past_is_shown_and_counts_nowhere(database, explained, api):
    made = make_retired(database, explained())
    with database.read() as session:
        job = session.get_one(Job, made)
        assert (kind_of(job), job.is_judged) == (None, False)
        assert "does not ask" in unsound(session, job.runs[0])
        assert [*noise_tables._groups(session, job, "family")] == []
        assert baselines._offered(session, made) == []
        with pytest.raises(ConflictError, match="never judged"):
            request_of(job)
    page = api.get(f"/jobs/{made}", follow_redirects=False)
    assert page.status_code == 200
    assert "It has no verdict of its own." in page.text
    assert api.get("/jobs").status_code == 200
    for path in ("", "/overlay", "/gap", "/live", "/verdict", "/runs", "/evidence.zip", "/why"):
        assert api.get(f"/api/v1/jobs/{made}{path}").status_code < 500, path
    assert made in [each["id"] for each in api.get("/api/v1/jobs").json()["items"]]
