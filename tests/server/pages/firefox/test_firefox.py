"""Each page in Firefox: no console error, no uncaught exception, and charts that say what they say in Chromium.

`make test-firefox` runs this; every other run of the tests skips it. It needs Firefox (Debian's firefox-esr), Chromium and npm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.pages.conftest import CHROMIUM

pytestmark = pytest.mark.skipif("PARITY_TEST_FIREFOX" not in os.environ, reason="`make test-firefox` runs this")
SCRIPT = Path(__file__).with_name("open_pages.mjs")
_LIMIT = 900  # s; a browser that hangs must not hang the tests
# Pages of refusals, which browsers report as failed requests.
_REFUSALS = r"/nowhere$|/jobs/j-none$|/baselines/fp8/last$"


def _pages(browser: str, executable: str | None, addresses: list[str]) -> list[dict[str, Any]]:
    """What each page says in a browser."""
    node = shutil.which("node")
    assert node, "node is not installed"
    assert executable, f"{browser} is not installed"
    command = [node, str(SCRIPT), browser, executable, *addresses]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LIMIT)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    print(browser, answer["version"])
    return answer["pages"]


def test_firefox_says_what_chromium_says(served, addresses):
    firefox = shutil.which("firefox-esr") or shutil.which("firefox")
    everywhere = [served + address for address in addresses]
    in_firefox, in_chromium = _pages("firefox", firefox, everywhere), _pages("chrome", CHROMIUM, everywhere)
    problems = [
        (page["address"], page["problems"]) for page in in_firefox if page["problems"] and not re.search(_REFUSALS, page["address"])
    ]
    assert problems == []
    for one, other in zip(in_firefox, in_chromium, strict=True):
        for part in ("heading", "notes", "readouts"):
            assert (one["address"], one[part]) == (other["address"], other[part])
    assert sum(len(page["notes"]) for page in in_firefox) > 10
    assert any("gap" in text or "step" in text for page in in_firefox for text in page["readouts"])
