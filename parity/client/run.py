"""The logger for a training script of any framework: `with parity.Run(run="r019…") as run:
run.log(step=…, loss=…)`.

It never blocks or breaks the training. `log` puts a row into memory; some milliseconds later it
is in a spool on disk, and from there it goes to the server, again and again for as long as it
takes. A script that is killed loses nothing that reached the spool: the next Run of the same run,
or `parity resend`, sends it. What goes wrong is logged once and not raised (`strict` raises).
"""

import atexit
import logging
import math
import operator
import os
import re
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex

from parity.client import DEFAULT_URL
from parity.client.delivery import LAYERS, LOSSES, VALIDATION
from parity.client.recorder import NO_NUMBERS, Recorder
from parity.recipes import RecipeError, check_recipe

_log = logging.getLogger("parity")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}")
_OFFLINE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_COLUMNS = 64
_LONGEST_PROJECT = 200
_LARGEST = 2**53
_MESSAGE_CHARACTERS = 2000
_EXIT_DISK_SECONDS = 2.0


class RunError(Exception):
    """What a strict Run raises: a row that can't be logged, or steps that did not reach the
    server.
    """


class Run:
    """One attempt of one run of a job with engine external, or of a project.

    Args:
        run: id of the run, as the job's page and `parity status JOB` show it; default PARITY_RUN.
            Without one nothing is recorded, unless `project` or `offline` is given.
        project: name of a project, in place of a job that was submitted: the first run of an arm
            makes what it needs.
        arm: name of the arm in the project.
        baseline: name of the arm that is the project's baseline; default: the arm of its first run.
            Once a project has ended (`parity runs conclude`), a run begins another job of that name
            and must give it, unless its own arm was the baseline.
        seed: the seed of the run's data and weights. A restart with the same seed goes on with the
            run; without one each is a new run.
        planned_steps: how many steps the runs of the project are meant to take, if that is known.
            The server records a quarter more.
        server: address of the server; default PARITY_URL.
        token: bearer token of the job's owner, of scope submit (or worker, unless for a project);
            default PARITY_TOKEN. With it the Run gets a token of its own, which may write this run
            only and is kept next to the spool until everything is sent.
        recipe: what is trained, checked against the arm's recipe.
        manifest: what else must agree between the arms, such as {"device_class": "h100",
            "data_digest": "…"}. Versions, the environment variables that decide bits and the git
            revision are recorded by themselves.
        folder: where spools are kept; default PARITY_SPOOL, else `parity-spool` in the working
            directory.
        strict: raise RunError instead of logging what goes wrong.
        flush_seconds: how often steps are sent to the server.
        finish_seconds: how long the end waits for the server.
        offline: where steps are kept if no run is named: the folder `unnamed-NAME` below `folder`,
            one for each run. A restart with the same name continues it; `parity resend FOLDER
            --as-run RUN` sends it.

        layers: the file or folder of the run's statistics by layer, as `parity compare --layer-snr`
            reads it. It is read and sent when the run ends; what is wrong with it is logged, and
            the run ends all the same.

    Make it in one process of a run (rank 0): a later one takes over, and the server refuses the
    earlier.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        project: str | None = None,
        arm: str | None = None,
        baseline: str | None = None,
        seed: int | None = None,
        planned_steps: int | None = None,
        server: str | None = None,
        token: str | None = None,
        recipe: str | None = None,
        manifest: Mapping[str, str] | None = None,
        folder: str | Path | None = None,
        strict: bool = False,
        flush_seconds: float = 1.0,
        finish_seconds: float = 60.0,
        offline: str | None = None,
        layers: str | Path | None = None,
    ) -> None:
        self.run = str(run or ("" if project is not None else os.environ.get("PARITY_RUN", "")))
        self._strict = strict
        self._finish_seconds = finish_seconds
        self._complaints: set[str] = set()
        self._trains: dict[tuple[str, ...], bool] = {}
        self._last_step = -1
        self._validated: set[int] = set()
        self._recorder: Recorder | None = None
        of_project = {
            "project": project,
            "arm": arm,
            "baseline": baseline,
            "seed": seed,
            "planned_steps": planned_steps,
        }
        of_project = (
            {} if project is None else of_project | {"key": f"{time.time_ns()}-{os.getpid()}"}
        )
        if wrong := _wrong_project(self.run, of_project):
            self._complain("run", f"{wrong}; nothing is recorded")
            return
        is_offline = not self.run and not of_project and offline is not None
        if is_offline and not _OFFLINE.fullmatch(str(offline)):
            self._complain(
                "run",
                f"offline is {offline!r:.80}; expected letters, digits and _ . -, at most 64; "
                "nothing is recorded",
            )
            return
        if not is_offline and not of_project and not re.fullmatch(r"r[0-9a-f-]{10,60}", self.run):
            self._complain(
                "run",
                f"run is {self.run!r}; expected the id of a run (argument `run`, or PARITY_RUN); "
                "nothing is recorded",
            )
            return
        try:
            check_recipe(recipe)
        except RecipeError as error:
            self._complain("run", f"{error}; nothing is recorded")
            return
        kept_in = f"unnamed-{offline}" if is_offline else self.run or _folder_of(of_project)
        where = Path(folder or os.environ.get("PARITY_SPOOL", "parity-spool")) / kept_in
        numbers = {"seed": seed, "planned_steps": planned_steps} if of_project else {}
        # numpy's are no JSON
        of_project |= {
            name: operator.index(number) for name, number in numbers.items() if number is not None
        }
        about = {
            "run": self.run or None,
            "server": server or os.environ.get("PARITY_URL", DEFAULT_URL),
            "recipe": recipe,
            **of_project,
            **({} if layers is None else {LAYERS: str(Path(layers).absolute())}),
        }
        try:
            self._recorder = Recorder(
                where,
                about,
                {str(name): str(value) for name, value in (manifest or {}).items()},
                token=token or os.environ.get("PARITY_TOKEN"),
                flush_seconds=flush_seconds,
                complain=self._complain,
                recover=self._recover,
            )
        except Exception as error:  # noqa: BLE001
            self._complain("run", f"nothing is recorded: {error!r}")
            return
        if is_offline:
            spools = self._recorder.folder
            self._complain(
                "offline",
                f"no run is named; steps are saved in {spools}. Send them with `parity resend "
                f"{spools} --as-run RUN`",
            )
        # of a script that ends without a word the spool at least has everything
        atexit.register(self.flush)
        if sys.platform != "win32":
            # Threads do not survive a fork: a forked data loader has nothing to log, and must not
            # write to its parent's spool.
            mine = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget(mine()))

    def log(self, step: SupportsIndex, **values: SupportsFloat | None) -> None:
        """Log one step of training, or its validation; takes some microseconds, and never waits.

        Args:
            step: number of the optimizer step; one call a step. A smaller one than before begins a
                new attempt there: training went back to a checkpoint.
            values: `loss` in nats a token, the judged one (with `lm_loss` beside it, that is), and
                any others such as `grad_norm`, `tokens`, `step_seconds`, `learning_rate`;
                `validation_loss` also by itself. Numbers of Python, numpy, jax or torch. None is no
                value; as the loss of a step that has no other it is NaN.

        A jax array is read in the background. Any other array is read here, because it could
        change: one on a GPU makes this wait for the GPU.
        """
        if self._recorder is None:
            return
        try:
            self._recorder.add(self._row(self._recorder, operator.index(step), values))
        except Exception as error:  # noqa: BLE001
            self._complain("log", f"step {step!r:.40} is not recorded: {error}")

    def flush(self) -> None:
        """Wait until everything that was logged is on disk, at most some seconds: when a checkpoint
        is saved, its steps should be.
        """
        if self._recorder is not None:
            self._recorder.wait_for_disk(_EXIT_DISK_SECONDS)

    def finish(
        self,
        outcome: Literal["finished", "failed", "broke_off"] = "finished",
        message: str | None = None,
    ) -> None:
        """End the run and wait until the server has everything, for at most `finish_seconds`.

        `failed` ends the run without a curve for the judge; `broke_off` leaves it to the next Run.
        """
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        if not recorder.end(
            outcome, message and message[:_MESSAGE_CHARACTERS], self._finish_seconds
        ):
            self._complain(
                "finish",
                recorder.problem
                or (
                    "some steps have not reached the server; they are saved locally. Retry with "
                    f"`parity resend {recorder.folder}`"
                ),
            )
        atexit.unregister(self.flush)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self._strict = False  # the script's own error is the one to be seen
            self.finish("broke_off", f"{kind.__name__}: {error}")

    def _row(self, recorder: Recorder, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row in its place: one a step of training, and a smaller step than before is a new
        attempt.
        """
        if not 0 <= step <= 2**53:
            raise RunError(f"expected a step from 0 to {2**53}")
        row = {
            name: value if type(value) is float else _number(value)
            for name, value in values.items()
            if value is not None
        }
        # a step that was trained, and whose loss is not there
        if not any(name in row for name in (*LOSSES, VALIDATION)):
            row |= {name: math.nan for name in values if name in LOSSES}
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
            self._complain(
                "log",
                f"step {step}: its validation loss was logged before, and this one is not recorded",
            )
            del row[VALIDATION]
        if VALIDATION in row:
            self._validated.add(step)
        row["step"] = step
        return row

    def _complain(self, about: str, problem: str) -> None:
        """Say it once; a strict Run raises it, in the caller's own thread."""
        recorder = self._recorder
        if (
            self._strict
            and about in ("run", "log", "finish")
            and (recorder is None or not recorder.is_own_thread())
        ):
            raise RunError(problem)
        if about not in self._complaints:
            self._complaints.add(about)
            _log.warning("%s", problem)

    def _recover(self, about: str, news: str) -> None:
        """Say that a problem has ended, if it was said; the next one of its kind is said again."""
        if about in self._complaints:
            self._complaints.discard(about)
            _log.warning("%s", news)


