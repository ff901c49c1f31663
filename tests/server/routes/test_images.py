"""Figures and badges over REST, and the page of a job that can be mailed."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from parity.cli import main as cli
from server.database.tables import Job
from server.documents import images

BEGINNINGS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture
def job(judged):
    return judged({"nvfp4": 0.3, "mxfp8": 0.0})[0]


def test_a_figure_is_drawn_once_in_each_form(api, job, monkeypatch):
    url = f"/api/v1/jobs/{job}/verdict"
    with ThreadPoolExecutor(3) as pool:
        first = dict(zip(BEGINNINGS, pool.map(lambda kind: api.get(f"{url}.{kind}"), BEGINNINGS), strict=True))
    for kind, answer in first.items():
        assert answer.status_code == 200, answer.text
        assert answer.content.startswith(BEGINNINGS[kind])
    monkeypatch.setattr(images, "draw_figure", lambda *_: 1 / 0)
    assert api.get(f"{url}.svg").content == first["svg"].content
    again = api.get(f"{url}.svg", headers={"If-None-Match": first["svg"].headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert api.get(f"{url}.gif").status_code == 422


def test_each_candidate_has_a_figure_of_its_own(api, job):
    drawn = [api.get(f"/api/v1/jobs/{job}/verdict.svg", params={"candidate": name}).content for name in ("nvfp4", "mxfp8")]
    assert drawn[0] != drawn[1]
    refused = api.get(f"/api/v1/jobs/{job}/verdict.svg", params={"candidate": "fp3"})
    assert (refused.status_code, "verdicts of nvfp4, mxfp8" in refused.json()["detail"]) == (404, True)


def test_without_a_verdict_there_is_no_figure_and_a_grey_badge(api, request_body):
    queued = api.post("/api/v1/jobs", json=request_body).json()["id"]
    assert "has no verdict" in api.get(f"/api/v1/jobs/{queued}/verdict.svg").json()["detail"]
    assert api.get(f"/api/v1/badges/{queued}.json").json()["message"] == "no verdict, queued"
    assert api.get("/api/v1/badges/mine.json").status_code == 404  # by name only concluded jobs count


def test_a_badge_says_the_worst_verdict(api, job):
    by_id, by_name = (api.get(f"/api/v1/badges/{named}.json").json() for named in (job, "small"))
    assert by_id == by_name
    assert (by_id["schemaVersion"], by_id["label"], by_id["color"]) == (1, "parity", "#b3261e")
    assert re.fullmatch(r"■ nvfp4 fail, gap \+0\.\d{4} nats", by_id["message"])
    assert api.get(f"/api/v1/badges/{job}.svg").status_code == 404


def test_a_report_in_one_file(served, database, job, tmp_path, capsys):
    with database.write() as session:
        session.get_one(Job, job).name = "<script>alert(1)</script>"
    file = tmp_path / "report.html"
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", job, "--server", served, "--html", str(file)])
    assert ended.value.code == 1, capsys.readouterr().err
    text = file.read_text()
    assert text.count("<svg") == 2
    assert "FAIL" in text
    assert "PASS" in text
    assert "<script" not in text
    assert "default-src 'none'" in text
    # Nothing is fetched: the one address that is not within the page or the name of a vocabulary is a link to click.
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', text) == [f"{served}/jobs/{job}"]
    assert "url(http" not in text
