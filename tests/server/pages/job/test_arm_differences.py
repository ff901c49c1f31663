"""What differs between the arms, as the judge sees it."""

import dataclasses

import pytest

from parity.judging.curves.context import differing_context
from server.database.tables import Job
from server.documents.jobs import job_document
from server.jobs.judge_input import case_of
from server.pages.job.arm_differences import compare


@pytest.fixture
def compared(database, recorded):
    """A function that gives each arm's runs facts of their own and returns the comparison and the
    judge's view of the curves.
    """

    def tell(*facts, may_differ=()):
        job_id = recorded({"nvfp4": 0.0}, steps=30)
        with database.write() as session:
            for arm, manifest in zip(session.get_one(Job, job_id).arms, facts, strict=True):
                for run in arm.runs:
                    run.manifest = manifest
        with database.read() as session:
            job = session.get_one(Job, job_id)
            case = case_of(session, job)
            judged = differing_context([*case.baseline, *case.candidates["nvfp4"]], may_differ)
            return compare(job_document(session, job, 5.0).arms, may_differ), judged

    return tell


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ({"data_digest": "d"}, {"data_digest": "d"}),
        ({"data_digest": "d"}, {"data_digest": "e"}),
        ({"a": "1"}, {"b": "1"}),
        ({"engine": "x"}, {"engine": "x", "env.XLA_FLAGS": "--fast"}),
        ({}, {"env.XLA_FLAGS": "--fast"}),
    ],
)
def test_the_page_and_the_judge_agree(compared, baseline, candidate):
    comparison, judged = compared(baseline, candidate)
    assert [one.key for one in comparison.differences] == [one.split(":")[0] for one in judged]
    assert comparison.confounded == bool(judged)


def test_values_are_told_by_arm_and_what_is_declared_does_not_confound(compared):
    comparison, judged = compared(
        {"version.jax": "1", "same": "s"},
        {"version.jax": "2", "same": "s"},
        may_differ=("version.jax",),
    )
    assert not judged
    assert not comparison.confounded
    assert dataclasses.asdict(comparison.differences[0]) == {
        "key": "version.jax",
        "values": ["1", "2"],
        "declared": True,
    }
    assert comparison.shared == {"same": "s"}
    assert (comparison.recorded_runs, comparison.runs) == (4, 4)


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        ({"recipe"}, "recipe"),
        ({"revision"}, "revision"),
        ({"recipe", "revision"}, "recipe or the revision"),
    ],
)
def test_the_page_names_what_the_arms_are_meant_to_differ_in(asked, question):
    assert compare([], (), asked).question == question
