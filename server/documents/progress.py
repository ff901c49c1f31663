"""Progress and end time of a job, from a simulation of its queue on the free slots with each run's
measured speed.
"""

import heapq
from collections.abc import Mapping, Sequence

from server.database.states import RUN_ENDED
from server.database.tables import Run


def seconds_left(runs: Sequence[Run], slots: int) -> Mapping[str, float | None]:
    """Seconds until each run of a job ends: 0 if it has ended, None while no speed is known."""
    times = run_times(runs, slots)
    return {run_id: None if time is None else time[1] for run_id, time in times.items()}


def run_times(runs: Sequence[Run], slots: int) -> Mapping[str, tuple[float, float] | None]:
    """Seconds until each run of a job starts and until it ends: 0 if it has, None while no speed is
    known.

    A queued run is assumed to be as fast as the measured runs of its arm, else as the mean of all
    measured runs. Other jobs in the queue are not counted.

    Args:
        runs: all runs of the job in the order of their claim.
        slots: how many runs train at once.
    """
    running = [run for run in runs if run.state == "running"]
    free_at = [0.0] * max(1, slots, len(running))
    times: dict[str, tuple[float, float] | None] = {
        run.id: (0.0, 0.0) if run.state in RUN_ENDED else None for run in runs
    }
    for run in [*running, *(run for run in runs if run.state == "queued")]:
        speed = None if run.planned_steps is None else _speed(run, runs)
        if speed is None:
            continue
        start = heapq.heappop(free_at)
        end = start + max(0, run.length - max(run.steps_done, run.first_step)) / speed
        heapq.heappush(free_at, end)
        times[run.id] = start, end
    return times


def last_end(ends: Sequence[float | None]) -> float | None:
    """Seconds until the last of these runs ends; None if one of them is unknown, or for an empty
    list.
    """
    known_ends = [end for end in ends if end is not None]
    if known_ends and len(known_ends) == len(ends):
        return max(known_ends)
    return None


def share_done(runs: Sequence[Run]) -> float:
    """The share of the planned steps of these runs that is done, 0 to 1; of the runs where nobody
    has stated their steps.
    """
    planned = [run for run in runs if run.planned_steps]
    if planned:
        return sum(run.steps_done for run in planned) / sum(run.length for run in planned)
    if not runs:
        return 0.0
    return sum(run.state in RUN_ENDED for run in runs) / len(runs)


def _speed(run: Run, runs: Sequence[Run]) -> float | None:
    for like_it in ([run], [other for other in runs if other.arm_id == run.arm_id], runs):
        speeds = [other.steps_per_second for other in like_it if other.steps_per_second]
        if speeds:
            return sum(speeds) / len(speeds)
    return None
