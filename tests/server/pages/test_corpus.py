"""Every page and every answer of the server for one record, written for `tools/corpus.py`; nothing
is asserted here but that all answer.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.server.pages.conftest import PAGES

FOLDER = os.environ.get("PARITY_CORPUS", "")
pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.skipif(not FOLDER, reason="`python -m tools.corpus FOLDER` runs this"),
]
_JOB_PAGES = (
    "",
    "/columns",
    "/gap?candidate=nvfp4",
    "/gaps",
    "/live",
    "/overlay?name=lm_loss",
    "/remarks",
    "/runs",
    "/verdict",
    "/verdict.md",
)
ANSWERS = (
    *(f"jobs/{{job}}{part}" for part in _JOB_PAGES),
    *(
        "jobs",
        "jobs/{many}",
        "jobs/{live}",
        "jobs/{failed}",
        "jobs/{why}",
        "jobs/{why}/why",
        "jobs/{many}/why/ablations",
    ),
    *(
        "jobs:compare?job={job}&job={live}",
        "baselines",
        "baselines/fp8/versions/1",
        "noise_table",
        "workers",
    ),
    *("trend?gate=small", "tokens", "schemas/parity.json"),
)
_IDS = re.compile(r"\b([a-z])[0-9a-f]{12}-[0-9a-f]{10}\b")
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?)?"  # of the calendar
    r"|\b1[6-9]\d{8}(\.\d+)?\b"  # of the attempt_number
    r"|\d+\s(s|min|h)(\s\d+\ss)?\sago"
)
# Digests and request ids.
_RANDOM = re.compile(
    r"(?<![.\w])[0-9a-f]{16,64}\b|(?<=seed )\d{4,}|(?<=\"seed\": )\d{4,}|(?<=etag=)\S+"
)


def masked(text: str) -> str:
    """A text whose ids are numbered as they appear, without times and secrets."""
    numbers: dict[str, str] = {}
    counts = itertools.count(1)
    text = _IDS.sub(lambda found: numbers.setdefault(found[0], f"{found[1]}-{next(counts)}"), text)
    return _RANDOM.sub("RANDOM", _TIMES.sub("TIME", text))


def test_write(api: TestClient, job_id: str, others: dict[str, str], database_kind: str) -> None:
    names = {"job": job_id, **others}
    folder = Path(FOLDER) / database_kind
    for path in (*itertools.chain(*PAGES.values()), *(f"/api/v1/{answer}" for answer in ANSWERS)):
        answer = api.get(
            path.format(**names),
            headers={"Accept": "text/html" if not path.startswith("/api") else "application/json"},
        )
        file = folder / f"{path.strip('/').replace('/', '-').replace('?', '--')}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        is_json = "json" in answer.headers["content-type"]
        text = json.dumps(answer.json(), indent=1, ensure_ascii=False) if is_json else answer.text
        file.write_text(f"{answer.status_code}\n{masked(text)}\n", encoding="utf-8")
