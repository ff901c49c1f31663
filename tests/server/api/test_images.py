"""Figures over REST, and the page of a job that can be mailed."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import pytest

from parity import cli
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.report.figures.verdict_figure import draw_figure
from server.api import images, jobs
from server.database.tables import Job


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"database_connections": 2})


@pytest.fixture
def job(judged):
    return judged({"nvfp4": 0.3, "mxfp8": 0.0})[0]


def test_a_figure_is_drawn_once(api, job, monkeypatch):
    url = f"/api/v1/jobs/{job}/verdict.svg"
    first = api.get(url)
    assert first.status_code == 200, first.text
    assert first.content.startswith(b"<?xml")
    monkeypatch.setattr(images, "draw_figure", lambda *_: 1 / 0)
    assert api.get(url).content == first.content
    again = api.get(url, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_each_candidate_has_a_figure_of_its_own(api, job):
    drawn = [
        api.get(f"/api/v1/jobs/{job}/verdict.svg", params={"candidate": name}).content
        for name in ("nvfp4", "mxfp8")
    ]
    assert drawn[0] != drawn[1]
    refused = api.get(f"/api/v1/jobs/{job}/verdict.svg", params={"candidate": "fp3"})
    assert (refused.status_code, "verdicts of nvfp4, mxfp8" in refused.json()["detail"]) == (
        404,
        True,
    )


def test_without_a_verdict_there_is_no_figure(api, request_body):
    queued = api.post("/api/v1/jobs", json=request_body).json()["id"]
    assert "has no verdict" in api.get(f"/api/v1/jobs/{queued}/verdict.svg").json()["detail"]


def test_a_report_in_one_file(served, database, job, tmp_path, capsys):
    with database.write() as session:
        session.get_one(Job, job).name = "<script>alert(1)</script>"
    file = tmp_path / "report.html"
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", job, "--server", served, "--html", str(file)])
    assert ended.value.code == 1, capsys.readouterr().err
    text = file.read_text()
    assert text.count('<figure class="pic') == 1
    assert "■ FAIL" in text
    assert '<td class="st">fail</td>' in text
    assert "<script" not in text
    assert "default-src 'none'" in text
    # Nothing is fetched: the one address that is not within the page or the name of a vocabulary is
    # a link to click.
    assert re.findall(r'(?:src|href)="(?!data:)([^#"][^"]*)"', text) == [f"{served}/jobs/{job}"]
    assert "url(http" not in text


def test_the_status_of_a_concluded_job_begins_with_its_verdict(served, job, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", job, "--server", served])
    assert ended.value.code == 0
    first, measure, *_ = capsys.readouterr().out.splitlines()
    assert first == "■ FAIL  nvfp4 fails. You may switch to mxfp8."
    assert measure.startswith("nvfp4 ends ")


def test_who_waits_for_a_drawing_keeps_nobody_from_a_connection_and_only_few_wait(api, job):
    urls = [f"/api/v1/jobs/{job}/verdict.svg?candidate={name}" for name in ("nvfp4", "mxfp8") * 3]
    with ThreadPoolExecutor(len(urls)) as pool:
        with images.drawing.take():
            answers = [pool.submit(api.get, url) for url in urls]
            refused = [
                done.result() for done in islice(as_completed(answers, timeout=60), len(urls) - 3)
            ]
            assert {answer.status_code for answer in refused} == {503}
            assert {answer.headers["Retry-After"] for answer in refused} == {"2"}
            assert {answer.json()["type"] for answer in refused} == {
                "urn:parity:problem:unavailable"
            }
            assert [api.get("/api/v1/jobs").status_code for _ in range(3)] == [200] * 3
        drawn = [answer.result(60) for answer in answers]
    assert sorted(answer.status_code for answer in drawn) == [200] * 3 + [503] * 3
    assert api.get(urls[0]).status_code == 200


def test_drawing_and_packing_hold_no_connection(api, job, monkeypatch):
    reached, go = threading.Semaphore(0), threading.Event()

    def held(function):
        def wait(*arguments):
            reached.release()
            assert go.wait(60)
            return function(*arguments)

        return wait

    monkeypatch.setattr(images, "draw_figure", held(draw_figure))
    monkeypatch.setattr(jobs, "bundle_bytes", held(bundle_bytes))
    with ThreadPoolExecutor(4) as pool:
        answers = [
            pool.submit(api.get, f"/api/v1/jobs/{job}/{name}")
            for name in ("verdict.svg", "verdict.svg?candidate=mxfp8", *["evidence.zip"] * 2)
        ]
        try:
            assert all(reached.acquire(timeout=60) for _ in range(2))
            assert [api.get("/api/v1/jobs").status_code for _ in range(3)] == [200] * 3
        finally:
            go.set()
        assert [answer.result(60).status_code for answer in answers] == [200] * 4
    assert answers[2].result().content == answers[3].result().content
