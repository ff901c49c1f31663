"""Looks at a question are counted over all jobs that ask it, and what was not registered is
refused.
"""

import copy
import dataclasses
import time

import pytest
from sqlalchemy import select

from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import policy_from_mapping
from server.database.tables import Job, Verdict, new_id
from server.database.verdict_digest import columns_digest, document_digest
from server.errors import DamagedError, LookError
from server.jobs.judge_input import case_of
from server.jobs.ledger import asked_digest
from server.jobs.multiplicity import multiplicity_of
from server.jobs.submit import JobSubmission, submit_registered
from tests.conftest import small_job
from training.later_recipe import LaterRecipe
from training.spec import ArmSpec, Data, Model


def spec(*candidates: str, replicates: int = 1, **more):
    arms = tuple(ArmSpec(recipe=name, replicates=replicates) for name in candidates or ("nvfp4",))  # type: ignore[arg-type]
    return small_job(
        100, baseline=ArmSpec(recipe="fp8_current", replicates=replicates), candidates=arms, **more
    )


@pytest.fixture
def ask(database):
    """A function that submits a job and returns its id, its look and the number of candidates that
    share the error.
    """

    def submit(job=None, *, revision="", renews=None, **keys):
        with database.write() as session:
            policy = policy_from_mapping({"margin": "1.0%", **keys})
            wanted = JobSubmission(spec=job or spec(), policy=policy, revision=revision)
            made = submit_registered(
                session, wanted, "someone", outdated=lambda newest: newest.id == renews
            )
            return made.id, made.look, made.look_candidates

    return submit


@pytest.fixture
def end(database):
    """A function that ends a job: with a verdict on each candidate, or in another state."""

    def conclude(job_id, outcome="inconclusive", code="CI_STRADDLES_MARGIN", status="concluded"):
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = status, time.time()
            for arm in job.arms[1:] if status == "concluded" else ():
                document = f'{{"codes": ["{code}"], "verdict": "{outcome}"}}'
                session.add(
                    Verdict(
                        id=new_id("v"),
                        job_id=job_id,
                        candidate=arm.name,
                        outcome=outcome,
                        document=document,
                        created_at=time.time(),
                    )
                )

    return conclude


def test_further_replicates_are_a_further_look(ask, end):
    first = ask(looks=2)
    assert first[1:] == (1, 1)
    end(first[0])
    assert ask(spec(replicates=3), looks=2)[1:] == (2, 1)
    with pytest.raises(LookError, match="registered 2 looks"):
        ask(spec(replicates=4), looks=2)


def test_one_look_is_the_default_and_a_job_that_still_runs_has_used_it(ask):
    first, _, _ = ask()
    with pytest.raises(LookError, match=f"registered one look, used by job {first} \\(queued\\)"):
        ask()


@pytest.mark.parametrize(
    "other",
    [
        {"question": "after the new driver"},
        {"job": spec("mxfp8")},
        {"job": spec(layer_policy="all_linears")},
        {
            "job": small_job(
                101, baseline=ArmSpec(recipe="fp8_current"), candidates=(ArmSpec(recipe="nvfp4"),)
            )
        },
        {"revision": "r2"},
        {"job": spec(model=Model(d_model=64, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32))},
    ],
)
def test_another_question_has_looks_of_its_own(ask, other):
    ask()
    assert ask(**other)[1:] == (1, 1)


@pytest.mark.parametrize("same", [spec(replicates=2), spec(seed=7), spec(name="another name")])
def test_seeds_replicates_and_names_are_no_other_question(ask, same):
    ask()
    with pytest.raises(LookError):
        ask(same)


@pytest.mark.parametrize("outcome", ["inconclusive", "fail"])
def test_another_word_for_the_revision_is_a_further_look_after_what_did_not_pass(ask, end, outcome):
    first, _, _ = ask(revision="r1")
    end(first, outcome, "GAP_EXCEEDS_MARGIN" if outcome == "fail" else "CI_STRADDLES_MARGIN")
    with pytest.raises(LookError, match="registered one look"):
        ask(revision="r2")
    assert ask(revision="r2", renews=first)[1] == 1  # the trainer or the data are others


