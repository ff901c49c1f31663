"""Schemathesis against the application in a real uvicorn: every check, stateful, with a token and
known ids.

Without known ids most requests end in 404, so that case runs only in `make test-faults`.

A bounded run; `PARITY_FUZZ_SECONDS=900 pytest tests/server/test_fuzz.py -s` (`make fuzz`) is the
long one.
"""

import os
import re
import subprocess
import sys

import pytest

from server.database.tables import Job
from server.jobs.conclude import conclude
from server.settings import CHECKOUT, Settings
from server.web.access import api_tokens
from tests.conftest import THOROUGH

SECONDS = float(os.environ.get("PARITY_FUZZ_SECONDS", "4"))


@pytest.fixture
def settings(settings) -> Settings:
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 10**9})


@pytest.mark.parametrize("known_ids", [False, True] if THOROUGH else [True])
def test_nothing_that_fits_the_description_or_does_not_breaks_the_api(
    served, database, recorded, tmp_path, known_ids
):
    job_id = recorded({"nvfp4": 0.001}, steps=60)
    with database.write() as session:
        run_id = session.get_one(Job, job_id).runs[0].id
        _, token = api_tokens.create_token(session, "fuzz", ["admin"], None)
    conclude(database, job_id)
    config = (CHECKOUT / "tests" / "server" / "schemathesis.toml").read_text()
    if known_ids:
        config = f'[parameters]\n"path.job_id" = "{job_id}"\n"path.run_id" = "{run_id}"\n' + config
    (tmp_path / "schemathesis.toml").write_text(config)
    command = [
        *(
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(tmp_path / "schemathesis.toml"),
        ),
        *(
            "run",
            f"{served}/api/v1/openapi.json",
            "--header",
            f"Authorization: Bearer {token}",
            "--checks",
            "all",
        ),
        *("--continue-on-failure", "--no-color", "--max-time"),
    ]
    # on a busy machine the first request may not fit the time
    for seconds in (SECONDS * 2**more for more in range(7)):
        fuzzer = subprocess.run(
            [*command, f"{seconds:g}"], cwd=tmp_path, check=False, capture_output=True, text=True
        )
        generated = re.search(r"([\d,]+) generated", fuzzer.stdout)
        if generated and int(generated[1].replace(",", "")) > 0:
            break
    else:
        pytest.fail(fuzzer.stdout)
    assert fuzzer.returncode == 0, fuzzer.stdout[-20_000:]
    print(fuzzer.stdout)
