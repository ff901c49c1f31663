"""No link of a page leads nowhere, and a page links to nothing outside this service."""

import html
import re
from pathlib import Path

from server.api import images
from server.jobs import baselines


def test_every_link_of_every_page_is_answered(api, database, judged, monkeypatch):
    job, _ = judged({"nvfp4": 0.05, "mxfp8": 0.0})
    with database.write() as session:
        baselines.promote(session, "fp8", job, None, "a release", "local", 90)
    monkeypatch.setattr(images, "draw_figure", lambda path, *_: Path(path).write_bytes(b"drawn"))
    of_job = [f"jobs/{job}{rest}" for rest in ("", "?candidate=nvfp4", "?order=gap", "/compare")]
    of_jobs = ("jobs", f"compare?job={job}", "trend?gate=small")
    names = (*of_jobs, *of_job, "baselines", "baselines/fp8/1", "workers", "tokens", "jobs/j0")
    links = {
        link
        for name in names
        for link in re.findall(r'(?:href|src|action)="([^"]*)"', api.get(f"/{name}").text)
    }
    assert f"/api/v1/jobs/{job}/verdict.svg?candidate=nvfp4" in links
    # The documentation may not be built here: test_documentation.py has its anchors.
    targets = sorted(
        html.unescape(link) for link in links if not link.startswith(("#", "?", "/docs/"))
    )
    # A form that is posted may refuse a GET, but is there; the chart library is another's.
    answers = {link: api.get(link).status_code for link in targets if "/vendor/" not in link}
    assert {link: status for link, status in answers.items() if status not in (200, 405)} == {}
