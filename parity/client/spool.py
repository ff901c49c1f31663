"""What a training script logged, on disk until the server has it: one file an attempt, one line of
JSON a step.

    {"parity_spool": 1, "run": "r019…", "server": "http://…", "recipe": null, "manifest": {…}}
    {"step": 0, "loss": 10.8, "grad_norm": 3.1}
    {"end": "finished", "message": null}

`run` is null where no run was named; the server makes that of a `project` (with `arm`, `seed` and
others). Lines are only ever added, so a process that is killed leaves whole lines and at most one
torn one at the end, which is not read. A second file records how much the server has: the run, the
attempt's number, its token and a byte offset. Files survive the process, not a power cut.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from parity.frozen import frozen

if sys.platform != "win32":
    import fcntl

SCHEMA = 1
SUFFIX, REFUSED = ".jsonl", ".refused"
# of a header, which the server makes a run of
PROJECT_FACTS = ("project", "arm", "baseline", "seed", "recipe", "planned_steps")
_LONGEST_LINE = 65_536  # of an end, whose message has 2,000 characters


class SpoolError(Exception):
    """A file that is no spool; the message names it."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far the server has a spool: the run, number and token of its attempt (None before it
    attached) and the bytes that were taken.

    `left_out` is what the server said of steps above the plan that it did not record; "" for none.
    """

    path: Path
    run: str | None = None
    attempt_number: int | None = None
    offset: int = 0
    token: str | None = field(default=None, repr=False)
    left_out: str = ""

    @classmethod
    def load(cls, spool: Path) -> Progress:
        """The progress that was saved for a spool; none where nothing was."""
        path = spool.with_suffix(".sent")
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                path=path,
                run=saved.get("run"),
                attempt_number=saved["attempt_number"],
                offset=int(saved["offset"]),
                token=saved.get("token"),
                left_out=saved.get("left_out", ""),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(path=path)

    def save(self) -> None:
        """Remember, so that a reader never sees half of it."""
        write_whole(
            self.path,
            json.dumps(
                {
                    "run": self.run,
                    "attempt_number": self.attempt_number,
                    "offset": self.offset,
                    "token": self.token,
                    "left_out": self.left_out,
                }
            ),
        )


@frozen
class Part:
    """Lines of a spool from an offset on: its rows, how it ended (if it did) and the offset behind
    what was read.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    offset: int
    unreadable: int = 0


class Spool:
    """A spool that this process writes; it is locked as long as the process lives."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{time.time_ns():020d}-{os.getpid()}{SUFFIX}"
        new = self.path.with_suffix(".new")
        self._file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._bytes = 0
        try:
            if sys.platform != "win32":
                fcntl.flock(self._file, fcntl.LOCK_EX)
            self.write([{"parity_spool": SCHEMA, **header}])
            # Under its own name only now, when it is locked: another process must not take it for a
            # leftover.
            new.rename(self.path)
        except OSError:
            os.close(self._file)
            new.unlink()
            raise

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add lines; OSError (a full disk) leaves the file as it was, so that the same lines can be
        written again.
        """
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
        except OSError:
            os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(content)

    def close(self) -> None:
        """Let go of the file, so that another process may send it."""
        os.close(self._file)


def read_header(path: Path) -> dict[str, Any]:
    """The first line of a spool. SpoolError where the file holds none."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
    except OSError as error:
        raise SpoolError(
            f"{path}: cannot be read ({(error.strerror or 'unknown error').lower()}); expected a "
            "spool of parity.Run"
        ) from None
    except ValueError:
        raise SpoolError(
            f"{path}: is not a spool of parity.Run; expected a file below the folder parity-spool"
        ) from None
    if not isinstance(header, dict) or header.get("parity_spool") != SCHEMA:
        raise SpoolError(
            f"{path}: is not a spool of this version of parity.Run; expected a first line with "
            f"parity_spool: {SCHEMA}"
        )
    return header


def read_part(path: Path, offset: int, most_rows: int) -> Part:
    """Whole lines from an offset on, at most so many; a line that can't be read is counted and left
    out.
    """
    rows: list[dict[str, float]] = []
    end, unreadable = None, 0
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n") or len(rows) == most_rows:
                break
            offset += len(line)
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                unreadable += 1
                continue
            if "end" in row:
                end = row
                break
            if "step" in row:
                rows.append(row)
    return Part(rows=rows, end=end, offset=offset, unreadable=unreadable)


def list_spools(folder: Path) -> list[Path]:
    """The spools in a folder, oldest first, those of live processes too."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def is_whole(path: Path) -> bool:
    """Whether the attempt has ended, so that its process, which may live, adds nothing more."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_LINE))
            return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(b'{"end"')
    except OSError:
        return False


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Keep a spool to ourselves while it is sent; False where its writer lives, or another process
    sends it or has sent it.
    """
    file = _open_locked(path)
    if file is None:
        yield False
        return
    with file:
        yield path.exists()


def remove(path: Path) -> None:
    """Delete a spool that the server has, with what was remembered of it."""
    path.unlink(missing_ok=True)
    path.with_suffix(".sent").unlink(missing_ok=True)


def last_attempt(folder: Path, run: str) -> int:
    """The newest attempt of a run that was made from this folder; 0 before the first."""
    try:
        return int((folder / f"attempt-{run}").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def remember_attempt(folder: Path, run: str, attempt_number: int) -> None:
    """Remember an attempt of a run that was made from this folder."""
    if attempt_number > last_attempt(folder, run):
        write_whole(folder / f"attempt-{run}", str(attempt_number))


def write_whole(path: Path, text: str) -> None:
    """Replace a small file at once; only its owner can read it, because it may hold a token."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    with open(
        beside,
        "w",
        encoding="utf-8",
        opener=lambda name, flags: os.open(name, flags | os.O_EXCL, 0o600),
    ) as file:
        file.write(text)
    beside.replace(path)


def _open_locked(path: Path) -> BinaryIO | None:
    """The file, locked for as long as it is open; None where that can't be had."""
    try:
        # not to write: some file systems lock nothing that is open for reading only
        file = path.open("r+b")
    except OSError:  # another user's, or sent and removed meanwhile
        return None
    try:
        # there a second process sends the same steps too, which changes nothing
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
