"""One session: runs the steps in their order within the time that is left, and writes each result
as soon as there is one.

A step whose least time is not left is not begun. A step in the background is watched while later
ones run. SIGTERM, Ctrl-C and the end of the time stop what runs; what it had found by then is
written all the same, and the rest is listed as not begun.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.gpu_evidence.budget import SessionBudget
from tools.gpu_evidence.process import StepProcess
from tools.gpu_evidence.results import FIRST_LINES, Folder, Outcome, StepResult
from tools.gpu_evidence.steps import Step, StepSize
from tools.gpu_evidence.summary import summary

ROOT = Path(__file__).parents[2]
CANNOT_BEGIN = 2
_LOOK_SECONDS = 0.1
_SHOWN_LINES = 400  # of a step's output, in its facts


@dataclass(slots=True, kw_only=True)
class _Running:
    step: Step
    command: tuple[str, ...]
    process: StepProcess
    began: str
    limit: float
    facts: Path


class Session:
    """The steps of one session and its time; `run` returns the exit status."""

    def __init__(
        self,
        steps: Sequence[Step],
        budget: SessionBudget,
        folder: Folder,
        python: str,
        *,
        rehearsal: bool,
    ) -> None:
        self._steps, self._budget, self._folder, self._python, self._rehearsal = (
            steps,
            budget,
            folder,
            python,
            rehearsal,
        )
        self._machine: Mapping[str, Any] = {}
        self._background: list[_Running] = []
        self._cut: signal.Signals | None = None
        self._platform = "cpu" if rehearsal else "cuda"

    def run(self) -> int:
        """Run the steps and write the summary; 0 if all that began is done, 1 if a step failed, 2
        without a GPU, 128 + N after signal N.
        """
        status = 0
        with self._signals():
            try:
                for step in self._steps:
                    self._take(step)
                    if step is self._steps[0] and self._folder.results[-1].outcome == "failed":
                        status = CANNOT_BEGIN
                        break
                self._wait(None)
            finally:
                for running in [*self._background]:
                    self._finish(running, self._how_it_was_cut())
        recorded = {result.step for result in self._folder.results}
        for step in self._steps:
            if step.name not in recorded:
                self._record(
                    step,
                    "not begun",
                    "there is no such device; see the first step"
                    if status
                    else self._how_it_was_cut(),
                )
        if self._cut is not None:
            status = 128 + self._cut
        elif any(result.outcome == "failed" for result in self._folder.results):
            status = status or 1
        text = summary(
            self._folder.results,
            self._budget.passed() / 60,
            "cut by " + self._cut.name if self._cut else "ended",
        )
        self._folder.write_summary(text)
        sys.stdout.write(text)
        return status

    def _take(self, step: Step) -> None:
        """Run a step to its end, or begin it if it is one for the background; or record why it is
        not begun.
        """
        if step.alone or step.patient:
            self._wait(step)
        if self._cut is not None or not self._budget.left():
            return  # recorded at the end
        if step.alone and self._background:
            self._record(
                step,
                "not begun",
                f"{self._background[0].step.name} still runs, beside which no speed can be "
                "measured",
            )
            return
        size = step.fitting(self._budget.left())
        if size is None:
            least = step.sizes[-1].seconds
            self._record(
                step,
                "not begun",
                f"it needs {least:.0f} s, and {self._budget.left():.0f} s are left",
            )
            return
        running = self._begin(step, size)
        if step.background:
            self._background.append(running)
            return
        while not self._has_ended(running):
            self._watch_background()
            time.sleep(_LOOK_SECONDS)
        self._finish(running, self._how_it_was_cut())
        if step is self._steps[0]:
            self._machine = {
                name: value
                for name, value in self._folder.results[-1].facts.items()
                if name in ("device", "driver", "versions")
            }

    def _begin(self, step: Step, size: StepSize) -> _Running:
        facts = self._folder.path / f".{step.name}.facts"
        command = [self._python, *step.module, *size.arguments]
        if step.facts == "file":
            command += ["--facts", str(facts)]
        limit = min(self._budget.left(), step.limit or self._budget.left())
        if step.timed:
            command += ["--seconds", f"{limit:.0f}"]
        sys.stdout.write(
            f"{self._budget.passed() / 60:5.1f} min  {step.name}, at most {limit:.0f} s\n"
        )
        sys.stdout.flush()
        process = StepProcess(
            command, self._folder.path / f"{step.name}.log", self._environment(step), ROOT
        )
        began = datetime.now(UTC).isoformat(timespec="seconds")
        return _Running(
            step=step,
            command=tuple(command),
            process=process,
            began=began,
            limit=limit,
            facts=facts,
        )

    def _environment(self, step: Step) -> dict[str, str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
        }
        environment.setdefault(
            "JAX_COMPILATION_CACHE_DIR", str(self._folder.path.resolve() / "jax-cache")
        )
        # jax has no other platform, so nothing is trained or measured on the processor of a machine
        # whose GPU fails.
        environment |= {
            "JAX_PLATFORMS": self._platform,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        # Several processes share the GPU: none takes three quarters of its memory at its start.
        environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
        return environment | dict(step.environment)

    def _has_ended(self, running: _Running) -> bool:
        return (
            running.process.status() is not None
            or running.process.seconds() > running.limit
            or self._is_over()
        )

    def _is_over(self) -> bool:
        return self._cut is not None or not self._budget.left()

    def _watch_background(self) -> None:
        for running in [*self._background]:
            if self._has_ended(running):
                self._finish(running, self._how_it_was_cut())

    def _wait(self, step: Step | None) -> None:
        """Wait until no step runs in the background; for a patient step at most until it can only
        just end.
        """
        while self._background and not self._is_over():
            if step is not None and self._budget.left() <= step.sizes[-1].seconds * (
                1.1 if step.patient else 1.0
            ):
                return
            self._watch_background()
            time.sleep(_LOOK_SECONDS)

    def _finish(self, running: _Running, cut: str) -> None:
        """Record how a step ended; end it first if it still runs."""
        seconds, status = running.process.seconds(), running.process.status()
        if status is None:
            running.process.end()
        lines = running.process.lines()
        facts = _facts(running, lines)
        if status is None:
            limited = f"it ran {running.limit:.0f} s, its limit, and was killed"
            reason = cut if self._is_over() else limited
        elif status in running.step.fine:
            reason = ""
        elif status == running.step.refusal and isinstance(
            checks := facts.get("transformer_engine"), list
        ):
            reason = str(checks[0]["detail"])
        else:
            reason = f"status {status}: {lines[-1] if lines else 'it printed nothing'}"
        outcome: Outcome = "failed" if reason else "done"
        if status is not None and status == running.step.refusal:
            outcome = "not begun"
        if running in self._background:
            self._background.remove(running)
        self._folder.write(
            StepResult(
                step=running.step.name,
                outcome=outcome,
                reason=reason,
                rehearsal=self._rehearsal,
                machine=self._machine,
                command=running.command,
                began=running.began,
                seconds=round(seconds, 1),
                limit_seconds=round(running.limit, 1),
                facts=facts,
                first_lines=tuple(lines[:FIRST_LINES]) if outcome != "done" else (),
            )
        )
        running.facts.unlink(missing_ok=True)

    def _record(self, step: Step, outcome: Outcome, reason: str) -> None:
        self._folder.write(
            StepResult(
                step=step.name,
                outcome=outcome,
                reason=reason,
                rehearsal=self._rehearsal,
                machine=self._machine,
            )
        )

    def _how_it_was_cut(self) -> str:
        return (
            f"{self._cut.name} ended the session"
            if self._cut is not None
            else "the time of the session was over"
        )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Note SIGTERM and Ctrl-C instead of ending at once."""

        def note(number: int, _frame: object) -> None:
            self._cut = signal.Signals(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _facts(running: _Running, lines: list[str]) -> dict[str, Any]:
    """What a step found, also one that was killed in the middle."""
    facts: dict[str, Any] = {}
    with suppress(ValueError, OSError, IndexError):
        if running.step.facts == "file":
            facts = json.loads(running.facts.read_text(encoding="utf-8"))
        elif running.step.facts == "json":
            facts = json.loads(lines[-1])
        else:
            facts = {
                "lines": lines[:_SHOWN_LINES],
                "summary": [line for line in lines if line.strip()][-4:],
            }
    return facts
