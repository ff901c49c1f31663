"""A spool on its way to the server: attach, append, say how it ended. Safe to break off and to
repeat at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.client.layer_tables import pieces
from parity.client.rest import Client, ClientError, Document
from parity.client.retry import WRONG_TOKEN, may_be_accepted_later
from parity.client.spool import (
    PROJECT_FACTS,
    REFUSED,
    Progress,
    SpoolError,
    last_attempt,
    read_header,
    read_part,
    remember_attempt,
    remove,
)
from parity.judged_loss import JUDGED_LOSS

LOSSES = ("loss", JUDGED_LOSS)
VALIDATION = "validation_loss"
LAYERS = "layers"
"""In the header of a spool: where the run's statistics by layer are."""
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 2000, 64  # the server's own limit of columns
_TOO_LARGE = 413  # for the server, or for a proxy before it


class Delivery:
    """One spool and how far the server has it. A newer trainer is never fenced by what an older one
    left (`attach … after`).

    `run` is the run of a spool that was written without one, `baseline` that of a project whose
    trainer named none.
    """

    def __init__(
        self,
        path: Path,
        client: Client,
        *,
        live: bool = False,
        run: str | None = None,
        baseline: str | None = None,
    ) -> None:
        self.path = path
        self._run = run
        self._baseline = baseline
        self._client = client
        self._live = live
        self._progress = Progress.load(path)
        self._header: dict[str, Any] | None = None
        self._most_rows = _ROWS_AT_ONCE
        self.unreadable = 0
        self.begun = ""
        """That the run began another job of an ended project, as a sentence; else ""."""
        self.without_layers = ""
        """Why the statistics by layer were not sent, as a sentence; else ""."""

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
            self._send_layers(run, attempt_number)
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

    def _send_layers(self, run: str, attempt_number: int) -> None:
        """Send the statistics by layer, if the run has some. They decide no verdict, so nothing
        that is wrong with them keeps the run from its end.
        """
        path = self._read_header().get(LAYERS)
        if path is None:
            return
        # read only by a run that names them: the readers take a while to load
        from parity.readers.errors import ReadError  # noqa: PLC0415
        from parity.readers.secondary.layer_snr import read_layer_table  # noqa: PLC0415

        try:
            for piece in pieces(read_layer_table(path)):
                self._write(partial(self._client.append_layers, run, attempt_number, piece))
        except ReadError as error:
            self.without_layers = f"{error}; run {run} ends without statistics by layer"
        except ClientError as error:
            if may_be_accepted_later(error):
                raise
            self.without_layers = f"{path}: {error}; run {run} ends without them"

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
        refused = self.path.with_suffix(REFUSED)
        self.path.rename(refused)
        return f"{error}. The steps that the server refused are kept in {refused}"

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
            facts = {name: header[name] for name in PROJECT_FACTS if header.get(name) is not None}
            if self._baseline is not None:
                facts["baseline"] = self._baseline
            answer = self._client.run_of(facts, header.get("key") or self.path.stem)
            self._progress.run = answer["id"]
            self._remember()
            if answer.get("after"):  # which an earlier server does not return
                self.begun = (
                    f"project {header['project']} has ended (job {answer['after']}): run "
                    f"{answer['id']} begins job {answer['job']}, whose baseline is "
                    f"{answer['baseline']}"
                )

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
    for part in _cut_by_columns(
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


def _cut_by_columns(rows: Sequence[Mapping[str, float]]) -> list[list[Mapping[str, float]]]:
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
    if JUDGED_LOSS not in values:
        values[JUDGED_LOSS] = values.pop("loss")
    return values
