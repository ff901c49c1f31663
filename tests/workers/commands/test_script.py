"""The script of a job, run by a real sh: what it writes, and when it does not train."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.workers.commands.test_launchers import _run
from workers.commands import script
from workers.commands.launchers import read_launchers

TRAINER = """
import os, pathlib, sys, time
out = pathlib.Path(sys.argv[1])
(out / "argv").write_text("\\n".join(sys.argv[1:]))
(out / "where").write_text(f"{os.getcwd()}\\n{os.environ['HOME']}\\n{os.environ['ODD']}")
while (out.parent / "wait").exists():
    time.sleep(0.02)
sys.exit(int(os.environ["STATUS"]))
"""


@pytest.fixture
def written(tmp_path, write_launchers):
    """A function that writes the script of a run into a folder with a quote in its name; returns
    the folder.
    """

    def write(status: int = 0, *, negative_control: bool = False):
        folder = tmp_path / "it's here"
        (folder / "source" / "train").mkdir(parents=True)
        (folder / "source" / "train" / "loop.py").write_text(TRAINER)
        launcher = read_launchers(
            write_launchers(
                command=json.dumps(
                    [
                        sys.executable,
                        "train/loop.py",
                        "{output}",
                        "{checkpoints}/x",
                        "$HOME `id` ' \"",
                        "*",
                    ]
                ),
                environment=f'{{STATUS = "{status}", ODD = "a \'b\' $PATH"}}',
            )
        )["loop"]
        script.write(
            folder,
            "parity-key",
            launcher,
            _run(),
            tmp_path / "kept",
            negative_control=negative_control,
        )
        return folder

    return write


def _start(folder, job_id="7"):
    return subprocess.Popen(
        ["sh", str(folder / "job.sh")], env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": job_id}
    )


def _told(folder, read, *number):
    opened = os.open(folder, os.O_RDONLY)
    try:
        return read(opened, *number)
    finally:
        os.close(opened)


def test_arguments_and_variables_reach_the_trainer_as_they_are(written, tmp_path):
    folder = written()
    assert _start(folder).wait() == 0
    out = folder / "output.0"
    assert (out / "argv").read_text().split("\n") == [
        str(out),
        f"{tmp_path}/kept/x",
        "$HOME `id` ' \"",
        "*",
    ]
    assert (out / "where").read_text().split("\n") == [f"{folder}/source", str(out), "a 'b' $PATH"]
    assert _told(folder, script.read_start, 0).word == "7"
    assert _told(folder, script.read_start, 1) is None
    assert (_told(folder, script.read_end, 0).word, _told(folder, script.read_end, 1)) == (
        "0",
        None,
    )


@pytest.mark.parametrize(("status", "word"), [(3, "3"), (137, "-9")])
def test_the_trainers_status_is_told(written, status, word):
    folder = written(status)
    assert _start(folder).wait() == status
    assert _told(folder, script.read_end, 0).word == word


def test_another_job_does_not_train_the_run_again_nor_does_one_whose_trainer_has_ended(written):
    folder = written()
    (folder / "wait").touch()
    first = _start(folder)
    while not (folder / "output.0" / "where").exists():
        time.sleep(0.02)
    assert _start(folder, "8").wait() == 71
    (folder / "wait").unlink()
    assert first.wait() == 0
    assert _start(folder).wait() == 0
    assert sorted(path.name for path in folder.glob("output.*")) == ["output.0"]


def test_a_trainer_that_the_scheduler_ends_has_not_ended_and_the_next_start_is_told(written):
    folder = written()
    (folder / "wait").touch()
    first = _start(folder)
    while not (folder / "output.0" / "where").exists():
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 143
    assert _told(folder, script.read_end, 0) is None
    (folder / "wait").unlink()
    assert _start(folder).wait() == 0
    assert _told(folder, script.read_end, 0) is None
    assert _told(folder, script.read_end, 1).word == "0"


def test_a_start_that_the_scheduler_lost_is_ended_by_the_next(written):
    folder = written()
    (folder / "wait").touch()
    lost = _start(folder)
    while not (folder / "output.0" / "where").exists():
        time.sleep(0.02)
    again = _start(folder)
    assert lost.wait(60) == 143
    (folder / "wait").unlink()
    assert again.wait() == 0
    assert _told(folder, script.read_end, 1).word == "0"


def test_the_launcher_is_started_without_the_commit_first_where_that_is_not_proven(written):
    folder = written(negative_control=True)
    assert _start(folder).wait() == 0
    assert not (folder / "without.0" / "output" / "argv").exists()
    assert "loop.py" in (folder / "without.0" / "stdout").read_text()
    assert (folder / "output.0" / "argv").exists()
