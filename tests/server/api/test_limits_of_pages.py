"""The last item of a page, and the first beyond it: no page is empty, and none hides an item."""

from types import SimpleNamespace

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from server.api import run_logs, step_bodies
from server.database.tables import Job, JobTag
from server.documents.job_lists.filters import JobFilters
from server.documents.job_lists.page import MOST_COUNTED, job_list, known_tags
from server.documents.matrix import matrix
from server.errors import InvalidError, NotFoundError
from server.jobs import baselines
from server.jobs.submit import submit_job


@pytest.fixture
def jobs(database, make_job):
    """Three jobs, oldest first; their ids."""
    with database.write() as session:
        return [
            submit_job(session, make_job(name=f"n{at}"), policy_from_mapping({"margin": "1%"})).id
            for at in range(3)
        ]


@pytest.mark.parametrize(("limit", "pages"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4, [3])])
def test_jobs_come_in_full_pages_and_the_last_one_ends_the_list(api, jobs, limit, pages):
    seen, sizes, cursor = [], [], {}
    while cursor is not None:
        answer = api.get("/api/v1/jobs", params={"limit": limit, **cursor}).json()
        sizes.append(len(answer["items"]))
        seen += [job["id"] for job in answer["items"]]
        cursor = {"cursor": answer["next_cursor"]} if answer["next_cursor"] else None
    assert (sizes, seen) == (pages, jobs[::-1])


@pytest.mark.parametrize(("most", "total"), [(2, (2, True)), (3, (3, False)), (4, (3, False))])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_count_says_more_only_beyond_its_end(database, jobs, monkeypatch, most, total, limit):
    assert MOST_COUNTED == 10_000
    monkeypatch.setattr("server.documents.job_lists.page.MOST_COUNTED", most)
    with database.read() as session:
        page = job_list(session, JobFilters(), "newest", None, limit, counted=True)
    assert (page.total, page.more) == total


def test_a_filter_offers_200_tags(database, jobs):
    with database.write() as session:
        session.add_all(JobTag(job_id=jobs[0], tag=f"t{at:03}") for at in range(201))
    with database.read() as session:
        assert known_tags(session) == [f"t{at:03}" for at in range(200)]


@pytest.mark.parametrize(("limit", "pages"), [(1, [1, 1]), (2, [2]), (3, [2])])
def test_versions_come_in_full_pages_and_the_last_one_ends_the_list(
    api, database, judged, limit, pages
):
    job_id, _ = judged({"nvfp4": 0.3})
    with database.write() as session:
        for name in ("one", "two"):
            baselines.promote(session, name, job_id, None, "why", "me", None)
    sizes, cursor = [], {}
    while cursor is not None:
        answer = api.get("/api/v1/baselines", params={"limit": limit, **cursor}).json()
        sizes.append(len(answer["items"]))
        cursor = {"cursor": answer["next_cursor"]} if answer["next_cursor"] else None
    assert sizes == pages


@pytest.mark.parametrize(("limit", "following"), [(39, 39), (40, None), (41, None)])
def test_steps_come_in_full_pages_and_the_last_one_ends_them(
    api, database, recorded, limit, following
):
    job_id = recorded({"nvfp4": 0.0}, steps=40)
    with database.read() as session:
        run = session.get_one(Job, job_id).runs[0].id
    answer = api.get(f"/api/v1/runs/{run}/steps", params={"limit": limit, "format": "json"}).json()
    assert (len(answer["steps"]), answer["next_from"]) == (min(limit, 40), following)


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_of_bytes_has_64_columns_and_100_000_rows(more):
    names = ["step", *(f"c{at}" for at in range(64 + more))]
    rows = np.zeros((len(names), 1)).tobytes()
    long = np.zeros((2, 100_000 + more)).tobytes()
    for body, columns in ((rows, ",".join(names)), (long, "step,loss")):
        if more:
            with pytest.raises(InvalidError):
                step_bodies.binary_batch(body, columns)
        else:
            assert len(step_bodies.binary_batch(body, columns).steps) == len(body) // 8 // (
                1 + columns.count(",")
            )


@pytest.mark.parametrize(("step", "refused"), [(0.0, False), (2.0**53, False), (-1.0, True)])
def test_a_step_in_bytes_is_exact(step, refused):
    body = np.array([[step], [2.0]]).tobytes()
    if refused:
        with pytest.raises(InvalidError):
            step_bodies.binary_batch(body, "step,loss")
    else:
        assert step_bodies.binary_batch(body, "step,loss").steps.tolist() == [int(step)]


def _log(tmp_path, text, most_lines=5):
    (tmp_path / "logs" / "runs").mkdir(parents=True)
    (tmp_path / "logs" / "runs" / "r-1.log").write_text(text)
    attempt = SimpleNamespace(attempt=1, state="running", worker=None)
    return run_logs._log(tmp_path, "r", attempt, most_lines)


@pytest.mark.parametrize(("number", "cut"), [(5, False), (6, True)])
def test_a_log_is_cut_beyond_the_lines_that_are_asked_for(tmp_path, number, cut):
    log = _log(tmp_path, "".join(f"line {at}\n" for at in range(number)))
    assert (len(log.lines), log.lines[-1], log.cut) == (5, f"line {number - 1}", cut)


@pytest.mark.parametrize("more", [0, 1])
def test_the_last_262_144_bytes_of_a_log_are_read(tmp_path, more):
    """A line of which only the end is read is left out, and of each line 2,000 characters stay."""
    between = "x" * (262_144 - len("first\n\nlast\n") + more)
    log = _log(tmp_path, f"first\n{between}\nlast\n")
    assert (log.lines[0] == "first", log.lines[-1], log.cut) == (not more, "last", bool(more))
    assert max(map(len, log.lines)) == 2000


@pytest.mark.parametrize("number", [99, 100, 101])
def test_a_hundred_files_of_an_attempt_are_listed(tmp_path, number):
    folder = tmp_path / "artifacts" / "r-1"
    folder.mkdir(parents=True)
    for at in range(number):
        (folder / f"{at:03}").touch()
    names = [f"{at:03}" for at in range(min(number, 100))]
    assert _log(tmp_path, "").artifacts == names


@pytest.mark.parametrize(("number", "too_many"), [(0, True), (1, False), (30, False), (31, True)])
def test_30_jobs_are_compared_and_one_twice_counts_once(database, number, too_many) -> None:
    """Jobs that are not on record are missed only once their number is right."""
    ids = [f"j{at}" for at in range(number)]
    with database.read() as session, pytest.raises((InvalidError, NotFoundError)) as failed:
        matrix(session, [*ids, *ids], "recipe")
    assert isinstance(failed.value, InvalidError) == too_many
