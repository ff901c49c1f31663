"""Keeps the parts of the stack running: a part that died is started again, after a pause that
doubles, and a few times in a row.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from workers.standalone.processes import StackPart, StartError

TIMES_IN_A_ROW = 5
_FIRST_PAUSE_SECONDS = 0.5
# A part that ran for that long before it died had started well: its deaths are counted from one
# again.
_STEADY_SECONDS = 60.0


@dataclass(slots=True)
class _Life:
    """A part's running process, since when it runs, and when its successor is due; `deaths` are
    those in a row.
    """

    part: StackPart
    since: float
    deaths: int = 0
    due: float | None = None


class PartKeeper:
    """The running parts, in the order of their start. Call `check` from the thread that started
    them: their end is tied to it.
    """

    def __init__(
        self,
        start: Callable[[str], StackPart],
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._report, self._clock = start, report, clock
        self._lives: dict[str, _Life] = {}

    def add(self, name: str) -> StackPart:
        """Start a part for the first time."""
        life = _Life(part=self._start(name), since=self._clock())
        self._lives[name] = life
        return life.part

    def check(self) -> None:
        """Start what has died and is due; StartError, with the end of its log, if a part died too
        often in a row. Does not wait.
        """
        for name, life in self._lives.items():
            now = self._clock()
            if life.due is None:
                ended = life.part.end_reason()
                if ended:
                    self._plan(name, life, ended, now)
            elif now >= life.due:
                life.part, life.since, life.due = self._start(name), now, None

    def parts(self) -> list[StackPart]:
        """The parts, the first started first."""
        return [life.part for life in self._lives.values()]

    def _plan(self, name: str, life: _Life, ended: str, now: float) -> None:
        life.deaths = 1 if now - life.since >= _STEADY_SECONDS else life.deaths + 1
        if life.deaths > TIMES_IN_A_ROW:
            raise StartError(
                f"{name} was started again {TIMES_IN_A_ROW} times and died each time within "
                f"{_STEADY_SECONDS:g} s; {ended}"
            )
        pause = _FIRST_PAUSE_SECONDS * 2 ** (life.deaths - 1)
        life.due = now + pause
        first = ended.partition("\n")[0].partition(";")[0]
        self._report(
            f"{first}; starting it again in {pause:g} s ({life.deaths} of {TIMES_IN_A_ROW} in a "
            f"row), log {life.part.log}"
        )
