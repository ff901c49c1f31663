"""What works behind `parity.Run`: one thread takes rows from memory to a spool on disk, another
takes the spool to the server.

Neither ever stops the training. Rows wait in memory while the disk is full, spools wait on disk
while the server is away.
"""

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parity.client import spool
from parity.client.delivery import Delivery
from parity.client.process_facts import describe_environment
from parity.client.rest import Client, ClientError
from parity.client.retry import WRONG_TOKEN, Pauses, may_be_accepted_later, retry
from parity.client.spool import Spool, SpoolError

# that wait for a disk which takes nothing; more are dropped, and the server tells the gap
_MOST_ROWS = 200_000
_ROWS_AT_ONCE = 10_000
_SPOOL_SECONDS = 0.02
_CLOSING_SECONDS = 5.0  # the longest pause between two tries once the run has ended
_DISK_SECONDS = 1.0
NO_NUMBERS = frozenset({"end", "message", "step"})
PAUSES = Pauses(first_seconds=0.5, longest_seconds=60.0, spread=0.5)
_WENT_BACK = {"end": "broke_off", "message": "training went back to an earlier step"}

Complain = Callable[[str, str], None]


class _StoppedError(Exception):
    """Nobody waits for the server any more."""


class Recorder:
    """Rows of one process on their way to the server.

    `complain(about, problem)` is called with what goes wrong; `problem` is the last that matters.
    `recover(about, news)` is called when that has ended.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        manifest: Mapping[str, str],
        *,
        token: str | None,
        flush_seconds: float,
        complain: Complain,
        recover: Complain,
    ) -> None:
        self.problem = ""
        self._complain, self._recover = complain, recover
        self._lost_at: float | None = None  # when the server first did not take what was sent
        self._about = about
        self._manifest = manifest
        self._token = token
        self._flush_seconds = flush_seconds
        self._rows: deque[dict[str, Any]] = deque()
        self._pending: list[dict[str, Any]] = []
        self._spool: Spool | None = None
        self._unsent: deque[Spool] = deque()  # ours, locked until the server has them
        self._closing, self._spooled, self._over = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self._refused = threading.Event()  # nobody will ever want what follows
        self._is_wrong_token = False
        # the server refused the token once more, at the end of the run
        self._locked_out = threading.Event()
        self._is_offline = about["run"] is None and not about.get("project")
        self.folder = self._writable(folder)
        work = (self._write_spool,) if self._is_offline else (self._write_spool, self._send)
        self._threads = [
            threading.Thread(target=task, name=task.__name__, daemon=True) for task in work
        ]
        for thread in self._threads:
            thread.start()

    def add(self, row: dict[str, Any]) -> None:
        """Take a row; its values may be arrays that are not computed yet."""
        if self._refused.is_set():
            return
        if len(self._rows) >= _MOST_ROWS:
            self._complain(
                "full", f"{_MOST_ROWS:,} rows are waiting for the disk; further rows are dropped"
            )
            return
        self._rows.append(row)

    def go_back(self) -> None:
        """What follows is a new attempt."""
        self._rows.append(_WENT_BACK)

    def end(self, outcome: str, message: str | None, seconds: float) -> bool:
        """Say how the run ended and wait, at most so long, until the server knows; whether it does.
        Without a run: until the disk does.

        A server that refuses the token is tried once more and then not waited for: what is logged
        is in the spool.
        """
        self._rows.append({"end": outcome, "message": message})
        deadline = time.monotonic() + seconds
        if self._lost_at is not None and not self._is_wrong_token:
            self._complain(
                "closing",
                "the run has ended, and the server is still away; it is tried again for up to "
                f"{seconds:.0f} s",
            )
        self._closing.set()
        if self._is_offline:
            if on_disk := self._spooled.wait(seconds):
                while self._unsent:
                    self._unsent.popleft().close()
            return on_disk
        while time.monotonic() < deadline and not self._over.wait(min(_SPOOL_SECONDS, seconds)):
            if self._locked_out.is_set() and self._spooled.is_set():
                break
        if not self._refused.is_set():
            self._spooled.wait(max(_SPOOL_SECONDS, deadline - time.monotonic()))
        # nothing is written or sent any more, so that `parity resend` may
        if self.problem and self._spooled.is_set():
            while self._unsent:
                self._unsent.popleft().close()
        return self._over.is_set() and not self.problem

    def wait_for_disk(self, seconds: float) -> None:
        """Wait, at most so long, until everything is in the spool."""
        deadline = time.monotonic() + seconds
        while (self._rows or self._pending) and time.monotonic() < deadline:
            time.sleep(_SPOOL_SECONDS)

    def is_own_thread(self) -> bool:
        """Whether the caller is one of the two threads."""
        return threading.current_thread() in self._threads

    def _write_spool(self) -> None:
        about = {**self._about, "manifest": {**self._environment(), **self._manifest}}
        while not self._spooled.is_set() and not self._refused.is_set():
            try:
                if self._spool is None:
                    self._spool = Spool(self.folder, about)
                    self._unsent.append(self._spool)
                while (self._rows or self._pending) and self._drain(self._spool):
                    pass
            except OSError as error:
                self._complain(
                    "disk",
                    f"{self.folder} cannot be written ({_os_words(error)}); rows stay in memory "
                    "until it can",
                )
                time.sleep(_DISK_SECONDS)
            except Exception as error:  # noqa: BLE001
                self._refused.set()
                self._give_up(f"recording broke off: {error!r}")
            time.sleep(_SPOOL_SECONDS)

    def _environment(self) -> dict[str, str]:
        try:
            return describe_environment()
        except Exception as error:  # noqa: BLE001
            self._complain("manifest", f"versions and revision are not recorded: {error!r}")
            return {}

    def _drain(self, to: Spool) -> bool:
        """Write some rows; False at the end of the attempt. What a full disk refuses is tried
        again.
        """
        while (
            self._rows
            and len(self._pending) < _ROWS_AT_ONCE
            and not (self._pending and "end" in self._pending[-1])
        ):
            self._pending.append(self._rows.popleft())
        to.write([line for row in self._pending if (line := self._line(row)) is not None])
        last = self._pending[-1]
        self._pending = []
        if "end" not in last:
            return True
        self._spool = None
        if last is not _WENT_BACK:
            self._spooled.set()
        return False

    def _line(self, row: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return {
                name: value if name in NO_NUMBERS else float(value) for name, value in row.items()
            }
        except Exception as error:  # noqa: BLE001
            self._complain("value", f"step {row.get('step')} is not recorded: {error}")
            return None

    def _send(self) -> None:
        """First what earlier processes left, then this one's spools in turn."""
        try:
            with Client(self._about["server"], self._token) as client:
                for path in spool.list_spools(self.folder):
                    with spool.lock(path) as is_left:
                        if is_left:
                            self._send_leftover(Delivery(path, client))
                while not self._over.is_set():
                    if self._unsent:
                        self._follow(Delivery(self._unsent[0].path, client, live=True))
                    elif self._spooled.is_set():
                        self._over.set()
                    else:
                        time.sleep(_SPOOL_SECONDS)
        except Exception as error:  # noqa: BLE001
            self._give_up(
                f"sending broke off: {error!r}; what was logged is kept: parity resend "
                f"{self.folder}"
            )

    def _send_leftover(self, left: Delivery) -> None:
        try:
            self._deliver(left, left.send_rest)
        except Exception as error:  # noqa: BLE001
            self._complain(
                str(left.path), f"{left.path}: it could not be sent and is kept: {error!r}"
            )
        if left.left_out:
            self._complain(f"plan of {left.path}", left.left_out)
        if left.without_layers:
            self._complain(f"layers of {left.path}", left.without_layers)
        if left.unreadable:
            self._complain(
                f"lines of {left.path}",
                f"{left.path}: {left.unreadable} lines could not be read and were left out",
            )

    def _follow(self, delivery: Delivery) -> None:
        """Send one of our spools while it is written, until its end."""
        going = self._deliver(delivery, delivery.attach)
        if delivery.begun:
            self._complain("project", delivery.begun)
        while going and delivery.path.exists():
            going = self._deliver(delivery, delivery.send_all)
            if delivery.left_out:
                self._complain("plan", delivery.left_out)
            if delivery.without_layers:
                self._complain("layers", delivery.without_layers)
            if delivery.path.exists():
                if self._closing.is_set():
                    time.sleep(_SPOOL_SECONDS)
                else:
                    self._closing.wait(self._flush_seconds)
        if going:
            self._unsent.popleft().close()
            self.problem = delivery.left_out or self.problem

    def _deliver(self, delivery: Delivery, send: Callable[[], None]) -> bool:
        """Repeat a step of the delivery until it works; False where the server refuses for good, or
        when nobody waits any more.
        """
        is_ours = any(delivery.path == unsent.path for unsent in self._unsent)
        try:
            retry(
                send,
                pauses=PAUSES,
                is_retryable=may_be_accepted_later,
                wait=self._wait,
                on_error=self._note_error,
            )
        except _StoppedError:
            return False
        except FileNotFoundError:
            if is_ours:
                raise
            return False  # another process has sent this leftover meanwhile
        except (ClientError, SpoolError) as error:
            refusal = delivery.set_aside(error)
            if is_ours:
                if delivery.attempt_number is not None or not self._about.get("project"):
                    # nobody will want what follows; a project's run can still be named with
                    # --as-run
                    self._refused.set()
                self._give_up(refusal)
            else:
                self._complain(str(delivery.path), refusal)
            return False
        if self._lost_at is not None:
            lost = time.monotonic() - self._lost_at
            self._lost_at = None
            self._recover(
                "network",
                f"the server takes steps again, after {lost:.0f} s; those that were saved locally "
                "are sent",
            )
        return True

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self._complain("send", problem)
        self._over.set()

    def _note_error(self, error: Exception) -> None:
        """Report why nothing was sent, and remember whether the token was the reason."""
        self._lost_at = self._lost_at or time.monotonic()
        self._complain("network", f"{error}; steps are saved locally and sent again")
        self._is_wrong_token = isinstance(error, ClientError) and error.status in WRONG_TOKEN
        if self._is_wrong_token and self._closing.is_set():
            self._locked_out.set()

    def _wait(self, seconds: float) -> None:
        """Wait before the next try, only briefly once the run has ended; raise _StoppedError when
        nothing is to be sent any more.
        """
        if self._closing.is_set():
            self._over.wait(min(seconds, _CLOSING_SECONDS))
        else:  # the end of the run is another reason to try
            self._closing.wait(seconds)
        if self._over.is_set():
            raise _StoppedError

    def _writable(self, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            instead = Path.home() / ".parity-spool" / folder.name
            self._complain(
                "folder",
                f"{folder} cannot be written ({_os_words(error)}); using {instead} instead",
            )
            return instead


def _os_words(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
