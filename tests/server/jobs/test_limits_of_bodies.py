"""The fields of the bodies that are defined beside the jobs, each at its limit and beyond it."""

import pytest

from server.jobs.baselines import BaselineChoice
from server.jobs.external import AttachRequest
from server.jobs.projects import RunRequest
from server.jobs.statements import StatementRequest
from tests.server.web.requests.test_limits_of_requests import BODIES, check_field

OURS = {each.__name__ for each in (BaselineChoice, AttachRequest, RunRequest, StatementRequest)}


@pytest.mark.parametrize("place", [each for each in BODIES if each.partition(".")[0] in OURS])
def test_a_field_is_allowed_at_its_limit_and_refused_beyond_it(place: str) -> None:
    check_field(place)
