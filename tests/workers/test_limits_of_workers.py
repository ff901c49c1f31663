"""How much one claim, and one worker of submitted runs, takes on: each limit at its value."""

import os
import resource
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from workers import lease, submitted
from workers.commands import commit_trainer
from workers.training_process import _argument


@pytest.mark.parametrize(("failing", "claimed"), [(99, True), (100, False)])
def test_one_claim_fails_up_to_100_runs_that_nobody_could_train(monkeypatch, failing, claimed):
    failed = []

    def claim(_session, _worker, run, *_):
        if len(failed) == failing:
            return run
        run.state = "failed"
        failed.append(run)
        return None

    monkeypatch.setattr(
        lease, "next_run", lambda *_, **__: SimpleNamespace(state="queued", job_id="j")
    )
    monkeypatch.setattr(lease, "_claim", claim)
    assert (lease.claim(None, None, 5.0) is not None, len(failed)) == (claimed, failing)


@pytest.fixture
def worker(settings):
    """A worker of submitted runs whose database gives it a run at each claim."""
    database = SimpleNamespace(write=nullcontext)
    return submitted.Submitter(settings, database, None, threading.Event())


@pytest.mark.parametrize("running", [398, 399, 400])
def test_a_worker_follows_400_submitted_runs(worker, monkeypatch, running):
    monkeypatch.setattr(
        submitted, "_Submitted", lambda _, running: SimpleNamespace(prepare=running)
    )
    waiting = iter(range(1000))
    monkeypatch.setattr(
        lease, "claim", lambda *_, **__: SimpleNamespace(run_id=f"r{next(waiting)}")
    )
    worker._runs = {f"run {at}": None for at in range(running)}
    worker.wake()
    worker._claim(SimpleNamespace(submit=lambda _: None))
    assert (len(worker._runs), next(waiting)) == (400, 400 - running)


@pytest.mark.parametrize(("running", "looks"), [(399, False), (400, True)])
def test_it_looks_for_another_run_once_one_of_400_has_ended(worker, running, looks):
    worker._runs = {f"r{at}": SimpleNamespace(close=lambda: None) for at in range(running)}
    worker._drop("r0")
    assert (len(worker._runs), worker._wakeup.is_set()) == (running - 1, looks)


@pytest.mark.parametrize("size", [99, 100, 101])
def test_64_mebibytes_of_what_a_trainer_prints_are_copied(tmp_path, monkeypatch, capfdbinary, size):
    """With a limit of 100 bytes and pieces of 25, by a launcher's process and by a worker."""
    assert commit_trainer._MOST_LOG_BYTES == submitted._MOST_LOG_BYTES == 64 * 2**20
    for module, piece in ((commit_trainer, 25), (submitted, 25)):
        monkeypatch.setattr(module, "_MOST_LOG_BYTES", 100)
        monkeypatch.setattr(module, "_PIECE", piece)
    printed = commit_trainer._Printed(tmp_path / "printed")
    (tmp_path / "printed").write_bytes(b"x" * size)
    printed.copy()
    os.close(printed.descriptor)
    assert len(capfdbinary.readouterr().err) == min(size, 100)
    reported = object.__new__(submitted._Reported)
    reported._folder, reported._copied = os.open(tmp_path, os.O_RDONLY), {"printed": 0}
    for _ in range(8):
        reported.copy(tmp_path / "run.log")
    reported.copy(tmp_path / "run.log", all_of_it=True)
    os.close(reported._folder)
    assert (tmp_path / "run.log").stat().st_size == min(size, 100)


@pytest.mark.parametrize(("size", "is_file"), [(100_000, False), (100_001, True)])
def test_a_request_of_100_000_bytes_is_an_argument_and_a_longer_one_a_file(tmp_path, size, is_file):
    """Bytes, not characters: these have two each, but for one."""
    line = "é" * (size // 2) + "x" * (size % 2)
    with _argument(line, tmp_path / "run.log") as argument:
        assert argument.startswith("@") == is_file
        assert is_file or argument == line


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, resource.RLIM_INFINITY, 8192),
        (1024, 8192, 8192),
        (1024, 8193, 8192),
        (1024, 4096, 4096),
        (4096, 4096, None),
        (8191, 16384, 8192),
        (8192, 16384, None),
        (65536, 1048576, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_a_worker_of_submitted_runs_may_have_8192_files_open_if_the_system_allows_it(
    monkeypatch, soft, hard, wanted
):
    """The folders and reports of 400 runs; what the system allows beyond is left as it is."""
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    submitted._allow_many_files()
    assert given == ([] if wanted is None else [(wanted, hard)])


def test_the_chunks_of_a_run_that_trains_are_merged_and_those_of_one_that_ended_are_left(worker):
    """Its own end merges those of a run that is over, and it may be another worker's by then."""
    merged = []

    def run(name, *, followed=True, over=False):
        return SimpleNamespace(
            is_followed=followed,
            over=over,
            may_ask_again=lambda: False,
            is_due=lambda: False,
            next_look=float("inf"),
            guarded=lambda call: call(),
            close=lambda: None,
            record=SimpleNamespace(
                recorder=SimpleNamespace(merge=lambda: merged.append(name)),
                retried=lambda work: work(),
            ),
        )

    worker._runs = {
        "a": run("a"),
        "b": run("b", over=True),
        "c": run("c", followed=False),
        "d": run("d"),
    }
    worker._follow(SimpleNamespace(submit=lambda *_: None))
    assert merged == ["a", "d"]