def _forget(run: Run | None) -> None:
    if run is not None:
        run._recorder = None


def _number(value: Any) -> Any:
    """A float, or a jax array as it is: that can't change, and reading it now would wait for the
    device.
    """
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r:.40} is not a number")
    if hasattr(value, "block_until_ready"):
        return value
    return float(value)


def _wrong_project(run: str, of_project: Mapping[str, Any]) -> str:
    """What is wrong with a project, its arm, seed and length; "" for nothing."""
    if not of_project:
        return ""
    project, arm, baseline, seed, steps = (
        of_project[name] for name in ("project", "arm", "baseline", "seed", "planned_steps")
    )
    if run:
        return f"run {run} and project {project!r:.80} are both given; expected one of them"
    if (
        not str(project).strip()
        or not str(project).isprintable()
        or len(str(project)) > _LONGEST_PROJECT
    ):
        return f"project is {project!r:.80}; expected 1 to {_LONGEST_PROJECT} printable characters"
    for name, value in (("arm", arm), ("baseline", baseline)):
        if (name == "arm" or value is not None) and (
            not isinstance(value, str) or not _OFFLINE.fullmatch(value)
        ):
            return (
                f"{name} is {value!r:.80}; expected the name of an arm of the project: letters, "
                "digits and _ . -, at most 64"
            )
    for name, value, least in (("seed", seed, 0), ("planned_steps", steps, 1)):
        if value is not None and (
            not hasattr(value, "__index__")
            or isinstance(value, bool)
            or not least <= value <= _LARGEST
        ):
            return f"{name} is {value!r:.80}; expected a whole number from {least} to {_LARGEST}"
    return ""


