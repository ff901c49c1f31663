"""A spool on its way to the server: attach, append, say how it ended. Safe to break off and to repeat at any point."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.client import spool
from parity.client.rest import Client, ClientError, UnreachableError

LOSSES = ("loss", "lm_loss")
VALIDATION = "validation_loss"
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 2000, 64  # the server's own limit of columns
_TOO_LARGE = 413  # for the server, or for a proxy before it
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 60.0
# 401 and 403 too: a token that is wrong or has expired says nothing against what was logged, which another token can send.
WRONG_TOKEN = frozenset({401, 403})
_MAY_PASS = WRONG_TOKEN | frozenset({408, 425, 429, 500, 502, 503, 504})


class Delivery:
    """One spool and how far the server has it. A newer trainer is never fenced by what an older one left (`attach … after`)."""

    def __init__(self, path: Path, client: Client, *, live: bool = False) -> None:
        self.path = path
        self._client = client
        self._live = live
        self._progress = spool.Progress.of(path)
        self._header: dict[str, Any] | None = None
        self._most_rows = _ROWS_AT_ONCE
        self.unreadable = 0

    @property
    def epoch(self) -> int | None:
        """The attempt that the server gave it; None before."""
        return self._progress.epoch

    def attach(self) -> None:
        """Begin the attempt, if that was not done: also before the first step, so that a page shows the trainer."""
        if self._progress.epoch is None:
            header = self._described()
            after = None if self._live else spool.known_epoch(self.path.parent)
            # The spool's own name, so that it is one attempt also where the answer is lost, or this process before it noted it.
            answer = self._client.attach(header["run"], header["manifest"], header["recipe"], after, self.path.stem)
            self._progress.epoch = answer["epoch"]
            with suppress(OSError):
                spool.know_epoch(self.path.parent, answer["epoch"])
            self._remember()

    def send_some(self) -> bool:
        """Send the next rows; False when nothing is left for now, or when the spool is at its end and gone."""
        part = spool.read_part(self.path, self._progress.offset, self._most_rows)
        self.unreadable += part.unreadable
        if not part.rows and part.end is None:
            return False
        self.attach()
        run, epoch = self._described()["run"], self._progress.epoch
        assert epoch is not None  # noqa: S101 (attached above)
        try:
            for kind, names, table in batches(part.rows):
                self._client.append(run, epoch, kind, names, table)
        except ClientError as error:
            if error.status != _TOO_LARGE or len(part.rows) < 2:
                raise
            self._most_rows = len(part.rows) // 2
            return True
        if part.end is not None:
            self._client.finish(run, epoch, part.end["end"], part.end.get("message"))
            spool.remove(self.path)
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
            if self._progress.epoch is not None:
                try:
                    self._client.finish(self._described()["run"], self._progress.epoch, "broke_off", "the process ended without a word")
                except ClientError as error:
                    if error.status != 409:  # a newer attempt has taken over, and nothing is left to say
                        raise
            spool.remove(self.path)

    def set_aside(self, error: Exception) -> str:
        """Keep what the server will not take out of the way of the next process; the sentence that says so."""
        kept = self.path.with_suffix(spool.REFUSED)
        self.path.rename(kept)
        return f"{error}. What the server did not take is kept in {kept}"

    def _remember(self) -> None:
        with suppress(OSError):  # a full disk: after a crash the same would be sent again, which changes nothing
            self._progress.save()

    def _described(self) -> dict[str, Any]:
        if self._header is None:
            self._header = spool.header_of(self.path)
        return self._header


def may_pass(error: ClientError) -> bool:
    """Whether the same may be taken later. A refusal that is not in our server's words is of something before it, such as a proxy
    whose server is being restarted."""
    return not error.kind or error.status in _MAY_PASS


def patiently(what: Callable[[], Any], wait: Callable[[float], bool], put_off: Callable[[Exception], None]) -> bool:
    """Do something over the network until it works, with growing pauses; False when `wait` says to stop.

    `put_off` is told of each error that may pass.

    Raises ClientError where the server refuses for good, FileNotFoundError where the spool is gone.
    """
    pause = _FIRST_WAIT_SECONDS
    while True:
        try:
            what()
        except FileNotFoundError:
            raise
        except (UnreachableError, ClientError, OSError) as error:
            if isinstance(error, ClientError) and not may_pass(error):
                raise
            put_off(error)
            asked = getattr(error, "retry_after", None) or 0.0
            # Half to one and a half times, so that many trainers do not come back at the same moment.
            if wait(max(asked, pause * random.uniform(0.5, 1.5))):  # noqa: S311 (no secret hangs on it)
                return False
            pause = min(2 * pause, _LONGEST_WAIT_SECONDS)
        else:
            return True


def batches(rows: Sequence[Mapping[str, float]]) -> list[tuple[str, list[str], NDArray[np.float64]]]:
    """Rows as what the server takes: kind, names and a table (names, n), `step` first; NaN where a row lacks a column."""
    found = []
    for part in _of_few_columns([_judged(row) for row in rows if any(name in row for name in LOSSES)]):
        names = ["step", *sorted({name for row in part for name in row} - {"step"})]
        found.append(("train", names, np.array([[row.get(name, np.nan) for row in part] for name in names])))
    validated = [row for row in rows if VALIDATION in row]
    if validated:
        found.append(("validation", ["step", "loss"], np.array([[row[name] for row in validated] for name in ("step", VALIDATION)])))
    return found


def _of_few_columns(rows: Sequence[Mapping[str, float]]) -> list[list[Mapping[str, float]]]:
    """The rows in turn, cut where their columns together would be more than one batch may have: a script may log others at each step."""
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
    """A row of training with its judged loss under the record's name: `loss` alone is that one, beside `lm_loss` it is the total."""
    found = {name: value for name, value in row.items() if name != VALIDATION}
    if "lm_loss" not in found:
        found["lm_loss"] = found.pop("loss")
    return found
