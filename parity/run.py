"""The logger for a training script of any framework: `with parity.Run(run="r019…") as run: run.log(step=…, loss=…)`.

It never blocks or breaks the training. `log` puts a row into memory; one thread writes rows to a spool on disk some milliseconds
later, another sends the spool to the server and tries again for as long as it takes. A script that is killed loses nothing that reached
the spool: the next Run of the same run, or `parity resend`, sends it. What goes wrong is logged once and not raised (`strict` raises).
"""

from __future__ import annotations

import atexit
import logging
import operator
import os
import re
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex

from parity import spool
from parity.client import DEFAULT_URL, Client, ClientError
from parity.delivery import LOSSES, VALIDATION, Delivery, RefusedError, patiently
from parity.spool import Spool, SpoolError
from parity.surroundings import surroundings

_log = logging.getLogger("parity")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")
_MOST_COLUMNS = 64
_MOST_ROWS = 200_000  # that wait for a disk which takes nothing; more are dropped, and the server tells the gap
_SPOOL_SECONDS = 0.02
_MESSAGE_CHARACTERS = 2000
_NEW_ATTEMPT: dict[str, Any] = {}


class RunError(Exception):
    """What a strict Run raises: a row that can't be logged, or steps that did not reach the server."""


class Run:
    """One attempt of one run of a job with engine external.

    Args:
        run: id of the run, as the job's page and `parity status JOB` show it; default PARITY_RUN. Without one nothing is recorded.
        server: address of the server; default PARITY_URL.
        token: bearer token of scope worker or submit; default PARITY_TOKEN.
        recipe: what is trained, checked against the arm's recipe.
        manifest: what else must agree between the arms, such as {"device_class": "h100", "data_digest": "…"}. Versions, the
            environment variables that decide bits and the git revision are recorded by themselves.
        folder: where spools are kept; default PARITY_SPOOL, else `parity-spool` in the working directory.
        strict: raise RunError instead of logging what goes wrong.
        flush_seconds: how often the server is told.
        finish_seconds: how long the end waits for the server.

    Make it in one process of a run (rank 0): a later one takes over, and the server refuses the earlier.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        server: str | None = None,
        token: str | None = None,
        recipe: str | None = None,
        manifest: Mapping[str, str] | None = None,
        folder: str | Path | None = None,
        strict: bool = False,
        flush_seconds: float = 1.0,
        finish_seconds: float = 60.0,
    ) -> None:
        self.run = run or os.environ.get("PARITY_RUN", "")
        self._server = server or os.environ.get("PARITY_URL", DEFAULT_URL)
        self._token = token or os.environ.get("PARITY_TOKEN")
        self._about = {"recipe": recipe, "manifest": dict(manifest or {})}
        self._strict = strict
        self._flush_seconds = flush_seconds
        self._finish_seconds = finish_seconds
        self._told: set[str] = set()
        self._rows: deque[dict[str, Any]] = deque()
        self._known: set[tuple[str, ...]] = set()
        self._last = {True: -1, False: -1}
        self._lock = threading.Lock()
        self._paths: deque[Path] = deque()
        self._spool: Spool | None = None
        self._spooled = threading.Event()
        self._closing = threading.Event()
        self._sent = threading.Event()
        self._problem = ""
        self._pid = os.getpid()
        if not re.fullmatch(r"r[0-9a-f-]{10,60}", self.run):
            self._complain("run", f"run is {self.run!r}, expected the id of a run (argument run, or PARITY_RUN); nothing is recorded")
            self.run = ""
            return
        self._folder = self._writable(Path(folder or os.environ.get("PARITY_SPOOL", "parity-spool")) / self.run)
        self._spooler = threading.Thread(target=self._spool_rows, name="parity-spool", daemon=True)
        self._sender = threading.Thread(target=self._send, name="parity-send", daemon=True)
        self._spooler.start()
        self._sender.start()
        atexit.register(self._at_exit)

    def log(self, step: SupportsIndex, **values: SupportsFloat | None) -> None:
        """Log one step of training, or its validation; takes some microseconds, and never waits.

        Args:
            step: number of the optimizer step; one call a step. A smaller one than before begins a new attempt there: training went
                back to a checkpoint.
            values: `loss` in nats a token (the judged one; with `lm_loss` beside it, that is), any others such as `grad_norm`, `tokens`,
                `step_seconds`, `learning_rate`; `validation_loss` also by itself. Numbers of Python, numpy, jax or torch.

        A jax array is read in the background. Any other array is read here, because it could change: one on a GPU makes this wait
        for the GPU.
        """
        if not self.run or self._pid != os.getpid():
            return
        try:
            row = self._row(operator.index(step), values)
        except (TypeError, ValueError, RunError) as error:
            self._complain("log", f"step {step!r:.40} is not recorded: {error}")
            return
        if len(self._rows) >= _MOST_ROWS:
            self._complain("full", f"{_MOST_ROWS:,} rows wait for the disk, further ones are dropped")
            return
        self._rows.append(row)

    def finish(self, outcome: Literal["finished", "failed", "broke_off"] = "finished", message: str | None = None) -> None:
        """End the run and wait until the server has everything, for at most `finish_seconds`.

        `failed` ends the run without a curve for the judge; `broke_off` leaves it to the next Run.
        """
        if not self.run or self._pid != os.getpid() or self._closing.is_set():
            return
        self._rows.append({"end": outcome, "message": message and message[:_MESSAGE_CHARACTERS]})
        self._closing.set()
        self._sent.wait(self._finish_seconds)
        atexit.unregister(self._at_exit)
        if not self._sent.is_set():
            self._problem = f"the server has not everything yet; it is kept: parity resend {self._folder}"
        if self._problem:
            self._complain("finish", self._problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            strict, self._strict = self._strict, False  # the script's own error must be the one that is seen
            self.finish("broke_off", f"{kind.__name__}: {error}")
            self._strict = strict

    def _row(self, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {name: _number(value) for name, value in values.items() if value is not None}
        names = tuple(row)
        if names not in self._known:
            _check_names(names)
            self._known.add(names)
        trained = any(name in row for name in LOSSES)
        if not trained and names != (VALIDATION,):
            raise RunError(f"it has {', '.join(names) or 'nothing'}, expected loss (or lm_loss) among the values, or {VALIDATION} alone")
        if not 0 <= step <= 2**53:
            raise RunError(f"expected a step from 0 to {2**53}")
        with self._lock:
            if step == self._last[trained]:
                raise RunError("it was logged before; log all values of a step in one call")
            if step < self._last[trained]:
                self._last = {True: -1, False: -1}
                self._rows.append(_NEW_ATTEMPT)
            self._last[trained] = step
        row["step"] = step
        return row

    def _spool_rows(self) -> None:
        """The spooling thread: from memory to disk, at once."""
        self._about["manifest"] = {**surroundings(), **self._about["manifest"]}
        while not self._spooled.is_set():
            try:
                if self._spool is None:
                    self._spool = Spool(self._folder, {"run": self.run, "server": self._server, **self._about})
                    self._paths.append(self._spool.path)
                self._drain()
            except OSError as error:
                self._complain("disk", f"{self._folder} takes nothing ({error}); rows are kept in memory and written when it does")
                time.sleep(1.0)
            time.sleep(_SPOOL_SECONDS)

    def _drain(self) -> None:
        """Write what is in memory; what a full disk refuses stays in memory."""
        with self._lock:
            waiting = [self._rows[position] for position in range(len(self._rows))]
        lines, taken = [], 0
        for row in waiting:
            taken += 1
            if row is _NEW_ATTEMPT:
                break
            try:
                lines.append({name: value if name in ("end", "message", "step") else float(value) for name, value in row.items()})
            except Exception as error:  # noqa: BLE001 (whatever an array of another framework raises)
                self._complain("value", f"step {row.get('step')} is not recorded: {error}")
        assert self._spool is not None  # noqa: S101 (made before)
        if lines:
            self._spool.write(lines)
        for _ in range(taken):
            self._rows.popleft()
        if taken and waiting[taken - 1] is _NEW_ATTEMPT:
            self._spool.close()
            self._spool = None
        elif taken and "end" in waiting[taken - 1]:
            self._spooled.set()

    def _send(self) -> None:
        """The sending thread: first what earlier processes left, then this one's spools in turn."""
        try:
            with Client(self._server, self._token) as client:
                for path in spool.leftovers(self._folder):
                    self._deliver(Delivery(path, client), "send_rest")
                while not self._sent.is_set():
                    if self._paths:
                        self._follow(Delivery(self._paths[0], client, live=True))
                    else:
                        time.sleep(_SPOOL_SECONDS)
        except Exception as error:  # noqa: BLE001 (a bug of ours must not be silent, nor reach the training)
            self._problem = f"sending broke off: {error!r}; what was logged is kept: parity resend {self._folder}"
            self._complain("send", self._problem)
            self._sent.set()

    def _follow(self, delivery: Delivery) -> None:
        """Send a spool while it is written, until its end, or until a newer spool of ours follows it."""
        if not self._deliver(delivery, "attach"):
            return
        while True:
            closed = len(self._paths) > 1
            if not self._deliver(delivery, "send_some"):
                return
            if not delivery.path.exists():
                self._sent.set()
                return
            if closed:
                self._deliver(delivery, "send_rest")
                self._paths.popleft()
                return
            self._closing.wait(self._flush_seconds) if not self._closing.is_set() else time.sleep(_SPOOL_SECONDS)

    def _deliver(self, delivery: Delivery, what: Literal["attach", "send_some", "send_rest"]) -> bool:
        """Do it until it works; False where the server refuses for good, or when nobody waits any more."""
        steps: Any = getattr(delivery, what)

        def everything() -> None:
            while steps() and what == "send_some":
                pass

        try:
            return patiently(everything, self._pause, lambda problem: self._complain("network", problem))
        except (ClientError, SpoolError) as error:
            refusal = delivery.set_aside(error) if isinstance(error, ClientError) else RefusedError(str(error))
            self._complain(str(delivery.path), str(refusal))
            if delivery.path in self._paths:
                self._problem = str(refusal)
                self._sent.set()
            return False

    def _pause(self, seconds: float) -> bool:
        self._sent.wait(seconds)
        return self._sent.is_set()

    def _at_exit(self) -> None:
        """The script ends without a word: at least the spool has everything."""
        deadline = time.monotonic() + 2.0
        while self._rows and self._pid == os.getpid() and time.monotonic() < deadline:
            time.sleep(_SPOOL_SECONDS)

    def _writable(self, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            instead = Path(tempfile.gettempdir()) / "parity-spool" / self.run
            self._complain("folder", f"{folder} can't be written ({error}); {instead} is used")
            return instead

    def _complain(self, about: str, problem: str) -> None:
        """Say it once; a strict Run raises it, in the caller's own thread."""
        if self._strict and threading.current_thread() not in (getattr(self, "_spooler", None), getattr(self, "_sender", None)):
            raise RunError(problem)
        if about not in self._told:
            self._told.add(about)
            _log.warning("%s", problem)


def _number(value: Any) -> Any:
    """A float, or a jax array as it is: that can't change, and reading it now would wait for the device."""
    if type(value) is float:
        return value
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r:.40} is no number")
    return value if hasattr(value, "block_until_ready") else float(value)


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or name in ("end", "message"):
            raise RunError(f"value {name!r:.80}: expected letters, digits and _ . / - in a name, at most 64")
    if len(names) > _MOST_COLUMNS:
        raise RunError(f"{len(names)} values, expected at most {_MOST_COLUMNS}")
