"""What every trainer of a launcher has, whoever starts it: its launcher and manifest, its limits,
and what its end means.
"""

import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from parity.judging.curves.outside_plan import last_recorded
from training.command import PINNED
from training.spec import RunSpec
from workers.commands import checkout
from workers.commands.checkout import CommitTree
from workers.commands.follow import LogRefusedError, Report, ReportFollower
from workers.commands.launchers import Launcher, LauncherError, Limits, read_launchers

_ASK_SECONDS = 30.0  # for nvidia-smi, which may load a driver first
_TAIL_BYTES, _TAIL_LINES = 16_384, 30


class EndedError(Exception):
    """How a trainer ended, where that is not its last step; `kind` is that of the message
    (`workers.protocol.ErrorMessage`).
    """

    def __init__(
        self, code: str, message: str, kind: Literal["error", "broke_off"] = "error"
    ) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


def launcher_of(spec: RunSpec, file: Path) -> Launcher:
    """The launcher of a run, checked against what it asks for. Raises LauncherError; EndedError for
    a file that cannot be read now.
    """
    assert spec.command is not None  # noqa: S101
    try:
        launchers = read_launchers(file)
    except LauncherError as error:  # its operator may be writing it
        raise EndedError(error.code, str(error), "broke_off") from None
    launcher = launchers.get(spec.command.launcher)
    if launcher is None:
        names = ", ".join(launchers)
        raise LauncherError(
            f"this worker has no launcher {spec.command.launcher!r}, expected one of {names}",
            "LAUNCHER_UNKNOWN",
        )
    launcher.check(spec)
    return launcher


def manifest(launcher: Launcher, spec: RunSpec, tree: CommitTree) -> dict[str, str]:
    """The facts of a run that must agree between arms, and those that say what was compared. The
    commit is shown, its files decide.
    """
    facts = {
        "engine": spec.engine,
        "launcher": launcher.name,
        "launcher_digest": launcher.digest,
        "parameters": json.dumps(launcher.check(spec), sort_keys=True),
        "repository": checkout.shown(launcher),
        "code_revision": spec.revision,
        "code_digest": tree.digest,
    }
    stated = {
        "environment": spec.environment,
        PINNED: launcher.pinned,
        "device_class": launcher.device_class or _devices(),
    }
    return facts | {name: value for name, value in stated.items() if value}


def _devices() -> str:
    """What this machine trains on, as far as it can be asked: its GPUs by name and number, else its
    processor.
    """
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        named = subprocess.run(
            asked, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return f"cpu:{platform.machine()}"
    return ", ".join(f"{number} x {name}" for name, number in Counter(named).items())


class Watch:
    """The report of a trainer, its limits, and its end.

    `began` (of time.monotonic) is when it started, `tail` gives the end of what it printed. The
    size of `output` is looked at every `size_seconds` at the most, and for at most this share of
    the time.
    """

    def __init__(
        self,
        limits: Limits,
        follower: ReportFollower,
        planned: int,
        output: Path,
        tail: Callable[[], str],
        *,
        began: float,
        sizes: tuple[float, float],
    ) -> None:
        self._limits, self._follower, self._planned = limits, follower, planned
        self._output, self._tail = output, tail
        self._seen = 0
        self._began, self._sizes = began, sizes
        self.wrote_at = time.monotonic()
        """When (of time.monotonic) something new of the report was seen last, by `check_limits`."""
        self._next_size_check = self.wrote_at

    @property
    def last_step(self) -> int | None:
        """The last step that was reported."""
        return self._follower.last_step

    @property
    def is_behind(self) -> bool:
        """Whether the report has more than was read so far."""
        return self._follower.is_behind

    def rows(self, *, ended: bool) -> Iterator[Report]:
        """What is new in the report: a part of it, or, once the trainer has ended, all. Raises
        LogRefusedError.
        """
        if ended:
            yield from self._follower.finish()
        elif (report := self._follower.poll()) is not None:
            yield report

    def reports_a_step(self, *, ended: bool) -> bool:
        """Whether it has reported a step by now, readable or not to its end."""
        with suppress(LogRefusedError):
            for _ in self.rows(ended=ended):
                pass
        return self.last_step is not None

    def check_end(self, status: int) -> None:
        """Raises EndedError for any end but that of its last step; a negative status is a
        signal.
        """
        last = self.last_step
        if status < 0:
            raise EndedError(
                "TRAINER_KILLED",
                f"the trainer was killed by signal {-status}{self._end_of_log()}",
                "broke_off",
            )
        # many trainers stop at a NaN, and say so by their status
        if status and self._follower.has_diverged:
            why = (
                f"the loss of step {last} is not finite, and the trainer ended with status {status}"
            )
            raise EndedError("DIVERGED", f"{why}{self._end_of_log()}")
        if status:
            raise EndedError(
                "TRAINER_FAILED", f"the trainer ended with status {status}{self._end_of_log()}"
            )
        if last is None:
            raise EndedError(
                "NO_LOSS",
                f"the trainer ended without a loss: {self._follower.problem()}{self._end_of_log()}",
            )
        if (above := self._follower.left_out) is not None:
            last = last_recorded(self._planned)
            message = (
                f"the trainer reported step {above:,} of {self._planned:,}; no step after {last:,} "
                "is recorded"
            )
            raise EndedError("STEPS_ABOVE_PLAN", message)
        if not self._follower.reaches(self._planned):
            message = (
                f"the trainer ended at step {last:,} of {self._planned:,}, and said that it had "
                f"succeeded{self._end_of_log()}"
            )
            raise EndedError("ENDED_EARLY", message)

    def check_limits(self) -> None:
        """Raises EndedError for a trainer that exceeds a limit of its launcher."""
        limits, now = self._limits, time.monotonic()
        seen = self._follower.bytes_seen
        if seen != self._seen:
            self._seen, self.wrote_at = seen, now
        if now - self._began > limits.seconds:
            raise EndedError(
                "TIME_LIMIT", f"the trainer ran for longer than its launcher's {limits.seconds:g} s"
            )
        if now - self.wrote_at > limits.silent_seconds:
            why = f"the trainer reported nothing for {limits.silent_seconds:g} s"
            raise EndedError("TRAINER_SILENT", f"{why}{self._end_of_log()}", "broke_off")
        if now > self._next_size_check:
            size = _bytes_below(self._output)
            seconds, share = self._sizes
            self._next_size_check = now + max(seconds, (time.monotonic() - now) / share)
            if size > limits.output_bytes:
                message = (
                    f"the trainer wrote {size:,} bytes, expected at most its launcher's "
                    f"{limits.output_bytes:,.0f}"
                )
                raise EndedError("OUTPUT_LIMIT", message)

    def close(self) -> None:
        """Let go of the report."""
        self._follower.close()

    def _end_of_log(self) -> str:
        return f"; the end of its output:\n{self._tail()}"


def tail_of(descriptor: int) -> str:
    """The last lines of an open file."""
    size = os.fstat(descriptor).st_size
    lines = (
        os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        .decode(errors="replace")
        .splitlines()
    )
    return "\n".join(lines[-_TAIL_LINES:]) or "(empty)"


def trains_without_its_commit(launcher: str, paths: str, step: object) -> str:
    """Why a launcher is refused that reports a loss without the files of the commit."""
    return (
        f"launcher {launcher} does not run the commit: started without the files of its paths "
        f"({paths}) it still reported the loss of "
        f"step {step}. Let its command start a file of the repository"
    )


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
    return total
