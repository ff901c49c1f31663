"""What a training script logged, on disk until the server has it, and its way there: attach,
append, say how it ended.

What a training script logged, on disk until the server has it: one file an attempt, one line of
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from parity.canonical_json import picked
from parity.client.rest import WRONG_TOKEN, Client, ClientError, Document
from parity.frozen import frozen
from parity.judging.curves.curve import Curve

if sys.platform != "win32":
    import fcntl

SCHEMA = 1
SUFFIX, REFUSED = ".jsonl", ".refused"
# of a header, which the server makes a run of
_OF_A_PROJECT = ("project", "arm", "baseline", "seed", "recipe", "planned_steps")
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
            json.dumps(picked(self, "run", "attempt_number", "offset", "token", "left_out")),
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


# A spool on its way to the server: attach, append, say how it ended. Safe to break off and to
# repeat at any point.

LOSSES = ("loss", "lm_loss")
VALIDATION = "validation_loss"
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 2000, 64  # the server's own limit of columns
_TOO_LARGE = 413  # for the server, or for a proxy before it


class Delivery:
    """One spool and how far the server has it. A newer trainer is never fenced by what an older one
    left (`attach … after`).

    `run` is the run of a spool that was written without one.
    """

    def __init__(
        self, path: Path, client: Client, *, live: bool = False, run: str | None = None
    ) -> None:
        self.path = path
        self._run = run
        self._client = client
        self._live = live
        self._progress = Progress.load(path)
        self._header: dict[str, Any] | None = None
        self._most_rows = _ROWS_AT_ONCE
        self.unreadable = 0

    @property
    def sent_to(self) -> str | None:
        """The run that has the steps; None before the first attach."""
        if self._header is None or self._progress.attempt_number is None:
            return None
        return self.run

    @property
    def run(self) -> str:
        """The run that the steps belong to. Raises SpoolError for a spool that names none, before
        it attached.
        """
        run = self._run or self._read_header()["run"] or self._progress.run
        if run is None:
            raise SpoolError(
                f"{self.path}: was recorded without a run; name its run with --as-run RUN"
            )
        return str(run)

    @property
    def attempt_number(self) -> int | None:
        """The attempt that the server gave it; None before."""
        return self._progress.attempt_number

    @property
    def left_out(self) -> str:
        """What the server did not record of it, because it lies above the plan, as a sentence; ""
        for nothing.
        """
        return self._progress.left_out

    def attach(self) -> None:
        """Begin the attempt, if that was not done: also before the first step, so that a page shows
        the trainer.
        """
        if self._progress.attempt_number is None:
            self._make_run()
            attempt_number = self._attach(
                None if self._live else last_attempt(self.path.parent, self.run)
            )
            with suppress(OSError):
                remember_attempt(self.path.parent, self.run, attempt_number)

    def send_some(self) -> bool:
        """Send the next rows; False when nothing is left for now, or when the spool is at its end
        and gone.
        """
        part = read_part(self.path, self._progress.offset, self._most_rows)
        self.unreadable += part.unreadable
        if not part.rows and part.end is None:
            return False
        self.attach()
        run, attempt_number = self.run, self._progress.attempt_number
        assert attempt_number is not None  # noqa: S101
        try:
            for kind, names, table in batches(part.rows):
                answer = self._write(
                    partial(self._client.append, run, attempt_number, kind, names, table)
                )
                # which an earlier server does not return
                if answer.get("left_out_steps") and not self.left_out:
                    self._progress.left_out = f"run {run}: {answer['message']}"
        except ClientError as error:
            if error.status != _TOO_LARGE or len(part.rows) < 2:
                raise
            self._most_rows = len(part.rows) // 2
            return True
        if part.end is not None:
            self._write(
                partial(
                    self._client.finish,
                    run,
                    attempt_number,
                    part.end["end"],
                    part.end.get("message"),
                )
            )
            self._put_away()
            return False
        self._progress.offset = part.offset
        self._remember()
        return True

    def send_all(self) -> None:
        """Send all that the spool has by now."""
        while self.send_some():
            pass

    def send_rest(self) -> None:
        """Send all of a spool whose process is gone; one that ended without a word broke off."""
        self.send_all()
        if self.path.exists():
            if self._progress.attempt_number is not None:
                run, why = self.run, "the process ended without a word"
                try:
                    self._write(
                        partial(
                            self._client.finish,
                            run,
                            self._progress.attempt_number,
                            "broke_off",
                            why,
                        )
                    )
                except ClientError as error:
                    # a newer attempt has taken over, and nothing is left to say
                    if error.status != 409:
                        raise
            self._put_away()

    def set_aside(self, error: Exception) -> str:
        """Keep what the server will not take out of the way of the next process; the sentence that
        says so.
        """
        kept = self.path.with_suffix(REFUSED)
        self.path.rename(kept)
        return f"{error}. The steps that the server refused are kept in {kept}"

    def _put_away(self) -> None:
        """Delete what the server has; a log with steps above the plan is kept, as one that was
        refused.
        """
        if self.left_out:
            self.path.rename(self.path.with_suffix(REFUSED))
            self._progress.left_out += (
                f". The whole log is kept in {self.path.with_suffix(REFUSED)}"
            )
        remove(self.path)

    def _make_run(self) -> None:
        """Ask for the run of a project, by a name of the process: it is one run also where the
        answer is lost, and after a step back.
        """
        header = self._read_header()
        if header.get("project") and not self._run and not self._progress.run:
            facts = {name: header[name] for name in _OF_A_PROJECT if header.get(name) is not None}
            self._progress.run = self._client.run_of(facts, header.get("key") or self.path.stem)[
                "id"
            ]
            self._remember()

    def _attach(self, after: int | None) -> int:
        """Begin the attempt, or get it again with another token; its number."""
        header = self._read_header()
        # The spool's own name, so that it is one attempt also where the answer is lost, or this
        # process before it noted it.
        answer = self._client.attach(
            self.run, header["manifest"], header["recipe"], after, self.path.stem
        )
        self._progress.attempt_number, self._progress.token = answer["attempt"], answer.get("token")
        self._remember()
        return int(answer["attempt"])

    def _write(self, send: Callable[..., Document]) -> Document:
        """Send with the attempt's own token. If the server does not know it, get another one for
        the same attempt, and send again.
        """
        try:
            return send(token=self._progress.token)
        except ClientError as error:
            if error.status not in WRONG_TOKEN:
                raise
            # A token can be replaced by a repeated attach whose answer was lost. With `after`, a
            # newer trainer is never fenced.
            self._attach(self._progress.attempt_number)
            return send(token=self._progress.token)

    def _remember(self) -> None:
        # a full disk: after a crash the same would be sent again, which changes nothing
        with suppress(OSError):
            self._progress.save()

    def _read_header(self) -> dict[str, Any]:
        if self._header is None:
            self._header = read_header(self.path)
        return self._header


def batches(
    rows: Sequence[Mapping[str, float]],
) -> list[tuple[str, list[str], NDArray[np.float64]]]:
    """Rows as what the server takes: kind, names and a table (names, n), `step` first; NaN where a
    row lacks a column.
    """
    tables = []
    for part in _of_few_columns(
        [_judged(row) for row in rows if any(name in row for name in LOSSES)]
    ):
        names = ["step", *sorted({name for row in part for name in row} - {"step"})]
        tables.append(
            ("train", names, np.array([[row.get(name, np.nan) for row in part] for name in names]))
        )
    validated = [row for row in rows if VALIDATION in row]
    if validated:
        tables.append(
            (
                "validation",
                ["step", "loss"],
                np.array([[row[name] for row in validated] for name in ("step", VALIDATION)]),
            )
        )
    return tables


def _of_few_columns(rows: Sequence[Mapping[str, float]]) -> list[list[Mapping[str, float]]]:
    """The rows in turn, cut where their columns together would be more than one batch may have: a
    script may log others at each step.
    """
    parts: list[list[Mapping[str, float]]] = []
    names: set[str] = set()
    for row in rows:
        if not parts or len(names | row.keys() - {"step"}) > _COLUMNS_AT_ONCE:
            parts.append([])
            names = set()
        parts[-1].append(row)
        names |= row.keys() - {"step"}
    return parts


def _judged(row: Mapping[str, float]) -> dict[str, float]:
    """A row of training with its judged loss under the record's name: `loss` alone is that one,
    beside `lm_loss` it is the total.
    """
    values = {name: value for name, value in row.items() if name != VALIDATION}
    if "lm_loss" not in values:
        values["lm_loss"] = values.pop("loss")
    return values


# A finished run as curve, sent whole: recorded, counted again by the server, and ended.

_STEPS_AT_ONCE = 20_000


def send_run(
    client: Client,
    run_id: str,
    curve: Curve,
    context: Mapping[str, str],
    recipe: str | None,
    rounding: str | None = None,
) -> str | None:
    """Record a curve as a whole run and finish it. Returns what the server has otherwise than the
    file, or None where all is there.
    """
    attempt = client.attach(run_id, context, recipe, rounding=rounding)
    attempt_number, token = attempt["attempt"], attempt.get("token")
    covered, left_out = {}, 0
    for kind, names, table in _tables(curve):
        for start in range(0, table.shape[1], _STEPS_AT_ONCE):
            answer = client.append(
                run_id, attempt_number, kind, names, table[:, start : start + _STEPS_AT_ONCE], token
            )
            covered = answer["covered"]
            left_out += answer.get("left_out_steps", 0) if kind == "train" else 0
    expected = (curve.completeness.count, curve.completeness.first, curve.completeness.last)
    recorded = (covered["recorded"] + left_out, covered["first_step"], covered["last_step"])
    if recorded != expected and not (left_out and recorded[:2] == expected[:2]):
        return f"the server has {recorded} of count, first and last step, the file {expected}"
    client.finish(run_id, attempt_number, "finished", token=token)
    return None


def _tables(curve: Curve) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
    """Kind, names and rows (names, n) that the record takes; a total loss is recorded as `loss`,
    the judged loss as `lm_loss`.
    """
    rows = {"step": curve.steps.astype(np.float64), "lm_loss": curve.loss}
    rows |= {
        ("loss" if name == "total_loss" else name): values
        for name, values in curve.columns.items()
        if name != VALIDATION
    }
    yield "train", list(rows), np.stack(list(rows.values()))
    validated = curve.columns.get(VALIDATION)
    if validated is not None:
        there = ~np.isnan(validated)
        yield "validation", ["step", "loss"], np.stack([curve.steps[there], validated[there]])