@pytest.mark.parametrize("then", [None, LaterRecipe(recipe="bf16", from_step=60)])
def test_a_look_that_was_counted_before_arms_had_a_later_recipe_stays_counted(ask, database, then):
    job_id, _, _ = ask(
        small_job(
            100,
            baseline=ArmSpec(recipe="fp8_current"),
            candidates=(ArmSpec(recipe="nvfp4", name="a", then=then),),
        )
    )
    earlier = {"bf16_from_step": then and then.from_step, "bf16_scope": "all"}
    with database.read() as session:
        job = session.get_one(Job, job_id)
        today = asked_digest(job, job.arms[1])
        arms = [{**arm, **earlier} for arm in job.spec["candidates"]]
        for arm in arms:
            arm.pop("then", None)
        session.expunge(job)
        job.spec = job.spec | {"candidates": arms}
        assert asked_digest(job, job.arms[1]) == today


OTHER_ENGINE = spec(engine="transformer_engine", model=Model(preset="llama3-1m-by128"), data=Data())
SAME_QUESTION = dataclasses.replace(OTHER_ENGINE, engine="emulated")


@pytest.mark.parametrize("outcome", ["inconclusive", "fail", "pass"])
@pytest.mark.parametrize(
    "other",
    [
        {"question": "after the new driver"},
        {"job": OTHER_ENGINE},
        {"revision": "r2", "question": "x"},
    ],
)
def test_other_words_are_a_further_look_after_what_did_not_pass(ask, end, outcome, other):
    code = {"fail": "GAP_EXCEEDS_MARGIN", "pass": "WITHIN_MARGIN"}.get(
        outcome, "CI_STRADDLES_MARGIN"
    )
    first, _, _ = ask(SAME_QUESTION)
    end(first, outcome, code)
    asked = {"job": SAME_QUESTION, **other}
    if outcome == "pass":
        assert ask(**asked)[1] == 1
        return
    with pytest.raises(LookError, match=f"registered one look, used by job {first}"):
        ask(**asked)
    assert ask(**asked, renews=first)[1] == 1  # the trainer or the data are others


def test_other_words_take_a_registered_look_of_the_same_ledger(ask, end):
    first, _, _ = ask(looks=2, question="a")
    end(first)
    assert ask(looks=2, question="b")[1] == 2
    with pytest.raises(LookError, match="registered 2 looks"):
        ask(looks=2, question="c")


def test_twenty_commits_that_pass_close_no_gate(ask, end):
    for number in range(20):
        job, look, _ = ask(revision=f"r{number}")
        assert look == 1
        end(job, "pass", "WITHIN_MARGIN")


@pytest.mark.parametrize(
    "margin",
    [{"margin": "1.001%"}, {"margin": "0.04 nats"}, {"margin": None, "profile": "fp8-grade"}],
)
def test_another_margin_is_a_look_at_the_same_question(ask, margin):
    ask(looks=2)
    assert ask(looks=2, **margin)[1] == 2
    with pytest.raises(LookError, match="registered 2 looks"):
        ask(looks=2, margin="2%")


def test_a_pass_by_one_margin_does_not_refuse_a_look_by_another(ask, end):
    first, _, _ = ask(looks=3)
    end(first, "pass", "WITHIN_MARGIN")
    assert ask(looks=3, margin="0.5%")[1] == 2
    with pytest.raises(LookError, match="has passed"):
        ask(looks=3)


def test_what_is_recorded_besides_is_no_other_question(ask):
    ask(looks=2)
    more = dataclasses.replace(
        spec().schedule, validation_every=10, statistics_every=10, gradients_every=10
    )
    assert ask(spec(schedule=more), looks=2)[1] == 2


def test_one_path_has_many_spellings_and_one_question(ask):
    ask(spec(data=Data(source="text", path="/corpus/a")))
    with pytest.raises(LookError):
        ask(spec(data=Data(source="text", path="/corpus/./a/")))


@pytest.mark.parametrize(
    "alike", [" new driver", "new  driver", "new\u00a0driver", "new\u200b driver", "new driver\n"]
)
def test_names_that_look_alike_are_one_question(ask, alike):
    ask(question="new driver")
    with pytest.raises(LookError):
        ask(question=alike)


def test_a_job_without_a_verdict_gives_its_look_back(ask, end):
    for status in ("cancelled", "failed"):
        job, look, _ = ask()
        assert look == 1
        end(job, status=status)


def test_no_two_looks_have_one_number(ask, end):
    first, _, _ = ask(looks=3)
    second, _, _ = ask(looks=3)
    end(first, status="cancelled")
    assert ask(looks=3)[1] == 3
    end(second, status="cancelled")
    with pytest.raises(LookError):
        ask(looks=3)


