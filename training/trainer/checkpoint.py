"""Checkpoints: a run that is killed at any moment resumes with the same bits.

What it answers: from which step can this run resume, and with which numbers?

A checkpoint of step t holds the state after steps 0 .. t - 1: parameters, the optimizer's moments
and the scales of delayed scaling. Random bits and batches are pure functions of (seed, step) and
are not saved. `complete.json` is written last and holds a checksum of every file and the identity
of the run. A checkpoint without it, or whose files differ from it, is damaged, and the previous
one is used. A checkpoint of another run, program, library version or thread count is refused,
because the bits would differ.

A thread writes it from a copy that the device makes between two blocks of steps, so no step waits
for the disk.

Of the checkpoints for resuming only the newest three stay. Those of the steps that a job names
lie in the folder `kept` and stay after the run has ended: forks start from them
(`training.spec`), and what is measured on fixed weights reads them.

The assumption that can fail: one process at a time writes into a folder.

Source: Orbax (`Checkpointer`, which renames a folder to its final name when all is written).
"""

import json
import logging
import re
import shutil
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from training.frozen import frozen

_log = logging.getLogger(__name__)

_KEPT = 3  # one may be damaged, and one may be newer than the steps that the caller has recorded
_NAME = re.compile(r"step-(\d{12})")
_COMPLETE = "complete.json"
_KEPT_FOLDER = "kept"
_SHOWN = 3

Numbers = dict[str, np.ndarray[Any, Any]]


class CheckpointRefusedError(Exception):
    """The checkpoint was made by another run, program or machine; resuming from it would give other
    bits.
    """

    code = "CHECKPOINT_REFUSED"


class CheckpointNotFoundError(Exception):
    """The kept checkpoint from which a fork starts is not on this machine, or is damaged."""

    code = "CHECKPOINT_NOT_FOUND"


@frozen
class Checkpointing:
    """Where and how often a run is saved, and the last step from which it may resume.

    `every_seconds` and `every_steps` both apply; a checkpoint is skipped while the previous one is
    still being written. `resume_at_most` is the number of steps that the caller has on record: a
    checkpoint may be on disk before its steps are. `keep` are the numbers of steps after which the
    state is saved for good, in the folder `kept`.
    """

    folder: Path
    every_seconds: float | None = 60.0
    every_steps: int | None = None
    resume_at_most: int | None = None
    keep: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("every_seconds", "every_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(
                    f"checkpointing.{name} is {value}, expected a number above 0, or None for never"
                )


class Checkpoints:
    """The checkpoints of one run in progress. `identity` holds everything that determines its bits,
    as text by name.
    """

    def __init__(self, plan: Checkpointing, identity: Mapping[str, str]) -> None:
        self._plan = plan
        self._identity = dict(identity)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._saved_at = time.monotonic()
        plan.folder.mkdir(parents=True, exist_ok=True)

    def resume(self, state: Any) -> tuple[int, Any]:
        """Returns (step, state) of the newest intact checkpoint that the plan allows, or (0,
        `state`) if there is none.

        `state` sets the shape of the result. Checkpoints that are newer, damaged or half written
        are deleted. Raises CheckpointRefusedError if the newest usable one was made by another run,
        program or machine.
        """
        for step, folder in sorted(_folders(self._plan.folder).items(), reverse=True):
            if self._usable(step, folder):
                return step, _filled(state, _read(folder, numbers_of(state)))
            shutil.rmtree(folder)
        return 0, state

    def _usable(self, step: int, folder: Path) -> bool:
        """Whether the checkpoint is intact and within the plan; raises CheckpointRefusedError if
        something else made it.
        """
        if self._plan.resume_at_most is not None and step > self._plan.resume_at_most:
            return False
        saved = _identity_of(folder)
        if isinstance(saved, str):
            _log.warning("checkpoint %s is damaged; the previous one is used: %s", folder, saved)
            return False
        _check_identity(
            folder,
            self._identity,
            saved,
            "train from the first step with an empty folder, or undo the change",
        )
        return True

    def steps_until_due(self, first: int) -> int | None:
        """Returns the number of steps from `first` until one is due by its number; None if only
        time decides.
        """
        every = self._plan.every_steps
        until = [step - first for step in self._plan.keep if step > first]
        return min(until if every is None else [*until, every - first % every], default=None)

    def is_kept(self, step: int) -> bool:
        """Whether the state after the first `step` steps is to be saved for good."""
        return step in self._plan.keep

    def due(self, step: int) -> bool:
        """Whether the state after the first `step` steps should be saved now."""
        if self.is_kept(step):
            return True
        if self._writing is not None and not self._writing.done():
            return False
        seconds, steps = self._plan.every_seconds, self._plan.every_steps
        return (seconds is not None and time.monotonic() - self._saved_at >= seconds) or (
            steps is not None and step % steps == 0
        )

    def save(self, step: int, state: Any) -> None:
        """Start to write the state after the first `step` steps. The caller must not change or
        donate `state` afterwards.
        """
        self._saved_at = time.monotonic()
        self._writing = self._writer.submit(self._write, step, state)

    def _write(self, step: int, state: Any) -> None:
        folder = _folder(self._plan.folder, step, is_kept=self.is_kept(step))
        try:
            # a kept one that an attempt wrote whose steps were not recorded
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _written(folder, numbers_of(state))
            about = {"identity": self._identity, "checksums": _checksums(folder)}
            (folder / _COMPLETE).write_text(json.dumps(about))
            for _, old in sorted(_folders(self._plan.folder).items())[:-_KEPT]:
                shutil.rmtree(old)
        except Exception as error:  # noqa: BLE001
            _log.warning(
                "the checkpoint of step %d was not written; the run continues without it: %s",
                step,
                error,
            )

    def close(self) -> None:
        """Wait until the checkpoint in progress is written."""
        self._writer.shutdown()


