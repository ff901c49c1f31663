"""Healings on the record: what is planned and refused, how looks follow each other, what they
answer, and that nothing takes one for a pass.
"""

from dataclasses import replace

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from parity_lab.healing import setup_from
from parity_lab.server.healed_runs import healed_case, joined, switch_of
from parity_lab.server.healings import (
    HealRequest,
    healing_of,
    looks_of,
    plan_healing,
    submit_healing,
)
from parity_lab.server.tables import AnalysisResult, Healing, parents_in_use
from server.curves import judged_curves
from server.database.metrics import store
from server.database.tables import Job, Run
from server.documents.progress import run_times
from server.errors import ConflictError, InvalidError, NotFoundError, TooManyError
from server.jobs import baselines, forecasts, noise_tables
from server.jobs.again import request_of
from server.jobs.conclude import conclude, unjudged_jobs
from server.jobs.cost import cost_of
from server.jobs.fingerprint import equal_run, job_spec, unsound
from server.jobs.judge_input import case_of
from server.jobs.lifecycle import cancel_job
from server.jobs.submission_limits import check_queue
from server.jobs.submit import submit_job
from server.retention import jobs
from tests.server.analyses import STEPS
from tests.server.healings import HEALED_GAPS, KEPT, make_failed, train_forks
from training.later_recipe import LaterRecipe
from training.spec import ArmSpec

pytestmark = pytest.mark.both_databases


@pytest.fixture
def failed(database):
    return make_failed(database)


def submitted(database, job_id, request=HealRequest()):  # noqa: B008
    with database.write() as session:
        return submit_healing(session, job_id, request, "me")[0].id


def healed(database, worker_database, healing, gaps=HEALED_GAPS):
    """Train and judge until the healing ends; the switches in the order of their looks."""
    order = []
    for _ in range(8):
        looked_at = train_forks(worker_database, healing, gaps)
        if not looked_at:
            break
        order += looked_at
        assert conclude(worker_database, healing)
    return order


def states(session, healing):
    """The states of its runs by the step of their switch."""
    job = session.get_one(Job, healing)
    return {
        arm.then.from_step: {run.state for run in job.runs if run.arm is arm}
        for arm in job.arms[1:]
    }


def test_a_healing_finds_the_latest_switch_that_passes(database, worker_database, failed):
    healing = submitted(database, failed)
    with database.read() as session:
        setup = setup_from(healing_of(session, failed).setup)
        assert (setup.steps, setup.run_steps, len(setup.parents)) == (KEPT, STEPS, 3)
        found = states(session, healing)
        assert [step for step in KEPT if found[step] == {"queued"}] == [700]
        assert parents_in_use(session) == set(setup.parents)
        assert session.scalars(unjudged_jobs()).all() == []
    assert healed(database, worker_database, healing) == [700, 800, 900]
    with database.read() as session:
        job, answer = session.get_one(Job, healing), session.get_one(Healing, healing).answer
        assert (job.status, job.code, job.verdicts) == ("concluded", None, [])
        assert (answer["outcome"], answer["switch"], answer["until"]) == ("named", 800, 900)
        assert [look["verdict"] for look in answer["looks"]] == ["pass", "pass", "fail"]
        assert answer["margin_share"] == pytest.approx(0.002 / setup.margin, abs=0.1)
        assert states(session, healing)[500] == {"cancelled"}
        assert parents_in_use(session) == set()


