"""What Slurm's programs say, without a worker: a controller that is away is told from a job that is
gone.
"""

from collections.abc import Callable

import pytest

from tests.workers.commands.schedulers import PlaySlurm
from workers.commands.schedulers import SCRIPT, SchedulerUnreachableError
from workers.commands.slurm import Slurm


@pytest.fixture
def play(tmp_path, monkeypatch):
    made = PlaySlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", made.path)
    yield made
    made.cancel_all()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / SCRIPT).write_text("#!/bin/sh\nexec sleep 60\n")
    return tmp_path


def test_a_controller_that_is_away_is_told_in_its_own_words(play, folder):
    slurm = Slurm({"options": ()})
    job_id = slurm.submit("a-key", folder)
    play.is_down(True)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("sbatch", lambda: slurm.submit("another", folder)),
        ("squeue", slurm.jobs),
        ("scontrol", lambda: slurm.release(job_id)),
        ("scancel", lambda: slurm.cancel(job_id)),
    ]
    for program, call in calls:
        with pytest.raises(SchedulerUnreachableError) as away:
            call()
        assert str(away.value).startswith(f"{program}: Unable to contact slurm controller")


def test_a_job_that_is_gone_is_neither_released_nor_an_error(play, folder):
    slurm = Slurm({"options": ()})
    slurm.release("404")
    slurm.cancel("404")
    job_id = slurm.submit("a-key", folder)
    assert [(job.id, job.key, job.state) for job in slurm.jobs("a-key")] == [
        (job_id, "a-key", "held")
    ]
    assert slurm.jobs("another") == []
    slurm.release(job_id)
    assert [job.state for job in slurm.jobs()] == ["running"]
    slurm.cancel(job_id)
    assert [job.state for job in slurm.jobs()] == ["ended"]
