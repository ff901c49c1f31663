"""The time left: the queue played forward by hand."""

from server.database.tables import Run
from server.documents.progress import last_end, run_times, seconds_left, share_done


def _run(name, arm, state, done, speed=None):
    return Run(
        id=name, arm_id=arm, state=state, planned_steps=100, steps_done=done, steps_per_second=speed
    )


def test_the_queue_fills_slots_in_order():
    runs = [
        _run("a", "x", "finished", 100, 10.0),
        _run("b", "x", "running", 50, 10.0),  # 5 s left
        _run("c", "y", "running", 0, 5.0),  # 20 s left
        _run("d", "x", "queued", 0),  # after b, at the speed of its arm: 5 + 10
        _run("e", "y", "queued", 0),  # after d: 15 + 20
    ]
    assert seconds_left(runs, slots=2) == {"a": 0.0, "b": 5.0, "c": 20.0, "d": 15.0, "e": 35.0}


def test_a_run_starts_when_the_slot_before_it_is_free():
    runs = [
        _run("a", "x", "running", 50, 10.0),
        _run("b", "x", "queued", 0),
        _run("c", "y", "queued", 0),
    ]
    starts = {name: time and time[0] for name, time in run_times(runs, slots=1).items()}
    assert starts == {"a": 0.0, "b": 5.0, "c": 15.0}
    assert run_times([_run("a", "x", "queued", 0)], slots=1) == {"a": None}


def test_without_a_measured_speed_nothing_is_promised():
    assert seconds_left([_run("a", "x", "queued", 0)], slots=2) == {"a": None}


def test_an_arm_without_a_speed_takes_the_mean_of_the_others():
    runs = [_run("a", "x", "running", 0, 10.0), _run("b", "y", "queued", 0)]
    assert seconds_left(runs, slots=1)["b"] == 20.0


def test_the_last_end_is_unknown_while_one_end_is():
    assert [last_end(ends) for ends in ([3.0, 5.0], [3.0, None], [])] == [5.0, None, None]


def test_the_share_done_counts_steps_of_all_runs():
    assert share_done([_run("a", "x", "finished", 100), _run("b", "x", "queued", 0)]) == 0.5
    assert share_done([]) == 0.0