def test_no_look_after_a_pass(ask, end):
    first, _, _ = ask(looks=3)
    end(first, "pass", "WITHIN_MARGIN")
    with pytest.raises(LookError, match="nvfp4 has passed"):
        ask(looks=3)


def test_a_look_after_a_fail_only_where_the_gap_decided(ask, end):
    first, _, _ = ask(looks=3)
    end(first, "fail", "GAP_EXCEEDS_MARGIN")
    second, look, _ = ask(looks=3)
    assert look == 2
    end(second, "fail", "NONFINITE_CAND")
    with pytest.raises(LookError, match="failed by NONFINITE_CAND"):
        ask(looks=3)


@pytest.fixture
def seal(database):
    """A function that gives each verdict its digests, as the judge does."""

    def write_digests():
        with database.write() as session:
            for row in session.scalars(select(Verdict)):
                row.document_sha256 = document_digest(row.document)
                row.columns_sha256 = columns_digest(row)

    return write_digests


def test_a_fail_that_was_rewritten_as_inconclusive_opens_no_further_look(ask, end, seal, database):
    first, _, _ = ask(looks=3)
    end(first, "fail", "NONFINITE_CAND")
    seal()
    with database.write() as session:
        session.scalars(select(Verdict)).one().outcome = "inconclusive"
    with pytest.raises(DamagedError, match=first):
        ask(looks=3)


def test_what_was_inconclusive_as_it_was_written_is_looked_at_again(ask, end, seal):
    first, _, _ = ask(looks=3)
    end(first)
    seal()
    assert ask(looks=3)[1] == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("looks", 3), ("confidence", 0.9), ("window_fraction", 0.3), ("two_sided", True)],
)
def test_one_question_is_registered_in_one_way(ask, key, value):
    ask(looks=2)
    with pytest.raises(LookError, match=key):
        ask(**{"looks": 2, key: value})


def test_an_early_stop_may_change_between_looks(ask):
    ask(looks=2)
    assert ask(looks=2, early_stop="stop")[1] == 2


def test_candidates_are_registered_together(ask, end):
    first, look, candidates = ask(spec("nvfp4", "mxfp8"), looks=2)
    assert (look, candidates) == (1, 2)
    end(first)
    assert ask(spec("mxfp8"), looks=2)[1:] == (2, 2)  # one of them alone keeps its share
    with pytest.raises(LookError, match="mxfp4 was added"):
        ask(spec("nvfp4", "mxfp4"), looks=2)


def test_two_candidates_with_one_recipe_share_the_error(ask):
    arms = (ArmSpec(recipe="nvfp4", name="a"), ArmSpec(recipe="nvfp4", name="b"))
    assert ask(small_job(100, baseline=ArmSpec(recipe="fp8_current"), candidates=arms))[1:] == (
        1,
        2,
    )


def test_a_question_whose_answer_is_out_of_date_has_a_new_ledger(ask, end):
    first, _, _ = ask()
    end(first)
    assert ask(renews=first)[1] == 1
    with pytest.raises(LookError):
        ask(renews=first)


def test_a_refused_job_leaves_nothing(ask, database):
    first, _, _ = ask()
    with pytest.raises(LookError):
        ask()
    with database.read() as session:
        assert [job.id for job in session.scalars(select(Job))] == [first]


def test_external_jobs_are_counted_only_under_a_name(ask):
    external = spec(engine="external")
    assert ask(external)[1] is ask(external)[1] is None
    assert ask(external, question="llama3 8b")[1] == 1
    with pytest.raises(LookError):
        ask(external, question="llama3 8b")


def test_the_judge_is_told_of_the_look(recorded, database):
    job_id = recorded({"nvfp4": 0.0}, looks=3)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        (document,) = case_of(session, job).documents()
        (what_if,) = case_of(session, job, policy_from_mapping({"margin": "2%"})).documents()
    shared = document["multiplicity"]
    assert (shared["look"], shared["looks"], shared["registered"]) == (1, 3, True)
    assert (
        document["gap"]["confidence"]
        == shared["confidence"]
        == Multiplicity(looks=3).confidence(0.95)
    )
    assert what_if["multiplicity"]["registered"] is False


def test_a_job_that_was_not_counted_has_no_look(database):
    job = Job(look=None, policy=copy.deepcopy({"margin": "1%"}))
    assert multiplicity_of(job) is None
