"""The logger for a training script of any framework: `with parity.Run(run="r019…") as run: run.log(step=…, loss=…)`.

It never blocks or breaks the training. `log` puts a row into memory; some milliseconds later it is in a spool on disk, and from there it
goes to the server, again and again for as long as it takes. A script that is killed loses nothing that reached the spool: the next Run of
the same run, or `parity resend`, sends it. What goes wrong is logged once and not raised (`strict` raises).
"""

from __future__ import annotations

import atexit
import logging
import operator
import os
import re
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex

from parity.client.address import DEFAULT_URL
from parity.client.delivery import LOSSES, VALIDATION
from parity.client.recorder import Recorder
from parity.recipes import RecipeError, check_recipe

_log = logging.getLogger("parity")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")
_OFFLINE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RESERVED = frozenset({"end", "message", "step"})
_MOST_COLUMNS = 64
_MESSAGE_CHARACTERS = 2000
_DISK_SECONDS = 2.0


class RunError(Exception):
    """What a strict Run raises: a row that can't be logged, or steps that did not reach the server."""


class Run:
    """One attempt of one run of a job with engine external.

    Args:
        run: id of the run, as the job's page and `parity status JOB` show it; default PARITY_RUN. Without one nothing is recorded,
            unless `offline` names a folder.
        server: address of the server; default PARITY_URL.
        token: bearer token of the job's owner, of scope submit or worker; default PARITY_TOKEN. With it the Run gets a token of its own,
            which may write this run only and is kept next to the spool until everything is sent.
        recipe: what is trained, checked against the arm's recipe.
        manifest: what else must agree between the arms, such as {"device_class": "h100", "data_digest": "…"}. Versions, the
            environment variables that decide bits and the git revision are recorded by themselves.
        folder: where spools are kept; default PARITY_SPOOL, else `parity-spool` in the working directory.
        strict: raise RunError instead of logging what goes wrong.
        flush_seconds: how often steps are sent to the server.
        finish_seconds: how long the end waits for the server.
        offline: where steps are kept if no run is named: the folder `unnamed-NAME` below `folder`, one for each run. A restart with
            the same name continues it; `parity resend FOLDER --as-run RUN` sends it.

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
        offline: str | None = None,
    ) -> None:
        self.run = str(run or os.environ.get("PARITY_RUN", ""))
        self._strict = strict
        self._finish_seconds = finish_seconds
        self._complaints: set[str] = set()
        self._trains: dict[tuple[str, ...], bool] = {}
        self._last_step = -1
        self._validated: set[int] = set()
        self._recorder: Recorder | None = None
        is_offline = not self.run and offline is not None
        if is_offline and not _OFFLINE.fullmatch(str(offline)):
            self._complain("run", f"offline is {offline!r:.80}; expected letters, digits and _ . -, at most 64; nothing is recorded")
            return
        if not is_offline and not re.fullmatch(r"r[0-9a-f-]{10,60}", self.run):
            self._complain("run", f"run is {self.run!r}; expected the id of a run (argument `run`, or PARITY_RUN); nothing is recorded")
            return
        try:
            check_recipe(recipe)
        except RecipeError as error:
            self._complain("run", f"{error}; nothing is recorded")
            return
        where = Path(folder or os.environ.get("PARITY_SPOOL", "parity-spool")) / (f"unnamed-{offline}" if is_offline else self.run)
        about = {"run": self.run or None, "server": server or os.environ.get("PARITY_URL", DEFAULT_URL), "recipe": recipe}
        try:
            self._recorder = Recorder(
                where,
                about,
                {str(name): str(value) for name, value in (manifest or {}).items()},
                token=token or os.environ.get("PARITY_TOKEN"),
                flush_seconds=flush_seconds,
                complain=self._complain,
            )
        except Exception as error:  # noqa: BLE001 (no thread to be had, no home: the training must begin all the same)
            self._complain("run", f"nothing is recorded: {error!r}")
            return
        if is_offline:
            kept = self._recorder.folder
            self._complain("offline", f"no run is named; steps are saved in {kept}. Send them with `parity resend {kept} --as-run RUN`")
        atexit.register(self._at_exit)
        if sys.platform != "win32":
            # Threads do not survive a fork: a forked data loader has nothing to log, and must not write to its parent's spool.
            mine = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget(mine()))

    def log(self, step: SupportsIndex, **values: SupportsFloat | None) -> None:
        """Log one step of training, or its validation; takes some microseconds, and never waits.

        Args:
            step: number of the optimizer step; one call a step. A smaller one than before begins a new attempt there: training went
                back to a checkpoint.
            values: `loss` in nats a token, the judged one (with `lm_loss` beside it, that is), and any others such as `grad_norm`,
                `tokens`, `step_seconds`, `learning_rate`; `validation_loss` also by itself. Numbers of Python, numpy, jax or torch.

        A jax array is read in the background. Any other array is read here, because it could change: one on a GPU makes this wait
        for the GPU.
        """
        if self._recorder is None:
            return
        try:
            self._recorder.add(self._row(self._recorder, operator.index(step), values))
        except Exception as error:  # noqa: BLE001 (whatever a framework's array raises when it is read must not reach the training)
            self._complain("log", f"step {step!r:.40} is not recorded: {error}")

    def flush(self) -> None:
        """Wait until everything that was logged is on disk, at most some seconds: when a checkpoint is saved, its steps should be."""
        if self._recorder is not None:
            self._recorder.wait_for_disk(_DISK_SECONDS)

    def finish(self, outcome: Literal["finished", "failed", "broke_off"] = "finished", message: str | None = None) -> None:
        """End the run and wait until the server has everything, for at most `finish_seconds`.

        `failed` ends the run without a curve for the judge; `broke_off` leaves it to the next Run.
        """
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        if not recorder.end(outcome, message and message[:_MESSAGE_CHARACTERS], self._finish_seconds):
            self._complain(
                "finish",
                recorder.problem
                or f"some steps have not reached the server; they are saved locally. Retry with `parity resend {recorder.folder}`",
            )
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            self._strict = False  # the script's own error is the one to be seen
            self.finish("broke_off", f"{kind.__name__}: {error}")

    def _row(self, recorder: Recorder, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row in its place: one a step of training, and a smaller step than before is a new attempt."""
        if not 0 <= step <= 2**53:
            raise RunError(f"expected a step from 0 to {2**53}")
        row = {name: value if type(value) is float else _number(value) for name, value in values.items() if value is not None}
        names = tuple(row)
        trains = self._trains.get(names)
        if trains is None:
            trains = self._trains[names] = _check_names(names)
        if trains:
            if step <= self._last_step:
                if step == self._last_step:
                    raise RunError("it was logged before; log all values of a step in one call")
                recorder.go_back()
                self._validated.clear()
            self._last_step = step
        if VALIDATION in row and step in self._validated:
            # With another number the server would refuse it, and with it all that follows.
            if not trains:
                raise RunError("its validation loss was logged before")
            self._complain("log", f"step {step}: its validation loss was logged before, and this one is not recorded")
            del row[VALIDATION]
        if VALIDATION in row:
            self._validated.add(step)
        row["step"] = step
        return row

    def _at_exit(self) -> None:
        """The script ends without a word: the spool at least has everything."""
        if self._recorder is not None:
            self._recorder.wait_for_disk(_DISK_SECONDS)

    def _complain(self, about: str, problem: str) -> None:
        """Say it once; a strict Run raises it, in the caller's own thread."""
        recorder = self._recorder
        if self._strict and about in ("run", "log", "finish") and (recorder is None or not recorder.is_own_thread()):
            raise RunError(problem)
        if about not in self._complaints:
            self._complaints.add(about)
            _log.warning("%s", problem)


def _forget(run: Run | None) -> None:
    if run is not None:
        run._recorder = None


def _number(value: Any) -> Any:
    """A float, or a jax array as it is: that can't change, and reading it now would wait for the device."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r:.40} is not a number")
    return value if hasattr(value, "block_until_ready") else float(value)


def _check_names(names: tuple[str, ...]) -> bool:
    """Whether a row of these names is one of training, not of validation alone; RunError where it can't be recorded."""
    for name in names:
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise RunError(f"value {name!r:.80} has no name that can be recorded, expected letters, digits and _ . / -, at most 64")
    if len(names) > _MOST_COLUMNS:
        raise RunError(f"it has {len(names)} values, expected at most {_MOST_COLUMNS}")
    trains = any(name in LOSSES for name in names)
    if not trains and names != (VALIDATION,):
        raise RunError(f"it has {', '.join(names) or 'nothing'}, expected loss (or lm_loss) among the values, or {VALIDATION} alone")
    return trains