def test_a_look_is_the_verdict_on_the_full_training_of_its_arm(database, worker_database, failed):
    """The same curves as an arm that was trained from step 0 give the same gap, in a wider
    interval: each of the kept steps has its share of the error.
    """
    healing = submitted(database, failed)
    (step,) = train_forks(worker_database, healing, HEALED_GAPS)
    conclude(worker_database, healing)
    with database.read() as session:
        (look,) = looks_of(session, healing)
        origin = session.get_one(Job, failed)
        forks = [run for run in session.get_one(Job, healing).runs if run.state == "finished"]
        parents = [session.get_one(Run, run.forked_from) for run in forks]
        curves = []
        for parent, fork in zip(parents, forks, strict=True):
            before, after = judged_curves.curves(session, [parent, fork])
            curve = joined(before, after, step)
            whole = store.read(session, parent.id, "train", ["lm_loss"])[1]["lm_loss"]
            late = store.read(session, fork.id, "train", ["lm_loss"])[1]["lm_loss"]
            assert curve.steps.tolist() == list(range(STEPS))
            assert np.array_equal(curve.loss, np.concatenate([whole[:step], late]))
            assert curve.recipe == "nvfp4 then bf16 from step 700"
            curves.append(curve)
        judged = case_of(session, origin)
        (full,) = replace(judged, candidates={"healed": curves}).documents()
        setup = setup_from(session.get_one(Healing, healing).setup)
        case = healed_case(judged, "quantized", "healed", curves, setup, step)
    assert case.multiplicity.candidates == len(KEPT)
    assert (look.verdict, look.gap) == (full["verdict"], full["gap"]["mean"])
    deciding = full["gap"]["deciding"]
    assert look.level == pytest.approx(1 - (1 - deciding["level"]) / len(KEPT))
    assert look.low < deciding["lo"] < deciding["hi"] < look.high


def test_what_a_killed_judge_leaves_is_judged_again(database, worker_database, failed):
    """The looks are on record once, and the next step follows from them alone."""
    healing = submitted(database, failed)
    train_forks(worker_database, healing, HEALED_GAPS)
    conclude(worker_database, healing)
    assert conclude(worker_database, healing)  # nothing has ended since
    with database.read() as session:
        assert [look.step for look in looks_of(session, healing)] == [700]
        assert states(session, healing)[800] == {"queued"}
        assert session.get_one(Job, healing).status == "running"
    assert submitted(database, failed) == healing  # an open one with the same plan
    assert submitted(database, failed, HealRequest(gemms="forward")) != healing


def test_a_fork_that_fails_ends_the_healing_without_an_answer(database, worker_database, failed):
    healing = submitted(database, failed)
    train_forks(worker_database, healing, HEALED_GAPS)
    with database.write() as session:
        run = next(run for run in session.get_one(Job, healing).runs if run.state == "finished")
        run.state, run.code, run.message = "failed", "CHECKPOINT_NOT_FOUND", "no checkpoint"
    conclude(worker_database, healing)
    with database.read() as session:
        job = session.get_one(Job, healing)
        assert (job.status, job.code) == ("failed", "CHECKPOINT_NOT_FOUND")
        assert {run.state for run in job.runs} == {"finished", "failed", "cancelled"}
        assert session.get_one(Healing, healing).answer is None


def test_forks_on_other_data_are_no_reason_to_look_further(database, worker_database, failed):
    healing = submitted(database, failed)
    train_forks(worker_database, healing, HEALED_GAPS)
    with database.write() as session:
        for run in session.get_one(Job, healing).runs:
            if run.state == "finished":
                run.manifest = {**run.manifest, "data_digest": "other"}
    conclude(worker_database, healing)
    with database.read() as session:
        answer = session.get_one(Healing, healing).answer
        (look,) = answer["looks"]
        assert (answer["outcome"], answer["switch"]) == ("open", None)
        assert (look["verdict"], look["gap"]) == ("inconclusive", None), look


def test_an_open_answer_proposes_the_estimated_switch_with_more_runs(
    database, worker_database, failed, api
):
    near = dict.fromkeys(KEPT, 0.0135)  # of a margin of 0.014
    healing = submitted(database, failed)
    healed(database, worker_database, healing, near)
    document = api.get(f"/api/v1/jobs/{healing}/heal").json()
    answer, proposal = document["answer"], document["proposal"]
    assert (answer["outcome"], answer["switch"]) == ("open", None)
    assert answer["estimate"] == max(look["step"] for look in answer["looks"])
    assert proposal["label"].startswith("With more runs of both arms, train quantized, then bf16")
    assert f"from_step: {answer['estimate']}" in proposal["line"]