def kept_steps(folder: Path) -> list[int]:
    """The numbers of steps after which a run with this folder has a complete kept checkpoint."""
    inside = folder / _KEPT_FOLDER
    if not inside.is_dir():
        return []
    return sorted(step for step, path in _folders(inside).items() if (path / _COMPLETE).exists())


def read_kept(folder: Path, step: int, identity: Mapping[str, str], state: Any) -> Any:
    """Returns the state of a kept checkpoint in the shape of `state`.

    Raises CheckpointNotFoundError if it is not there or not intact, CheckpointRefusedError if
    another run, program or machine made it.
    """
    path = _folder(folder, step, is_kept=True)
    saved = _identity_of(path)
    if isinstance(saved, str):
        there = ", ".join(map(str, kept_steps(folder))) or "none"
        raise CheckpointNotFoundError(
            f"no intact checkpoint of step {step} in {folder / _KEPT_FOLDER} (complete there: "
            f"{there}): {saved}; train the parent with keep_checkpoints: [{step}] in its job; if "
            "it was trained on another machine, give both one PARITY_CHECKPOINT_DIR"
        )
    _check_identity(
        path, identity, saved, "train the parent again with this code on this kind of machine"
    )
    return _filled(state, _read(path, numbers_of(state)))


def _identity_of(folder: Path) -> dict[str, str] | str:
    """The identity of the run that wrote an intact checkpoint; else what is wrong with it, as
    text.
    """
    try:
        about = json.loads((folder / _COMPLETE).read_text())
        identity: dict[str, str] = about["identity"]
        if about["checksums"] != _checksums(folder):
            return "its files differ from their checksums"
        return identity
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{_COMPLETE}: {error!r}"


def _check_identity(
    folder: Path, mine: Mapping[str, str], saved: Mapping[str, str], remedy: str
) -> None:
    differing = [
        name for name in sorted(mine.keys() | saved.keys()) if mine.get(name) != saved.get(name)
    ]
    if differing:
        shown = ", ".join(
            f"{name} is {mine.get(name)} and was {saved.get(name)}" for name in differing[:_SHOWN]
        )
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        raise CheckpointRefusedError(
            f"the checkpoint of step {int(folder.name.removeprefix('step-'))} in {folder.parent} "
            f"was made by another run: {shown}{more}; "
            f"expected no difference, because the bits would change within the run; {remedy}"
        )


def _folder(folder: Path, step: int, *, is_kept: bool) -> Path:
    return (folder / _KEPT_FOLDER if is_kept else folder).absolute() / f"step-{step:012d}"


def _folders(folder: Path) -> dict[int, Path]:
    """Returns the checkpoints in a folder by step, intact or not; deletes temporary folders that
    Orbax left.
    """
    for leftover in folder.glob("step-*.orbax-checkpoint-tmp*"):
        shutil.rmtree(leftover)
    named = ((_NAME.fullmatch(path.name), path.absolute()) for path in folder.iterdir())
    return {int(match[1]): path for match, path in named if match}


def _written(folder: Path, numbers: Numbers) -> None:
    from orbax import checkpoint as orbax  # noqa: PLC0415

    with orbax.Checkpointer(orbax.StandardCheckpointHandler()) as writer:
        writer.save(folder, args=orbax.args.StandardSave(numbers))


def _read(folder: Path, like: Numbers) -> Numbers:
    from orbax import checkpoint as orbax  # noqa: PLC0415

    with orbax.Checkpointer(orbax.StandardCheckpointHandler()) as reader:
        numbers: Numbers = reader.restore(folder, args=orbax.args.StandardRestore(like))
    return numbers


def _checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of every file except `complete.json`, which holds them: detects a crash during a
    write, not a forgery.
    """
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path != folder / _COMPLETE
    )
    return {path.relative_to(folder).as_posix(): zlib.crc32(path.read_bytes()) for path in files}


def numbers_of(state: Any) -> Numbers:
    """Returns the arrays of a tree on the host, by path, without empty ones."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves if leaf.size}


def _filled(state: Any, numbers: Numbers) -> Any:
    """Returns a tree of the shape of `state` with these numbers, each on the devices of the array
    that it replaces.

    An array that is committed to its device where `state` is not would make jax compile the program
    again.
    """

    def pick(path: Any, leaf: Any) -> Any:
        if not leaf.size:
            return leaf
        return jax.device_put(numbers[_name(path)], leaf.sharding if leaf.committed else None)

    return jax.tree_util.tree_map_with_path(pick, state)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
