"""When a part of the stack that died is started again, and when it is given up."""

import subprocess

import pytest

from workers.standalone.keeping import TIMES_IN_A_ROW, PartKeeper
from workers.standalone.processes import StackPart, StartError


class Clock:
    """A clock that moves when the test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def kept(tmp_path):
    """A keeper of a part that dies at once, its clock, the names it started and the lines it
    reported.
    """
    clock, started, lines = Clock(), [], []
    log = tmp_path / "worker.log"

    def start(name):
        started.append(name)
        with log.open("a") as stream:
            process = subprocess.Popen(["sh", "-c", "echo no device; exit 3"], stdout=stream)
        process.wait()
        return StackPart(name=name, process=process, log=log)

    keeper = PartKeeper(start, lines.append, clock)
    keeper.add("worker")
    return keeper, clock, started, lines


def test_the_pause_doubles_and_the_check_never_waits(kept):
    keeper, clock, started, lines = kept
    for pause in (0.5, 1.0, 2.0):
        before = len(started)
        keeper.check()
        clock.now += pause - 0.01
        keeper.check()
        assert len(started) == before
        clock.now += 0.02
        keeper.check()
        assert len(started) == before + 1
    assert "worker ended with status 3" in lines[0]
    assert "in 2 s (3 of 5 in a row)" in lines[2]


def test_a_part_that_dies_again_and_again_ends_the_stack_with_the_end_of_its_log(kept):
    keeper, clock, started, _ = kept

    def check_for_ever():
        while True:
            keeper.check()
            clock.now += 0.5

    with pytest.raises(
        StartError,
        match=r"(?s)worker was started again 5 times .* ended with status 3; .*no device",
    ):
        check_for_ever()
    assert len(started) == 1 + TIMES_IN_A_ROW
    assert clock.now < 100.0 + 30.0


def test_a_part_that_ran_for_a_while_is_counted_from_one_again(kept):
    keeper, clock, started, lines = kept
    for _ in range(2 * TIMES_IN_A_ROW):
        clock.now += 61.0  # it ran that long before anyone looked
        keeper.check()
        clock.now += 1.0
        keeper.check()
    assert len(started) == 1 + 2 * TIMES_IN_A_ROW
    assert all("(1 of 5 in a row)" in line for line in lines)
