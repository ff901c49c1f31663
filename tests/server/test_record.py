"""Searches on the record: what is planned and refused, what each step queues, and that only the
judge's pass returns an assignment.
"""

import json
from dataclasses import asdict

import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from parity_lab.search import setup_from
from parity_lab.server.analyses import WhyRequest, readable_spec, submit_analysis
from parity_lab.server.record import (
    advance,
    cancel_search,
    find_search,
    resume_search,
    search_document,
    submit_search,
    waiting,
)
from parity_lab.server.searches import Speed, SwitchWish, Wish, job_of, plan_search
from parity_lab.server.tables import AnalysisResult, Search
from server import retention
from server.database.tables import Job, Run
from server.errors import ConflictError, InvalidError, LookError, NotFoundError, TooManyError
from server.jobs import baselines, noise_tables
from server.jobs.conclude import conclude
from server.jobs.fingerprint import equal_run, unsound
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import Order, Submission, submit_registered
from tests.parity_lab.simulated import bit_equal
from tests.server.analyses import KEPT, STEPS, measured
from tests.server.played import jobs_of, make_base, play, play_step, state_of

pytestmark = pytest.mark.both_databases
WISH = Wish(pairs=4)
EVERYTHING = {"projections": ["gate", "up", "down"], "recipe": "fp8_current"}


def begun(database, base, wish=WISH):
    with database.write() as session:
        return submit_search(session, base, wish, "me", Order(priority=-3, max_run_seconds=60.0)).id


def test_a_search_returns_the_assignment_that_the_judge_passed_on_fresh_runs(
    database, worker_database
):
    base = make_base(database)
    own = begun(database, base)
    kinds = play(database, own)
    assert kinds[0] == "fork"
    assert kinds[-1] == "confirmation"
    assert set(kinds) == {"fork", "run", "confirmation"}
    with worker_database.read() as session:
        search = session.get_one(Search, own)
        assert (search.state, search.assignment, search.finished_at is None) == (
            "found",
            "110",
            False,
        )
        job = search.steps[-1].job
        (verdict,) = job.verdicts
        assert (verdict.outcome, verdict.candidate) == ("pass", "assignment-110")
        # Fresh: a seed that no other run has, both arms trained, nothing reused, at the confidence
        # of one of two confirmations.
        seeds = {run.seed for run in job.runs}
        assert len(seeds) == 1
        assert session.scalars(select(Run.job_id).where(Run.seed.in_(seeds))).all() == [job.id] * 8
        assert [len(arm.runs) for arm in job.arms] == [4, 4]
        assert (job.reuse, all(run.reused_from is None for run in job.runs)) == (False, True)
        assert (job.policy["confidence"], job.policy["looks"], job.look) == (0.975, 1, 1)
        assert (job.device_class, job.max_run_seconds, job.submitted_by) == ("cpu:test", 60.0, "me")
        overrides = readable_spec(job).candidates[0].overrides
        assert [each.gemms for each in overrides] == [("wgrad",)]


def test_a_search_ends_without_forks_where_no_precision_can_pass(database):
    with (
        database.write() as session,
        pytest.raises(ConflictError, match="learning rates on record differ"),
    ):
        plan_search(session, make_base(database, rate=1.3e-3), WISH)
    broken = make_base(database, broken=700)
    with database.read() as session:
        assert (
            sum(each.steps == STEPS for each in plan_search(session, broken, WISH).setup.replays)
            == 6
        )
    own = begun(database, make_base(database))
    with database.write() as session:
        search = session.get_one(Search, own)
        job = search.steps[0].job
        assert search.steps[0].cost == setup_from(search.setup).least_steps
        (run,) = job.runs
        replays = setup_from(search.setup).replays
        for each in replays:
            departs = {"departs": 3, "by": 0.1} if each == replays[-1] else {}
            session.add(
                AnalysisResult(run_id=run.id, key=each.key, value=bit_equal(each.steps) | departs)
            )
        job.status, run.state, run.attempt_number = "running", "finished", 1
        made = job.id
    conclude(database, made)
    assert advance(database, own) is None
    with database.read() as session:
        search = session.get_one(Search, own)
        assert (search.state, search.assignment, len(search.steps)) == ("none", None, 1)
        assert replays[-1].run in search.message
        assert "does not follow its record" in search.message


