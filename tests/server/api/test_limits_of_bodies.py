"""The fields of the bodies that the API defines, and its parameters, each at its limit."""

from importlib import import_module
from pkgutil import walk_packages

import pytest

from server import api
from tests.server.web.requests.test_limits_of_requests import (
    BODIES,
    PARAMETERS,
    check_field,
    check_route,
)

MODULES = [import_module(module.name) for module in walk_packages(api.__path__, f"{api.__name__}.")]
PLACES = [
    place for place in BODIES if any(hasattr(module, place.partition(".")[0]) for module in MODULES)
]


@pytest.mark.parametrize("place", PLACES)
def test_a_field_is_allowed_at_its_limit_and_refused_beyond_it(place: str) -> None:
    check_field(place)


def test_every_parameter_is_allowed_at_its_limit_and_refused_beyond_it() -> None:
    for route in PARAMETERS:
        check_route(route)
