"""A spool on its way to the server: attach, append, say how it ended. Safe to break off and to repeat at any point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.client import spool
from parity.client.rest import Client, ClientError
from parity.client.retry import WRONG_TOKEN

LOSSES = ("loss", "lm_loss")
VALIDATION = "validation_loss"
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 2000, 64  # the server's own limit of columns
_TOO_LARGE = 413  # for the server, or for a proxy before it


class Delivery:
    """One spool and how far the server has it. A newer trainer is never fenced by what an older one left (`attach … after`).

    `run` is the run of a spool that was written without one.
    """

    def __init__(self, path: Path, client: Client, *, live: bool = False, run: str | None = None) -> None:
        self.path = path
        self._run = run
        self._client = client
        self._live = live
        self._progress = spool.Progress.load(path)
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
            epoch = self._attach(None if self._live else spool.last_epoch(self.path.parent))
            with suppress(OSError):
                spool.remember_epoch(self.path.parent, epoch)

    def send_some(self) -> bool:
        """Send the next rows; False when nothing is left for now, or when the spool is at its end and gone."""
        part = spool.read_part(self.path, self._progress.offset, self._most_rows)
        self.unreadable += part.unreadable
        if not part.rows and part.end is None:
            return False
        self.attach()
        run, epoch = self._read_header()["run"], self._progress.epoch
        assert epoch is not None  # noqa: S101 (attached above)
        try:
            for kind, names, table in batches(part.rows):
                self._write(partial(self._client.append, run, epoch, kind, names, table))
        except ClientError as error:
            if error.status != _TOO_LARGE or len(part.rows) < 2:
                raise
            self._most_rows = len(part.rows) // 2
            return True
        if part.end is not None:
            self._write(partial(self._client.finish, run, epoch, part.end["end"], part.end.get("message")))
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
                run, why = self._read_header()["run"], "the process ended without a word"
                try:
                    self._write(partial(self._client.finish, run, self._progress.epoch, "broke_off", why))
                except ClientError as error:
                    if error.status != 409:  # a newer attempt has taken over, and nothing is left to say
                        raise
            spool.remove(self.path)

    def set_aside(self, error: Exception) -> str:
        """Keep what the server will not take out of the way of the next process; the sentence that says so."""
        kept = self.path.with_suffix(spool.REFUSED)
        self.path.rename(kept)
        return f"{error}. The steps that the server refused are kept in {kept}"

    def _attach(self, after: int | None) -> int:
        """Begin the attempt, or get it again with another token; its epoch."""
        header = self._read_header()
        # The spool's own name, so that it is one attempt also where the answer is lost, or this process before it noted it.
        answer = self._client.attach(header["run"], header["manifest"], header["recipe"], after, self.path.stem)
        self._progress.epoch, self._progress.token = answer["epoch"], answer.get("token")
        self._remember()
        return int(answer["epoch"])

    def _write(self, send: Callable[..., object]) -> None:
        """Send with the attempt's own token. If the server does not know it, get another one for the same attempt, and send again."""
        try:
            send(token=self._progress.token)
        except ClientError as error:
            if error.status not in WRONG_TOKEN:
                raise
            # A token can be replaced by a repeated attach whose answer was lost. With `after`, a newer trainer is never fenced.
            self._attach(self._progress.epoch)
            send(token=self._progress.token)

    def _remember(self) -> None:
        with suppress(OSError):  # a full disk: after a crash the same would be sent again, which changes nothing
            self._progress.save()

    def _read_header(self) -> dict[str, Any]:
        if self._header is None:
            header = spool.read_header(self.path)
            self._header = header | {"run": header["run"] or self._run}
        return self._header


def batches(rows: Sequence[Mapping[str, float]]) -> list[tuple[str, list[str], NDArray[np.float64]]]:
    """Rows as what the server takes: kind, names and a table (names, n), `step` first; NaN where a row lacks a column."""
    tables = []
    for part in _of_few_columns([_judged(row) for row in rows if any(name in row for name in LOSSES)]):
        names = ["step", *sorted({name for row in part for name in row} - {"step"})]
        tables.append(("train", names, np.array([[row.get(name, np.nan) for row in part] for name in names])))
    validated = [row for row in rows if VALIDATION in row]
    if validated:
        tables.append(("validation", ["step", "loss"], np.array([[row[name] for row in validated] for name in ("step", VALIDATION)])))
    return tables


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
    values = {name: value for name, value in row.items() if name != VALIDATION}
    if "lm_loss" not in values:
        values["lm_loss"] = values.pop("loss")
    return values