def test_a_fork_costs_the_steps_that_it_trains(database, failed):
    healing = submitted(database, failed)
    with database.write() as session:
        job = session.get_one(Job, healing)
        running = next(run for run in job.runs if run.state == "queued")
        running.state, running.attempt_number = "running", 1
        running.steps_done, running.steps_per_second = 900, 2.0
        assert running.first_step == 700
        assert cost_of(session, job, None).device_seconds == 100.0
        assert run_times([running], 1) == {running.id: (0.0, 50.0)}
        running.steps_done = 0  # it compiles
        assert cost_of(session, job, None).device_seconds == 0.0
        assert run_times([running], 1) == {running.id: (0.0, 150.0)}


@pytest.mark.parametrize(("change", "kept"), [(-5, -5), (7, 0)])
def test_forks_have_the_limits_of_the_candidates_runs(database, failed, change, kept):
    """A priority above 0 took an admin, whom healing does not ask for."""
    with database.write() as session:
        job = session.get_one(Job, failed)
        job.max_run_seconds = 3600.0
        for run in job.runs:
            run.priority = change
    healing = submitted(database, failed)
    with database.read() as session:
        job = session.get_one(Job, healing)
        assert job.max_run_seconds == 3600.0
        assert {run.priority for run in job.runs} == {kept}


@pytest.mark.parametrize("question", ["heal", "why"])
def test_the_same_question_again_is_the_open_job(api, failed, question):
    first, again = (api.post(f"/api/v1/jobs/{failed}/{question}", json={}) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202), again.text
    assert again.json()["job"] == first.json()["job"]


def test_forks_that_are_held_back_count_as_one_look(database, worker_database, failed, settings):
    """Three forks of each of four switches: at most three are in the queue at once."""

    def is_full(most):
        limited = settings.model_copy(update={"max_queued_runs": most})
        with database.read() as session:
            try:
                check_queue(session, limited, "me")
            except TooManyError:
                return True
        return False

    healing = submitted(database, failed)
    assert (is_full(2), is_full(3)) == (True, False)
    train_forks(worker_database, healing, HEALED_GAPS)
    assert (is_full(2), is_full(3)) == (True, False)  # the next look is still to come
    submitted(database, failed, HealRequest(gemms="forward"))
    assert (is_full(5), is_full(6)) == (True, False)
    assert conclude(worker_database, healing)
    assert (is_full(5), is_full(6)) == (True, False)  # it is called up, and takes no more room
    healed(database, worker_database, healing)
    assert (is_full(2), is_full(3)) == (True, False)  # the other one is left


def test_every_look_has_the_policy_of_the_plan(database, worker_database, failed):
    healing = submitted(database, failed)
    train_forks(worker_database, healing, HEALED_GAPS)
    conclude(worker_database, healing)
    with database.write() as session:
        job = session.get_one(Job, failed)
        job.policy = {**job.policy, "margin": "5%"}
    healed(database, worker_database, healing)
    with database.read() as session:
        answer = session.get_one(Healing, healing).answer
        assert (answer["switch"], answer["until"]) == (800, 900)


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_healing_without_its_end_answers_what_its_looks_found(
    database, worker_database, failed, api, end
):
    healing = submitted(database, failed)
    train_forks(worker_database, healing, HEALED_GAPS)
    conclude(worker_database, healing)
    if end == "cancelled":
        assert api.post(f"/api/v1/jobs/{healing}:cancel").status_code in (200, 202)
    else:
        train_forks(worker_database, healing, HEALED_GAPS)
        with database.write() as session:
            runs = session.get_one(Job, healing).runs
            broken = next(run for run in runs if switch_of(run.arm) == 800)
            broken.state, broken.code = "failed", "CHECKPOINT_NOT_FOUND"
        conclude(worker_database, healing)
    document = api.get(f"/api/v1/jobs/{healing}/heal").json()
    assert (document["status"], document["answer"]["switch"]) == (end, 700)
    assert document["proposal"]["line"] == "then: {recipe: bf16, from_step: 700}"
    page = api.get(f"/jobs/{healing}/heal").text
    assert "So far: quantized may be used to step 700 of 1,000" in page
    assert "from_step: 700" in page
    assert "No answer" not in page