def _folder_of(of_project: Mapping[str, Any]) -> str:
    """The folder for spools of a project's run: the same for a seed, so that a restart finds what
    is left; else one of its own.
    """
    project = re.sub(r"[^A-Za-z0-9_.-]", "_", of_project["project"])[:64]
    if of_project["seed"] is None:
        suffix = f"{time.time_ns()}-{os.getpid()}"
    else:
        suffix = f"seed{of_project['seed']}"
    return f"{project}-{of_project['arm']}-{suffix}"


def _check_names(names: tuple[str, ...]) -> bool:
    """Whether a row of these names is one of training, not of validation alone; RunError where it
    can't be recorded.
    """
    for name in names:
        if not _NAME.fullmatch(name) or name in NO_NUMBERS:
            raise RunError(
                f"value {name!r:.80} has no name that can be recorded, expected letters, digits "
                "and _ . / -, at most 64"
            )
    if len(names) > _MOST_COLUMNS:
        raise RunError(f"it has {len(names)} values, expected at most {_MOST_COLUMNS}")
    trains = any(name in LOSSES for name in names)
    if not trains and names != (VALIDATION,):
        raise RunError(
            f"it has {', '.join(names) or 'nothing'}, expected loss (or lm_loss) among the values, "
            f"or {VALIDATION} alone"
        )
    return trains
