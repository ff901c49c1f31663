"""The fields of the bodies that the API defines, and its parameters, each at its limit."""

import pytest

from server.api import (
    baselines,
    curves,
    jobs,
    lists,
    live,
    overviews,
    remarks,
    runs,
    service,
    verdicts,
)
from tests.server.web.test_limits_of_requests import BODIES, PARAMETERS, check_field, check_route

MODULES = (baselines, curves, jobs, lists, live, overviews, remarks, runs, service, verdicts)
PLACES = [each for each in BODIES if any(hasattr(own, each.partition(".")[0]) for own in MODULES)]


@pytest.mark.parametrize("place", PLACES)
def test_a_field_is_allowed_at_its_limit_and_refused_beyond_it(place: str) -> None:
    check_field(place)


def test_every_parameter_is_allowed_at_its_limit_and_refused_beyond_it() -> None:
    for route in PARAMETERS:
        check_route(route)