def test_forks_and_pilots_are_no_runs_of_their_own_anywhere(database):
    base = make_base(database)
    own = begun(database, base)
    play(database, own)
    for kind, why in (("fork", "measured the parts"), ("run", "is a pilot")):
        with database.write() as session:
            job = session.get_one(Job, jobs_of(database, own, kind)[0])
            assert (job.status, job.verdicts, job.is_judged) == ("concluded", [], False)
            assert len(job.runs) == 1
            assert why in unsound(session, job.runs[0])
            assert [*noise_tables._groups(session, job, "family")] == []
            assert baselines._offered(session, job.id) == []
            assert equal_run(session, "f") is None
    with database.read() as session:
        pilots = [session.get_one(Job, job).runs[0] for job in jobs_of(database, own, "run")]
        taken = {(run.seed, run.replicate) for run in session.get_one(Job, base).runs}
        assert not {(run.seed, run.replicate) for run in pilots} & taken


def test_no_assignment_is_returned_without_a_pass(database):
    """The confirmations see another world than the forks and pilots: every assignment fails
    there.
    """
    own = begun(database, make_base(database))
    kinds = play(database, own, confirmed=(0.03, 0.03, 0.03))
    assert 1 <= kinds.count("confirmation") <= 2
    with database.read() as session:
        search = session.get_one(Search, own)
        assert (search.state, search.assignment) == ("none", None)
        assert {
            verdict.outcome
            for job in jobs_of(database, own, "confirmation")
            for verdict in session.get_one(Job, job).verdicts
        } == {"fail"}


def to_the_confirmation(database, own):
    while True:
        with database.read() as session:
            if session.get_one(Search, own).steps[-1].evaluations[0]["kind"] == "confirmation":
                return
        play_step(database, own)
        advance(database, own)


def test_a_confirmation_that_was_cancelled_is_used(database):
    """Else somebody could look at a confirmation while it trains, cancel it where it looks bad, and
    draw again until one passes.
    """
    own = begun(database, make_base(database))
    for used in (1, 2):
        to_the_confirmation(database, own)
        assert len(jobs_of(database, own, "confirmation")) == used
        with database.write() as session:
            assert cancel_search(session, own)
            assert not cancel_search(session, own)
        with database.write() as session:
            resume_search(session, own)
        advance(database, own)
    assert state_of(database, own) == "none"
    with database.read() as session:
        assignments = [
            step.evaluations[0]["assignment"]
            for step in session.get_one(Search, own).steps
            if step.evaluations[0]["kind"] == "confirmation"
        ]
        assert len(set(assignments)) == 2


def test_a_job_cancelled_behind_the_search_fails_it_and_counts(database):
    own = begun(database, make_base(database))
    to_the_confirmation(database, own)
    with database.write() as session:
        cancel_job(session, jobs_of(database, own, "confirmation")[0])
    assert advance(database, own) is None
    assert state_of(database, own) == "failed"
    with database.write() as session:
        resume_search(session, own)
        assert session.get_one(Search, own).steps[-1].results[0]["passed"] is False
    assert advance(database, own) is not None


def test_a_second_search_cannot_draw_again(database):
    base = make_base(database)
    own = begun(database, base)
    with pytest.raises(ConflictError, match="is at this question"):
        begun(database, base)
    play(database, own, confirmed=(0.03, 0.03, 0.03))
    with pytest.raises(ConflictError, match=r"has used . of its 2 confirmations"):
        begun(database, base)
    with (
        database.write() as session,
        pytest.raises(ConflictError, match="expected cancelled or failed"),
    ):
        resume_search(session, own)


