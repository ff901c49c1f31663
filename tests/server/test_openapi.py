"""The description of the API that is checked in is the one that is served."""

from server.settings import CHECKOUT
from tools import openapi


def test_the_file_is_what_is_served():
    stored = (CHECKOUT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert stored == openapi.text(), (
        "the API changed: look at the difference, then `python -m tools.openapi > "
        "docs/openapi.json`"
    )
