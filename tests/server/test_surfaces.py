"""A job has one state and one lead on every surface of the server: its page, its row, the filters,
the badge, and the webhooks.
"""

import html
import re
from types import SimpleNamespace

import pytest

from parity.report.answer import answer_words
from parity.report.view import views_of
from parity.report.words import MARKS
from parity.wording import minus
from server.database.clock import time_text
from server.database.tables import Job
from server.jobs import sign_offs
from server.webhooks import _document


def part(page: str, pattern: str) -> str:
    found = re.search(pattern, page, re.DOTALL)
    assert found, pattern
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", found[1])).split())


def test_page_and_list_lead_with_the_acceptance_while_it_holds(api, database, judged):
    job_id, _ = judged({"nvfp4": 0.0145})

    def leads():
        page, rows = api.get(f"/jobs/{job_id}").text, api.get("/jobs").text
        (listed,) = api.get("/api/v1/jobs").json()["items"]
        shown = (
            part(page, r"<h1[^>]*>(.*?)</h1>"),
            part(rows, rf'<a href="/jobs/{job_id}">(.*?)</a>'),
        )
        assert part(page, r'class="chip">(.*?)</p>') == "◇ INCONCLUSIVE"
        return {*shown, listed["lead"]}

    assert leads() == {"Do not decide on nvfp4 yet."}
    with database.write() as session:
        made = sign_offs.sign_off(session, job_id, "nvfp4", "local", "reruns are queued", 14.0)
        (until,) = {time_text(row.expires_at)[:10] for row in made.sign_offs}
        (signed,) = {row.id for row in made.sign_offs}
    assert leads() == {f"nvfp4 is open, but accepted: you may use it until {until}."}
    with database.write() as session:
        sign_offs.revoke(session, job_id, signed, "local", "the reruns failed")
    assert leads() == {"Do not decide on nvfp4 yet."}


def test_the_page_of_a_fail_says_what_to_do_about_the_open_candidate(api, judged):
    job_id, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0145})
    said = answer_words(views_of(api.get(f"/api/v1/jobs/{job_id}").json()["verdicts"]))
    assert said.next_open.startswith("mxfp8, which is open: ")
    page = api.get(f"/jobs/{job_id}").text
    assert part(page, r'class="also">(.*?)</p>') == minus(said.next_open).replace("`", "")
    assert 'class="also"' not in api.get(f"/jobs/{job_id}?candidate=mxfp8").text


@pytest.mark.parametrize(
    ("gaps", "state"),
    [
        ({"nvfp4": 0.0}, "pass"),
        ({"nvfp4": 0.05}, "fail"),
        ({"nvfp4": 0.0137}, "inconclusive"),
        ({"nvfp4": 0.05, "mxfp8": 0.0}, "fail"),
        ({"mxfp8": 0.0, "nvfp4": 0.0137}, "inconclusive"),
    ],
)
def test_page_row_filter_badge_and_webhook_show_one_state(gaps, state, api, database, judged):
    job_id, _ = judged(gaps)
    said = answer_words(views_of(api.get(f"/api/v1/jobs/{job_id}").json()["verdicts"]))
    assert said.verdict == state

    page = api.get(f"/jobs/{job_id}").text
    assert part(page, r'class="chip">(.*?)</p>') == said.chip
    assert part(page, r"<h1[^>]*>(.*?)</h1>") == said.lead

    rows = api.get("/jobs", params={"state": state}).text
    assert part(rows, rf'<a href="/jobs/{job_id}">(.*?)</a>') == said.lead
    for other in {*MARKS} - {state}:
        assert job_id not in api.get("/jobs", params={"state": other}).text

    message = api.get(f"/api/v1/badges/{job_id}.json").json()["message"]
    assert message.startswith(MARKS[state])
    assert f" {state}" in message

    with database.read() as session:
        job = session.get_one(Job, job_id)
        row = SimpleNamespace(id="d1", kind="job.ended", created_at=0.0, job=job)
        sent = _document(row, "https://parity.example")
    assert (sent["job"]["verdict"], sent["job"]["lead"]) == (state, said.lead)