def test_another_margin_or_job_is_no_way_to_draw_again_and_a_new_name_is(database):
    own = begun(database, make_base(database))
    play(database, own, confirmed=(0.03, 0.03, 0.03))
    for again in (
        {"margin": "1.0%"},
        {"margin": "1.001%"},
        {"margin": "0.0141 nats"},
        {"margin": "1.0%", "confidence": 0.9},
    ):
        base = make_base(database, policy=again)
        with pytest.raises(ConflictError, match=r"has used . of its 2 confirmations"):
            begun(database, base)
    named = begun(
        database,
        make_base(database, policy={"margin": "1.001%", "question": "after the new kernel"}),
    )
    assert state_of(database, named) == "running"


def test_a_candidate_with_another_name_is_the_same_question(database):
    own = begun(database, make_base(database))
    play(database, own, confirmed=(0.03, 0.03, 0.03))
    base = make_base(database, name="another-name")
    with pytest.raises(ConflictError, match="confirmations"):
        begun(database, base)


def test_a_confirmation_is_a_look_at_its_policy(database):
    own = begun(database, make_base(database))
    play(database, own, confirmed=(0.03, 0.03, 0.03))
    with database.write() as session:
        job = session.get_one(Job, jobs_of(database, own, "confirmation")[0])
        spec, policy = readable_spec(job), policy_from_mapping(job.policy)
        with pytest.raises(LookError, match="registered one look"):
            submit_registered(
                session, Submission(spec=spec, policy=policy, revision=job.revision or ""), "me"
            )
        session.rollback()


def judged_elsewhere(database, own, *assignments):
    """Another job for each of these assignments, which uses the look at its question."""
    for assignment in assignments:
        with database.write() as session:
            search = session.get_one(Search, own)
            spec = job_of(search, setup_from(search.setup), [assignment], 4)
            policy = policy_from_mapping(search.base.policy)
            submit_registered(
                session,
                Submission(spec=spec, policy=policy, revision=search.base.revision or ""),
                "another",
            )


def test_an_assignment_that_was_judged_before_is_not_confirmed_again_and_the_next_one_is(database):
    own = begun(database, make_base(database))
    judged_elsewhere(database, own, "110")
    play(database, own)
    with database.read() as session:
        search = session.get_one(Search, own)
        assert (search.state, search.assignment != "110") == ("found", True)
        assert len(jobs_of(database, own, "confirmation")) <= 2


def test_a_search_whose_assignments_were_all_judged_before_ends_with_the_reason(database):
    own = begun(database, make_base(database))
    judged_elsewhere(database, own, "001", "010", "011", "100", "101", "110")
    play(database, own)
    with database.read() as session:
        search = session.get_one(Search, own)
        assert (search.state, search.assignment, jobs_of(database, own, "confirmation")) == (
            "none",
            None,
            [],
        )
        assert "cannot be confirmed" in search.message
        assert search.steps[-1].results is not None


def test_the_candidate_itself_is_not_tried_again(database):
    """Its verdict was open, so it could pass: but that would be a second look at its question,
    which nobody registered.
    """
    base = make_base(database, gap=0.014)
    own = begun(database, base)
    play(database, own, gaps=(0.0005, 0.0005, 0.0005))
    with database.read() as session:
        search = session.get_one(Search, own)
        assert search.base.verdicts[0].outcome == "inconclusive"
        later = {
            assignment
            for step in search.steps[1:]
            for assignment in (each["assignment"] for each in step.evaluations)
        }
        assert later
        assert "111" not in later


