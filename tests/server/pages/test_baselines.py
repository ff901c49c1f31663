"""The pages of named baselines, and what a job's page says of a baseline that was not trained
again.
"""

import time

import pytest
from playwright.sync_api import Page, expect
from pydantic import TypeAdapter

from parity.judging.policy import policy_from_mapping
from server.database.tables import Job
from server.jobs import baselines
from server.jobs.baselines import BaselineChoice
from server.jobs.submit import submit_job
from training.spec import JobSpec

LOOKS = ["light"]


@pytest.fixture
def named(database, recorded):
    """A promoted baseline with controls and a newer version that differs, and the id of a job that
    names it.
    """
    first, reruns, newer = (
        recorded({"nvfp4": 0.0}),
        recorded({"nvfp4": 0.0}, rerun=1),
        recorded({"nvfp4": 0.0}, steps=1400),
    )
    with database.write() as session:
        for job_id, days in ((first, 9.5), (reruns, 3), (newer, 1)):
            for run in session.get_one(Job, job_id).runs:
                run.finished_at, run.fingerprint = time.time() - 86_400 * days, "c0ffee" * 8
                run.manifest = run.manifest | {
                    "version.jax": "0.11" if job_id == newer else "0.10.2"
                }
        made = baselines.promote(
            session, "llama3-fp8", first, None, "the recipe of release 1", "local", 90
        )
        session.flush()
        baselines.attach_controls(
            session, made, reruns, "an A/A pair of the same week", "local", overrules=True
        )
        baselines.promote(
            session, "llama3-fp8", newer, None, "jax 0.11", "local", None, overrules=True
        )
        row = session.get_one(Job, first)
        spec = _spec(row)
        named = baselines.resolve(session, BaselineChoice(name="llama3-fp8", version=1), spec, 5.0)
        return submit_job(
            session, spec, policy_from_mapping({"margin": "1.0%"}), "local", named=named
        ).id


def _spec(job: Job) -> JobSpec:
    return TypeAdapter(JobSpec).validate_python({**job.spec, "name": "later"})


def test_from_the_list_to_a_version_to_what_differs(page: Page, named):
    page.goto("/baselines")
    expect(page.get_by_role("row", name="llama3-fp8 2")).to_contain_text("newest")
    page.get_by_role("link", name="llama3-fp8 1").click()
    expect(page.locator("main")).to_contain_text("reruns differ by 0.0")
    expect(page.locator("main")).to_contain_text("3 degrees of freedom")
    expect(page.get_by_role("region", name="Audit trail")).to_contain_text(
        "an A/A pair of the same week"
    )
    expect(page.get_by_role("region", name="Runs").get_by_role("row")).to_have_count(5)
    page.get_by_label("compare with").fill("llama3-fp8@2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="version.jax").first).to_contain_text("0.11")
    expect(page.get_by_role("row", name="schedule.steps").first).to_contain_text("1400")
    page.goto("/baselines/llama3-fp8/1?other=nobody")
    expect(page.get_by_role("alert")).to_contain_text("baseline 'nobody' does not exist")
    missing = page.request.get("/baselines/llama3-fp8/9", headers={"Accept": "text/html"})
    assert (missing.status, "llama3-fp8 version 9" in missing.text()) == (404, True)
    assert page.request.get("/baselines/llama3-fp8/x").status == 422


def test_a_job_says_whose_curves_its_baseline_has(page: Page, named):
    page.goto(f"/jobs/{named}")
    expect(
        page.get_by_text("baseline llama3-fp8 version 1, promoted by this machine, with 2 controls")
    ).to_be_visible()
    expect(
        page.get_by_role("region", name="Runs").get_by_text("reused: trained 9.5")
    ).to_have_count(2)


def test_candidates_of_every_job_stand_side_by_side(page: Page, database, judged):
    """Those of the job that trained the baseline, and of the jobs that name it, on one scale."""
    first, later = judged({"nvfp4": 0.05, "mxfp8": 0.0})[0], judged({"nvfp4": 0.0})[0]
    alone = judged({"nvfp4": 0.0})[0]
    with database.write() as session:
        made = baselines.promote(session, "fp8", first, None, "release 1", "local", None)
        session.flush()
        row = session.get_one(Job, later)
        row.baseline_id, row.name = made.id, "later"
        session.get_one(Job, alone).name = "of another"
    page.goto("/baselines/fp8/1")
    table = page.get_by_role("region", name="Candidates judged")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(table.get_by_role("row").nth(1)).to_contain_text("later")
    expect(table.get_by_role("row").nth(1)).to_contain_text("PASS")
    expect(table.get_by_role("row", name="mxfp8")).to_contain_text("PASS")
    expect(table.get_by_role("row").nth(2)).to_contain_text("FAIL")
    expect(table).not_to_contain_text("of another")
    assert (
        len({line.get_attribute("x1") for line in table.locator("line.edge:nth-of-type(2)").all()})
        == 1
    )
    table.get_by_role("link", name="later").click()
    expect(page.locator(".ctx b")).to_have_text("later")


def test_a_baseline_that_nobody_was_judged_against_says_so(page: Page, database, recorded):
    with database.write() as session:
        job = recorded({"nvfp4": 0.0})
        baselines.promote(session, "fp8", job, None, "release 1", "local", None)
    page.goto("/baselines/fp8/1")
    expect(page.get_by_text("None yet.")).to_be_visible()
