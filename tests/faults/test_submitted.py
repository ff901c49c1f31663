"""The short form of `tests.faults.submitted`; `make test-faults` kills a hundred workers on each database and with each scheduler."""

import os

import pytest

from tests.faults.submitted import kill_workers


@pytest.mark.postgresql
def test_four_workers_that_die_between_two_writes_leave_nothing_behind(tmp_path, settings, monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    killed, wrong = kill_workers(tmp_path, settings.database_url, kills=4, seed=7)
    assert (sum(killed.values()), wrong) == (4, [])
