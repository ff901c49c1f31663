"""The page of a healing: the answer of its command, a point for each look and for the candidate."""

import pytest

from server.jobs.conclude import conclude
from tests.server.healings import HEALED_GAPS, make_failed, train_forks


@pytest.fixture
def healing(database, api):
    """The id of a healing, whose first look trains."""
    made = api.post(f"/api/v1/jobs/{make_failed(database)}/heal", json={})
    assert made.status_code == 202, made.text
    return made.json()["job"]


def test_a_page_without_a_look_says_so(healing, api):
    page = api.get(f"/jobs/{healing}/heal").text
    assert "No look has ended yet" in page
    assert "<circle" not in page


def test_the_page_has_the_answer_and_a_point_for_each_look(healing, database, api):
    while train_forks(database, healing, HEALED_GAPS):
        conclude(database, healing)
    healed = api.get(f"/api/v1/jobs/{healing}/heal").json()["plan"]["heals"]
    page = api.get(f"/jobs/{healed}/heal")  # leads to the newest one
    assert page.url.path == f"/jobs/{healing}/heal"
    assert api.get(f"/jobs/{healing}").url.path == f"/jobs/{healing}/heal"
    assert "may be used to step 800 of 1,000 (80 %), then bf16" in page.text
    assert page.text.count("<circle") == 4  # three looks and the candidate itself
    assert "then: {recipe: bf16, from_step: 800}" in page.text