@pytest.mark.parametrize("missing", [20, 40])
def test_steps_that_are_missing_behind_the_switch_are_those_of_any_arm(
    database, worker_database, failed, missing
):
    """The same hole in an arm that was trained from step 0 has the same verdict and code."""
    healing = submitted(database, failed)
    (step,) = train_forks(worker_database, healing, HEALED_GAPS, missing=missing)
    conclude(worker_database, healing)
    with database.read() as session:
        (look,) = looks_of(session, healing)
        forks = [run for run in session.get_one(Job, healing).runs if run.state == "finished"]
        curves = []
        for fork in forks:
            parent, rest = judged_curves.curves(
                session, [session.get_one(Run, fork.forked_from), fork]
            )
            assert rest.steps[0] == step + missing
            curves.append(joined(parent, rest, step))
        case = case_of(session, session.get_one(Job, failed))
        (full,) = replace(case, candidates={"healed": curves}).documents()
    assert (look.verdict, look.code) == (full["verdict"], full["reasons"][0]["code"])


def test_a_cancelled_healing_leaves_no_open_run(database, failed):
    healing = submitted(database, failed)
    with database.write() as session:
        assert cancel_job(session, healing)
    with database.read() as session:
        assert {run.state for run in session.get_one(Job, healing).runs} == {"cancelled"}


def test_nothing_takes_a_healing_for_a_pass(database, worker_database, failed):
    healing = submitted(database, failed)
    healed(database, worker_database, healing)
    with database.write() as session:
        job = session.get_one(Job, healing)
        assert not job.is_judged
        assert (job.answer, job.verdicts, job.look, job.config_hash) == (None, [], None, None)
        fork = next(run for run in job.runs if run.state == "finished")
        assert unsound(session, fork) == (
            f"run {fork.id} went on from a checkpoint of another run with a safer recipe"
        )
        fork.fingerprint = "f"
        session.flush()
        assert equal_run(session, "f", any_arm=True) is None
        assert noise_tables.reruns_of(session, job) is None
        with pytest.raises(ConflictError):
            request_of(job)
        with pytest.raises((ConflictError, InvalidError)):
            baselines.promote(session, "b", healing, None, "reason", "who", None)
    assert not forecasts.watch(database, healing)


def test_a_job_goes_with_its_healing(database, worker_database, failed):
    healing = submitted(database, failed)
    healed(database, worker_database, healing)
    with database.write() as session:
        assert failed not in session.scalars(jobs._unneeded_jobs(1e12)).all()
        assert jobs._drop_jobs(healing, 1e12, session) > 10
        assert session.query(Healing).count() == session.query(AnalysisResult).count() == 0
        assert failed in session.scalars(jobs._unneeded_jobs(1e12)).all()


def test_a_sign_off_finds_no_verdict(database, worker_database, failed, api):
    healing = submitted(database, failed)
    healed(database, worker_database, healing)
    reply = api.post(
        f"/api/v1/jobs/{healing}/sign-offs",
        json={"candidate": "nvfp4.then-bf16.from-step-800", "reason": "its forks pass", "days": 3},
    )
    assert reply.status_code in (404, 409), reply.text
    assert api.get(f"/api/v1/jobs/{healing}").json()["verdicts"] == []


