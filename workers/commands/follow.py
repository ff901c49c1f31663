"""Follows what a trainer reports: one file that grows, or the newest one of a folder, read by the
readers that `parity compare` has.

The file belongs to code that nobody has reviewed. It is opened below the output folder by
descriptors, through no link, and has to be a regular file; lines and their total are bounded; and
what has been recorded stays: a log that goes back, or says another loss at a recorded step, is
refused. A torn line at its end waits for its rest. A file that is renamed or cut short and begun
again (rotation) is read to its end first, and then the new one from its begin.
"""

import codecs
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import numpy as np

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import FloatArray
from parity.readers.columns.micro_steps import of_updates
from parity.readers.columns.names import EPOCH, LOSS, MICRO_STEP, STEP, VALIDATION
from parity.readers.curve.plausibility import outlived_by_nan
from parity.readers.errors import ReadError
from parity.readers.files.growing import Growing
from parity.readers.formats import growing_reader
from parity.readers.logs.pattern import PATTERN

_PIECE = 1 << 20  # bytes read at once
_MOST_AT_ONCE = (
    4 * _PIECE
)  # of one poll, so that a report that grows fast does not keep others waiting
_MOST_BYTES = 4 * 2**30  # of all that one attempt reports
_MOST_POLLS = 2 * _MOST_BYTES // _MOST_AT_ONCE
_LONGEST_LINE = 1 << 20
_DEPTH = 2  # folders that a report may be in
_END_BYTES = 256  # before the place that was read up to: other bytes there are another file
_UNDECIDED = 1 << 20  # characters, within which a step and a loss are expected
_DIGITS_DIFFER = 1e-12
Rows = Mapping[str, FloatArray]


class LogRefusedError(Exception):
    """A report that cannot be followed; `code` is the run's."""

    code = "LOG_REFUSED"


@frozen(eq=False)
class Report:
    """New rows: `steps` (n,) ascending and the columns of the record, each (n,); `validation` has
    the held-out losses among them.
    """

    steps: FloatArray
    columns: Rows
    validation: Rows


