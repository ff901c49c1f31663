"""The diagrams of the documentation are those that are drawn from the code today."""

import pytest

from tools.site.diagrams import DRAWINGS, IMAGES


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_file_is_what_is_drawn_today(name):
    assert (IMAGES / name).read_text(encoding="utf-8") == DRAWINGS[name](), (
        "run python -m tools.site.diagrams"
    )
