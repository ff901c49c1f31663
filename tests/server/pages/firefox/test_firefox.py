"""Each page in Firefox, light and wide, then dark and narrow: no console error, no uncaught
exception, and charts with Chromium's texts.

`make test-firefox` runs this; every other run of the tests skips it. It needs Firefox (Debian's
firefox-esr), Chromium and npm.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    "PARITY_TEST_FIREFOX" not in os.environ, reason="`make test-firefox` runs this"
)
SCRIPT = Path(__file__).with_name("open_pages.mjs")
LOOKS = (("light", 1440), ("dark", 390))
_PICTURES = 3  # pages at least that have the picture of a verdict
_LIMIT = 900  # s; a browser that hangs must not hang the tests
# Pages of refusals, which browsers report as failed requests.
_REFUSALS = r"/nowhere$|/jobs/j-none$|/baselines/fp8/last$"


def _pages(
    browser: str, executable: str | None, scheme: str, width: int, addresses: list[str]
) -> list[dict[str, Any]]:
    """What each page shows in a browser."""
    node = shutil.which("node")
    assert node, "node is not installed"
    assert executable, f"{browser} is not installed"
    command = [node, str(SCRIPT), browser, executable, scheme, str(width), *addresses]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LIMIT)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    print(browser, answer["version"])
    return answer["pages"]


def _apart(pictures: list[Any], others: list[Any]) -> list[str]:
    """In what the pictures of a verdict differ: their texts, or a place by more than a percent of
    the plot.
    """
    found = []
    for one, other in zip(pictures, others, strict=True):
        if one is None or other is None:
            found += [] if one == other else ["one has none"]
            continue
        found += [
            f"{text!r} instead of {expected!r}"
            for text, expected in itertools.zip_longest(one["texts"], other["texts"])
            if text != expected
        ]
        places = [np.array(drawing["ends"], float).ravel() for drawing in (one, other)]
        near = len(places[0]) == len(places[1]) and bool(
            np.all(np.abs(places[0] - places[1]) <= 1.0)
        )
        found += [] if near else ["ends"]
    return found


def test_firefox_shows_what_chromium_shows(served, addresses):
    firefox, chromium = (
        shutil.which("firefox-esr") or shutil.which("firefox"),
        shutil.which("chromium"),
    )
    everywhere = [served + address for address in addresses]
    for scheme, width in LOOKS:
        in_firefox, in_chromium = (
            _pages(browser, executable, scheme, width, everywhere)
            for browser, executable in (("firefox", firefox), ("chrome", chromium))
        )
        problems = [
            (page["address"], page["problems"])
            for page in in_firefox
            if page["problems"] and not re.search(_REFUSALS, page["address"])
        ]
        assert problems == []
        assert [page["address"] for page in in_firefox if page["sideways"]] == []
        assert {page["scheme"] for page in in_firefox + in_chromium} == {scheme}
        for one, other in zip(in_firefox, in_chromium, strict=True):
            assert _apart(one["pictures"], other["pictures"]) == [], one["address"]
            for part in ("heading", "notes", "readouts"):
                assert (one["address"], one[part]) == (other["address"], other[part])
        assert sum(page["pictures"][0] is not None for page in in_firefox) >= _PICTURES
        assert sum(len(page["notes"]) for page in in_firefox) > 10
        assert any(
            "gap" in text or "step" in text for page in in_firefox for text in page["readouts"]
        )
