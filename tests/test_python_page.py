"""docs/python.md: every example runs, and prints what the page shows; the notebook's outputs are
those of its cells.
"""

import io
import re
from contextlib import redirect_stdout

import numpy as np
import pytest

import parity
from server.settings import CHECKOUT
from tools import notebook

PAGE = (CHECKOUT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_every_example_runs_and_prints_what_the_page_shows(monkeypatch):
    monkeypatch.chdir(CHECKOUT / "examples" / "curves")
    names: dict[str, object] = {}
    printed = ""
    for language, text in BLOCKS:
        if language != "python":
            assert text == printed
            printed = ""
            continue
        assert not printed, "an example prints something that the page does not show"
        with redirect_stdout(io.StringIO()) as output:
            exec(text, names)  # noqa: S102
        printed = output.getvalue()
    test = names["test_mxfp8_converges_like_fp8"]
    test(parity.assert_parity)  # type: ignore[operator]


def test_the_docstring_names_every_argument():
    """The page leads to the API's page, which is written from it."""
    assert "](/docs/python-api/)" in PAGE
    named = set(re.findall(r"`(\w+)[`=]|\b(profile|checks)\b", parity.compare.__doc__))
    assert set(parity.compare.__annotations__) - {"return"} <= {
        each for names in named for each in names
    }


NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.mark.parametrize(
    "path", sorted((CHECKOUT / "examples").glob("*.ipynb")), ids=lambda path: path.name
)
def test_the_outputs_of_a_notebook_are_those_of_its_cells(path):
    """Words exactly, numbers as far as another processor may round them: a tenth of a pixel, the
    last decimal.
    """
    written = path.read_text(encoding="utf-8")
    today = notebook.executed(written, path.parent)
    remedy = f"run `python -m tools.notebook {path.relative_to(CHECKOUT)}`"
    assert NUMBER.sub("0", today) == NUMBER.sub("0", written), remedy
    new, old = ([float(number) for number in NUMBER.findall(text)] for text in (today, written))
    assert np.allclose(new, old, atol=0.11, rtol=1e-3), remedy
