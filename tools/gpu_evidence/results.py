"""One JSON file per step of the evidence, written at once and as a whole: what ran, on which
device, for how long, how it ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["done", "failed", "not begun"]
FIRST_LINES = 50
_SUMMARY = "summary.txt"
# A unix socket's path has at most 107 bytes on Linux; the longest in a session's folder is
# /te_pair/state/redis.sock.
_LONGEST_SOCKET_PATH, _LONGEST_BELOW = 107, 25


class FolderError(Exception):
    """The folder for the results cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How one step ended. `reason` is empty if it is done; `facts` are what the step itself wrote,
    also where it was cut.

    `machine` has device, driver and versions; it is empty until the step `device` has found them.
    `first_lines` are the first 50 lines that a failed step printed.
    """

    step: str
    outcome: Outcome
    reason: str = ""
    rehearsal: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    began: str = ""
    seconds: float = 0.0
    limit_seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_lines: tuple[str, ...] = ()


class Folder:
    """The folder of one session's results: NN-STEP.json in the order in which the steps ended,
    STEP.log, and summary.txt.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: list[StepResult] = []

    def write(self, result: StepResult) -> None:
        """Write a result at once, so that a cut a moment later loses nothing."""
        self.results.append(result)
        name = f"{len(self.results):02d}-{result.step}.json"
        write_atomically(self.path / name, json.dumps(asdict(result), indent=1) + "\n")

    def write_summary(self, text: str) -> None:
        """Write the summary of the results."""
        write_atomically(self.path / _SUMMARY, text)


def new_folder(path: Path) -> Folder:
    """Make the folder for a session's results; FolderError if it holds anything or cannot be
    written.
    """
    longest = len(str(path.resolve()).encode()) + _LONGEST_BELOW
    if longest > _LONGEST_SOCKET_PATH:
        raise FolderError(
            f"--out {path} is too long by {longest - _LONGEST_SOCKET_PATH} bytes for the service's "
            "socket; name a shorter one"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FolderError(
                f"--out {path} is not empty, expected a new folder, so that no earlier result is "
                "lost; name another one"
            )
        probe = path / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FolderError(
            f"--out {path} cannot be written ({error.strerror}); name a folder in which you can "
            "make files"
        ) from error
    return Folder(path)


def write_atomically(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def write_facts(path: Path | None, facts: Mapping[str, Any]) -> None:
    """Write what a step has found so far to the file that its caller named."""
    if path is not None:
        write_atomically(path, json.dumps(facts, indent=1, default=str) + "\n")