@pytest.mark.parametrize(
    ("changes", "request_fields", "error", "why"),
    [
        ({"gap": 0.0}, {}, ConflictError, "passed, so there is nothing to heal"),
        ({"kept": ()}, {}, ConflictError, r"kept no checkpoint .*add keep_checkpoints: \[0\."),
        ({"kept": (STEPS,)}, {}, ConflictError, "kept no checkpoint before its end"),
        ({}, {"to": "nvfp4"}, InvalidError, "to is nvfp4, the recipe of candidate"),
        ({}, {"to": "fp8_delayed"}, InvalidError, "such as fp8_current"),
        ({}, {"to": "f32"}, InvalidError, "a recipe of linear layers"),
        ({}, {"candidate": "other"}, InvalidError, "use --candidate quantized"),
        ({"candidate": "bf16"}, {}, InvalidError, "the recipe of candidate"),
        ({}, {"budget": 1e-9}, InvalidError, "add --budget"),
    ],
)
def test_what_cannot_be_healed_is_refused_with_what_to_do(
    database, changes, request_fields, error, why
):
    job_id = make_failed(database, **changes)
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.started_at, run.finished_at = 1.0, 101.0
    with database.read() as session, pytest.raises(error, match=why):
        plan_healing(session, job_id, HealRequest(**request_fields))


def test_a_gap_with_another_cause_is_not_healed(database):
    job_id = make_failed(database, rate=1.3e-3)  # its learning rates are others
    with database.read() as session, pytest.raises(ConflictError, match="no gap is known to heal"):
        plan_healing(session, job_id, HealRequest())


def test_a_candidate_that_switches_already_is_refused(database):
    job_id = make_failed(database)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        (candidate,) = job.spec["candidates"]
        then = {"recipe": "bf16", "from_step": 900, "gemms": "all"}
        job.spec = {**job.spec, "candidates": [{**candidate, "then": then}]}
    with database.read() as session, pytest.raises(ConflictError, match="without `then`"):
        plan_healing(session, job_id, HealRequest())


def test_an_engine_without_forks_gets_the_arms_to_train(database):
    job_id = make_failed(database, engine="external", kept=())
    with database.read() as session, pytest.raises(ConflictError, match="from_step: 800"):
        plan_healing(session, job_id, HealRequest())


def test_an_open_job_an_analysis_and_a_healing_are_refused(database, failed, make_job):
    with database.write() as session:
        policy = policy_from_mapping({"margin": "1.0%"})
        open_job = submit_job(session, make_job(), policy).id
    healing = submitted(database, failed)
    with database.read() as session:
        with pytest.raises(ConflictError, match="wait for its verdict"):
            plan_healing(session, open_job, HealRequest())
        with pytest.raises(ConflictError, match="never judged"):
            plan_healing(session, healing, HealRequest())
        with pytest.raises(NotFoundError, match="parity heal"):
            healing_of(session, open_job)


def test_a_budget_bounds_the_search(database, worker_database, failed):
    with database.write() as session:
        for run in session.get_one(Job, failed).runs:
            run.started_at, run.finished_at = 1.0, 3601.0  # 1,000 steps an hour
    healing = submitted(database, failed, HealRequest(budget=1.0))
    assert healed(database, worker_database, healing) == [700]  # 3 times 0.3 device hours
    with database.read() as session:
        answer = session.get_one(Healing, healing).answer
        assert (answer["switch"], answer["is_stopped"], answer["untested"]) == (
            700,
            True,
            [800, 900],
        )


def test_the_proposed_job_can_be_submitted(database, worker_database, failed, api):
    healing = submitted(database, failed)
    healed(database, worker_database, healing)
    document = api.get(f"/api/v1/jobs/{healing}/heal").json()
    proposal = document["proposal"]
    assert proposal["line"] == "then: {recipe: bf16, from_step: 800}"
    made = api.post(f"/api/v1/jobs/{failed}:again", json={"patch": proposal["patch"]})
    assert made.status_code == 202, made.text
    with database.read() as session:
        (arm,) = job_spec(session.get_one(Job, made.json()["id"])).candidates
    assert isinstance(arm, ArmSpec)
    assert arm.then == LaterRecipe(recipe="bf16", from_step=800)
    assert arm.name == "nvfp4.then-bf16.from-step-800"
