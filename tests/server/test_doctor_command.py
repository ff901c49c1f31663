"""`parity doctor` against a real server: a line for each machine, and the job that waits."""

import pytest

from parity import cli


@pytest.mark.both_databases
@pytest.mark.parametrize("alive", [True, False])
def test_it_names_the_machines_and_the_job_that_waits(
    served, api, request_body, register, capsys, alive
):
    register(age=0.0 if alive else 1e6)
    job = api.post("/api/v1/jobs", json=request_body).json()
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor", "--server", served])
    out = capsys.readouterr().out
    assert ended.value.code == (0 if alive else 4)
    assert ("w: cpu, 1 slot; trains nothing" in out) == alive
    assert f"waiting: {job['id']} mine: {job['waiting']}" in " ".join(out.split())
    assert job["waiting"]