class ReportFollower:
    """Reads one report below an open folder. `poll` gives what is new, `finish` all that is left
    once nobody writes any more.
    """

    def __init__(
        self, folder: int, path: str, pattern: str = "", most_steps: int | None = None
    ) -> None:
        self._folder, self._path, self._most_steps = folder, path, most_steps
        self._patterns = {PATTERN: pattern} if pattern else {}
        self._file: int | None = None
        self._name: tuple[int, int, str] | None = None
        self._offset = self._total = 0
        self._begin()
        self._steps: FloatArray = np.empty(0)
        self._losses: FloatArray = np.empty(0)
        self.left_out: int | None = None
        """The first step that was left out because it lies above `most_steps`."""
        self.bytes_seen = 0
        """Grows whenever the trainer wrote something."""
        self.is_behind = False
        """Whether the last poll left something to be read."""

    def poll(self) -> Report | None:
        """The rows that are new since the last call, of a few MiB at the most; None if there are
        none. Raises LogRefusedError.
        """
        while True:
            self._open()
            grown = self._read()
            report = self._new_rows() if grown else None
            if self.is_behind or not self._is_replaced():
                return report
            self._close()
            if report is not None or not grown:
                self.is_behind = True  # in the file that stands there now
                return report

    def finish(self) -> Iterator[Report]:
        """The rest, once nobody writes any more: a last line counts without its end, unless it may
        be cut. Raises LogRefusedError.
        """
        for _ in range(_MOST_POLLS):  # somebody might still write
            if (report := self.poll()) is not None:
                yield report
            elif not self.is_behind:
                break
        if self._reader is None:
            self._feed("\n")
        if (report := self._new_rows(is_whole=True)) is not None:
            yield report

    @property
    def last_step(self) -> int | None:
        """The last step that was reported."""
        if not len(self._steps):
            return None
        return int(self._steps[-1])

    def reaches(self, planned: int) -> bool:
        """Whether the next step that would be reported lies behind the plan: a log of every n-th
        step ends before it.
        """
        stride = float(np.median(np.diff(self._steps))) if len(self._steps) > 1 else 1.0
        return len(self._steps) > 0 and bool(self._steps[-1] + stride >= planned)

    @property
    def has_diverged(self) -> bool:
        """Whether the last reported loss is not finite."""
        return len(self._losses) > 0 and not np.isfinite(self._losses[-1])

    def problem(self) -> str:
        """Why no loss was found, for a trainer that has ended."""
        if self._total == 0:
            return f"it wrote nothing to {self._path}"
        return self._unread or f"{self._path} has no line with a step and a loss"

    def close(self) -> None:
        """Let go of the file."""
        self._close()

    def _begin(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._reader: Growing | None = None
        self._text, self._line, self._unread = "", 0, ""
        self._end = b""

    def _open(self) -> None:
        if self._file is not None:
            return
        found = self._newest()
        if found is None:
            return
        self._file, facts, name = found
        self._name, self._offset = (facts.st_dev, facts.st_ino, name), 0
        self._begin()

    def _newest(self) -> tuple[int, os.stat_result, str] | None:
        """The report, open, with its facts; the newest file of the folder if it is one."""
        opened, name = open_below(self._folder, self._path), ""
        # The spool of `parity.Run` has a folder for each run in it.
        for _ in range(_DEPTH):
            if opened is None or not stat.S_ISDIR(os.fstat(opened).st_mode):
                break
            with os.scandir(opened) as entries:
                there = sorted(
                    entry.name
                    for entry in entries
                    if entry.name.endswith(".jsonl") or entry.is_dir(follow_symlinks=False)
                )
            files = [name for name in there if name.endswith(".jsonl")]
            name = (files or there or [""])[-1]
            inside = open_below(opened, name) if name else None
            os.close(opened)
            opened = inside
        if opened is not None and stat.S_ISDIR(os.fstat(opened).st_mode):
            os.close(opened)
            opened = None
        if opened is None:
            return None
        return opened, os.fstat(opened), name

    def _is_replaced(self) -> bool:
        """Whether another file stands where ours stood, or ours was cut short."""
        if self._file is None:
            return False
        if self._is_rewritten():
            return True
        found = self._newest()
        if found is None:
            return False
        opened, facts, name = found
        os.close(opened)
        return (facts.st_dev, facts.st_ino, name) != self._name

    def _is_rewritten(self) -> bool:
        """Whether our file was cut short, or written anew in place."""
        return (
            self._file is not None
            and os.pread(self._file, len(self._end), self._offset - len(self._end)) != self._end
        )

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> bool:
        """Read what the file has, up to a bound; whether there was anything."""
        read, self.is_behind = 0, False
        if self._is_rewritten():
            return False
        while self._file is not None and (piece := os.pread(self._file, _PIECE, self._offset)):
            self._offset += len(piece)
            self._end = (self._end + piece)[-_END_BYTES:]
            self._total += len(piece)
            self.bytes_seen += len(piece)
            read += len(piece)
            if self._total > _MOST_BYTES:
                raise LogRefusedError(
                    f"{self._path} has more than {_MOST_BYTES:,} bytes, expected the losses of one "
                    "run; log less often"
                )
            self._feed(self._decode(piece))
            if read >= _MOST_AT_ONCE:
                self.is_behind = True
                break
        return read > 0

    def _feed(self, text: str) -> None:
        end = max(text.rfind("\n"), text.rfind("\r"))
        self._line = self._line + len(text) if end < 0 else len(text) - end - 1
        if self._line > _LONGEST_LINE:
            raise LogRefusedError(
                f"{self._path} has a line of more than {_LONGEST_LINE:,} characters, expected a "
                "line a step"
            )
        if self._reader is None:
            self._text += text
            if self._text.strip() and end >= 0:
                self._choose()
            return
        try:
            self._reader.feed(text)
        except ReadError as error:
            raise LogRefusedError(str(error)) from None

    def _choose(self) -> None:
        """Find what reads the lines so far: a preamble hides what they are, and with more of them
        it may show.
        """
        for whole in (False, True):
            reader = growing_reader(self._text, self._path, self._patterns, whole=whole)
            try:
                reader.feed(self._text)
                reader.columns()
            except ReadError as error:
                self._unread = str(error)
            else:
                self._reader, self._text = reader, ""
                return
        if len(self._text) > _UNDECIDED:
            raise LogRefusedError(self._unread)

    def _new_rows(self, *, is_whole: bool = False) -> Report | None:
        """The rows behind the last recorded step. Raises LogRefusedError where recorded ones are
        told otherwise.

        A loss that is not written may still come until the report is whole, and counts as NaN only
        then, behind all others.
        """
        if self._reader is None:
            return None
        try:
            columns_read = self._reader.whole() if is_whole else self._reader.columns()
        except ReadError as error:
            raise LogRefusedError(str(error)) from None
        is_of_batches = MICRO_STEP in columns_read.values
        columns_read = of_updates(columns_read)
        values = columns_read.values
        steps, losses = (np.asarray(values[name], np.float64) for name in (STEP, LOSS))
        whole = (
            ~outlived_by_nan(steps, losses)
            & np.isfinite(steps)
            & (steps >= 0)
            & (steps == np.floor(steps))
        )
        if self._most_steps is not None and (above := whole & (steps > self._most_steps)).any():
            self.left_out, whole = int(steps[above].min()), whole & ~above
        if is_of_batches and not is_whole and len(steps):
            whole &= steps != steps[-1]  # whose further batches may come
        last = self._steps[-1] if len(self._steps) else -1.0
        if columns_read.absent is not None:
            whole &= ~columns_read.absent | (is_whole & (steps > last))
        self._check_recorded(steps[whole & (steps <= last)], losses[whole & (steps <= last)])
        new = np.flatnonzero(whole & (steps > last))
        if not len(new):
            return None
        ordered = steps[new]
        if (np.diff(ordered) < 0).any():
            at = int(np.flatnonzero(np.diff(ordered) < 0)[0])
            raise LogRefusedError(_went_back(self._path, int(ordered[at]), int(ordered[at + 1])))
        # the last line of a step counts, unless an earlier one is not finite, as for `compare`
        once = np.append(ordered[1:] != ordered[:-1], True)
        new, ordered = new[once], ordered[once]
        self._steps, self._losses = (
            np.append(self._steps, ordered),
            np.append(self._losses, losses[new]),
        )
        others = {
            name: np.asarray(column, np.float64)[new]
            for name, column in values.items()
            if name not in (STEP, LOSS, VALIDATION, EPOCH)
        }
        columns = {
            JUDGED_LOSS: losses[new],
            **{name: column for name, column in others.items() if np.isfinite(column).any()},
        }
        held_out = np.asarray(values.get(VALIDATION, np.full(len(steps), np.nan)), np.float64)[new]
        is_there = np.isfinite(held_out)
        return Report(
            steps=ordered,
            columns=columns,
            validation={"step": ordered[is_there], "loss": held_out[is_there]},
        )

    def _check_recorded(self, steps: FloatArray, losses: FloatArray) -> None:
        """Refuse a recorded step that is told again with another loss, and one that comes late."""
        at = np.searchsorted(self._steps, steps)
        recorded = at < len(self._steps)
        if len(self._steps):
            late = ~recorded | (self._steps[np.minimum(at, max(len(self._steps) - 1, 0))] != steps)
        else:
            late = np.ones(len(steps), bool)
        if late.any():
            raise LogRefusedError(_went_back(self._path, int(self._steps[-1]), int(steps[late][0])))
        before, now = self._losses[at], losses
        with np.errstate(invalid="ignore"):
            same = (
                (before == now)
                | (np.isnan(before) & np.isnan(now))
                | (np.abs(before - now) <= _DIGITS_DIFFER * np.abs(before))
            )
        if not same.all():
            step = int(steps[~same][0])
            raise LogRefusedError(_went_back(self._path, int(self._steps[-1]), step))


def _went_back(path: str, last: int, step: int) -> str:
    return (
        f"{path} went back from step {last:,} to step {step:,}; expected steps that rise. A "
        "trainer that starts again has to end first: "
        "the next attempt goes on from what it kept in {checkpoints}"
    )


def open_below(folder: int, path: str) -> int | None:
    """Open a regular file or a folder below an open folder, through no link; None where it is not
    there yet.

    Raises LogRefusedError for a link, a pipe, a device or a socket: reading one may never end, or
    may show another file.
    """
    parts = PurePosixPath(path).parts
    current = os.dup(folder)
    try:
        for number, part in enumerate(parts, 1):
            flags = (
                os.O_RDONLY
                | os.O_NOFOLLOW
                | os.O_NONBLOCK
                | os.O_CLOEXEC
                | (os.O_DIRECTORY if number < len(parts) else 0)
            )
            try:
                following = os.open(part, flags, dir_fd=current)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                    raise LogRefusedError(
                        f"{path} is a link or no file, expected a regular file of the trainer's own"
                    ) from None
                raise
            os.close(current)
            current = following
        mode = os.fstat(current).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise LogRefusedError(f"{path} is a pipe or a device, expected a regular file")
        found, current = current, -1
        return found
    finally:
        if current >= 0:
            os.close(current)
