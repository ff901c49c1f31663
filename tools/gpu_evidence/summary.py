"""The summary of a session: at most 40 lines, for a person who has to report what a GPU gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.gpu_evidence.results import StepResult

MOST_LINES = 40
_WIDTH = 160


def summary(results: Sequence[StepResult], minutes: float, end: str) -> str:
    """The lines. `end` says how the session ended."""
    lines = [f"GPU evidence: {end}, after {minutes:.1f} minutes"]
    if any(result.rehearsal for result in results):
        lines.append("REHEARSAL on a processor with stand-ins: no figure here is one of a GPU.")
    machine = next((result.machine for result in reversed(results) if result.machine), {})
    if machine:
        versions = machine.get("versions", {})
        shown = ", ".join(
            f"{name} {versions[name]}"
            for name in ("python", "jax", "transformer_engine")
            if name in versions
        )
        lines.append(
            f"{machine.get('device', 'no device')}, driver {machine.get('driver', 'unknown')}, "
            f"{shown}"
        )
    for result in results:
        time = f"{result.seconds:6.0f} s" if result.command else " " * 8
        lines.append(
            f"{result.outcome:9} {time}  "
            f"{result.step}{f': {result.reason}' if result.reason else ''}"
        )
        lines += [f"{'':20}  {line}" for line in _figures(result.facts)]
    if len(lines) > MOST_LINES:
        left = len(lines) - MOST_LINES + 1
        lines = [*lines[: MOST_LINES - 1], f"... {left} more lines are in the JSON files"]
    return "".join(
        f"{line if len(line) <= _WIDTH else line[: _WIDTH - 3] + '...'}\n" for line in lines
    )


def _figures(facts: Any) -> list[str]:
    """What a step itself wants to be told, in at most five lines."""
    if not isinstance(facts, dict):
        return []
    checks = [
        check
        for part in facts.values()
        if isinstance(part, list)
        for check in part
        if isinstance(check, dict) and "passed" in check
    ]
    ran = [check for check in checks if check["ran"]]
    if ran:
        failed = [f"{check['name']}: {check['detail']}" for check in ran if not check["passed"]]
        return [f"{len(ran)} checks, {len(failed)} failed", *failed[:3]]
    return [str(line) for line in facts.get("summary", [])[:5]]