def test_a_search_goes_on_from_the_record_alone_and_once(database):
    own = begun(database, make_base(database))
    assert advance(database, own) is None  # its first step has not ended
    play_step(database, own)
    with database.read() as session:
        assert waiting(session) == [own]

    def full(_session, _sender):
        raise TooManyError("full")

    with pytest.raises(TooManyError):
        advance(database, own, full)  # nothing is written
    with database.read() as session:
        assert [step.results for step in session.get_one(Search, own).steps] == [None]
    job = advance(database, own)
    assert job is not None
    assert advance(database, own) is None
    with database.read() as session:
        assert len(session.get_one(Search, own).steps) == 2
        assert waiting(session) == []


@pytest.mark.parametrize(
    ("changes", "wish", "error", "why"),
    [
        ({"gap": 0.0}, WISH, ConflictError, "nothing to search"),
        (
            {"kept": ()},
            WISH,
            ConflictError,
            r"kept no checkpoint of step 600 .*keep_checkpoints: \[600\]",
        ),
        ({}, Wish(step=STEPS), ConflictError, "kept no checkpoint of step 1000"),
        ({}, Wish(pairs=17), InvalidError, "pairs is 17, expected 1 to 16"),
        (
            {},
            Wish(pairs=4, budget=10),
            InvalidError,
            r"budget is 10 steps, expected at least 10,520",
        ),
        ({}, Wish(pairs=4, candidate="x"), InvalidError, "no candidate 'x'"),
        (
            {},
            Wish(
                pairs=4, switches=[SwitchWish(name="a", override=EVERYTHING | {"gemms": ["wgrad"]})]
            ),
            InvalidError,
            "add a switch for it",
        ),
        (
            {},
            Wish(
                pairs=4, switches=[SwitchWish(name="a", override=EVERYTHING | {"from_step": 900})]
            ),
            InvalidError,
            "from_step",
        ),
        (
            {},
            Wish(pairs=4, switches=[SwitchWish(name="a", override={"recipe": "bf16"})]),
            InvalidError,
            "no projections",
        ),
        (
            {},
            Wish(pairs=4, switches=[SwitchWish(name="a", override=EVERYTHING | {"blocks": [7]})]),
            InvalidError,
            "blocks",
        ),
        ({}, Wish(pairs=4, speed=Speed(seconds=1.0)), InvalidError, "both seconds"),
        ({}, Wish(pairs=4, speed=Speed(end_to_end=9.0)), InvalidError, "end_to_end is 9"),
        (
            {"candidate": "fp8_delayed"},
            Wish(pairs=4, speed=Speed(seconds=1.0, gains={})),
            InvalidError,
            "fp8_delayed",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(database, changes, wish, error, why):
    base = make_base(database, **changes)
    with database.read() as session, pytest.raises(error, match=why):
        plan_search(session, base, wish)


def test_measured_seconds_and_named_switches(database):
    base = make_base(database)
    wish = Wish(
        pairs=4,
        switches=[SwitchWish(name="all", override=EVERYTHING)],
        speed=Speed(seconds=2.0, gains={"all": 0.5}),
        step=KEPT,
        fork_steps=40,
    )
    with database.read() as session:
        setup = plan_search(session, base, wish).setup
    assert setup.times == (1.0, 0.75)
    assert (setup.fork_step, setup.fork_steps, len(setup.parents)) == (KEPT, 40, 3)
    # forks, and two windows of three runs of each arm
    assert setup.least_steps == 4 * 3 * 40 + 2 * 3 * 2 * 32


def analysed(database, base, *named):
    """A concluded analysis of a base job that named these units; its id."""
    with database.write() as session:
        made = submit_analysis(session, base, WhyRequest()).id
    measured(database, made, dict.fromkeys(named, 0.02))
    conclude(database, made)
    return made


def test_switches_come_from_the_newest_analysis_that_names_a_part(database):
    base = make_base(database)
    analysed(database, base, "0.gate.dgrad")
    newest = analysed(database, base, "0.down.wgrad")
    analysed(database, base)  # names nothing
    with database.read() as session:
        setup = plan_search(session, base, WISH).setup
        assert (setup.switches_from, setup.analysis) == ("analysis", newest)
        assert [each.name for each in setup.switches] == [
            "0.down.wgrad",
            "0.mlp.fprop+dgrad",
            "0.gate+up.wgrad",
        ]
        assert setup.switches[0].override["recipe"] == "fp8_current"
        assert setup_from(asdict(setup)) == setup
        by_hand = plan_search(
            session, base, Wish(pairs=4, switches=[SwitchWish(name="all", override=EVERYTHING)])
        ).setup
        assert (by_hand.switches_from, by_hand.analysis, len(by_hand.switches)) == (
            "request",
            None,
            1,
        )
    with database.read() as session:
        setup = plan_search(session, make_base(database), WISH).setup
        assert (setup.switches_from, setup.analysis) == ("default", None)


def test_a_step_names_what_keeps_its_confirmation_open(database):
    own = begun(database, make_base(database))
    to_the_confirmation(database, own)
    play_step(database, own, confirmed=(0.0, 0.0, 0.0))
    with database.write() as session:
        search = session.get_one(Search, own)
        (verdict,) = search.steps[-1].job.verdicts
        document = json.loads(verdict.document)
        document["reasons"] = [
            {"code": "NOT_CONVERGED", "sentence": "base still falls by 0.1 nats."},
            *document["reasons"],
        ]
        verdict.outcome, verdict.code, verdict.document = (
            "inconclusive",
            "NOT_CONVERGED",
            json.dumps(document),
        )
    advance(database, own)
    with database.read() as session:
        outcome = next(
            step.outcome
            for step in search_document(session.get_one(Search, own)).steps
            if step.kind == "confirmation"
        )
    assert outcome.startswith("inconclusive, NOT_CONVERGED: gap ")
    assert outcome.endswith("base still falls by 0.1 nats.")


def test_what_an_open_search_needs_is_kept(database):
    base = make_base(database)
    own = begun(database, base)
    with database.read() as session:
        parents = session.get_one(Search, own).setup["parents"]
        first = session.get_one(Search, own).steps[0].job_id
    assert retention._states(database, parents) == dict.fromkeys(parents, "forked")
    with database.write() as session:
        cancel_search(session, own)
        assert session.get_one(Job, first).status == "cancelled"
        assert not {base, first} & set(session.scalars(retention._unneeded_jobs(1e12)))
        with pytest.raises(NotFoundError):
            find_search(session, "s1")
    assert set(retention._states(database, parents).values()) == {"finished"}


def test_over_rest(database, api):
    base = make_base(database)
    plan = api.post(f"/api/v1/jobs/{base}/searches:plan", json={"pairs": 4})
    assert plan.status_code == 200, plan.text
    assert [each["name"] for each in plan.json()["switches"]] == [
        "0.mlp.fprop",
        "0.mlp.dgrad",
        "0.mlp.wgrad",
    ]
    assert plan.json()["confidence"] == 0.975
    made = api.post(f"/api/v1/jobs/{base}/searches", json={"pairs": 4})
    assert made.status_code == 202, made.text
    own = made.json()["id"]
    assert api.get(made.headers["Location"]).json()["state"] == "running"
    assert api.post(f"/api/v1/searches/{own}:cancel").json()["state"] == "cancelled"
    assert api.post(f"/api/v1/searches/{own}:resume").json()["state"] == "running"
    assert [step["outcome"] for step in api.get(f"/api/v1/searches/{own}").json()["steps"]] == [
        "given up",
        "",
    ]
    assert api.post(f"/api/v1/jobs/{base}/searches", json={"pears": 4}).status_code == 422
    assert api.get("/api/v1/searches/s1").status_code == 404
    for path in ("", "/overlay", "/gap", "/live", "/verdict", "/runs", "/evidence.zip"):
        job = api.get(f"/api/v1/searches/{own}").json()["steps"][-1]["job"]
        assert api.get(f"/api/v1/jobs/{job}{path}").status_code < 500, path
