"""Engine maxtext: starts a MaxText training process, follows it, and reports each step like our own
engine.

What it answers: what did each step of this MaxText run do, and is any step missing?

    parameters at step 0 (one process, learning rate 0)  ->  training (one process), followed
      through its metrics_file and log

The training process does not evaluate: each evaluation would empty metrics_file, and the records
of the last milliseconds would be lost. Values that MaxText does not record are NaN: the norm of
the update, the wait for data, non-finite inputs of quantizers.
"""

import glob
import hashlib
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from training import device, provenance
from training.engines import maxtext_command, maxtext_documents, maxtext_failures
from training.engines.maxtext_command import Launch
from training.engines.maxtext_evaluation import evaluations, forget_told, put_back, told_steps
from training.engines.maxtext_follow import FollowedRun, MaxTextFollower, MaxTextLog
from training.engines.maxtext_process import (
    LOOK_SECONDS,
    Silence,
    SilenceLimit,
    early_end,
    failure,
    meeting_place,
    run_to_its_end,
    running,
)
from training.environment.maxtext_errors import (
    CrashedError,
    DataMissingError,
    MetricsGapError,
    MetricsStoppedError,
    steps_in_words,
)
from training.environment.maxtext_installed import installed
from training.environment.processes import ALONE, Processes, WrapperError
from training.frozen import frozen
from training.rules import NAMED_DATA
from training.spec import RunSpec
from training.step_values import DivergedError, StepStats

_HASHED_BYTES = 1 << 30


@frozen
class MaxTextPlace:
    """Where and as which of its processes a run trains.

    `folder` holds the run's files, `resume_at_most` is the number of steps that the caller has on
    record, `silence_seconds` how long MaxText may write nothing. Every process but the first starts
    the same MaxText commands and yields nothing. With `stop_after` the run trains so many steps of
    its schedule and is not evaluated. `slices` has the number of devices on each of its nodes.
    """

    folder: Path
    slices: tuple[int, ...]
    resume_at_most: int = 0
    stop_after: int | None = None
    silence_seconds: float = 1800.0
    processes: Processes = ALONE


def manifest(
    spec: RunSpec, slices: Sequence[int], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns what a run's fingerprint contains in addition to recipe, seed and replicate; runs
    with equal manifests may be paired. `slices`: the number of devices on each of its nodes.

    `maxtext.command_sha256` is the same for all runs of a job; `maxtext.arm.RECIPE` holds the
    options that only this arm has. Raises NotInstalledError, WrongVersionError and
    DataMissingError.
    """
    maxtext = installed(environment)
    common = maxtext_command.shared(spec, slices)
    facts = provenance.trainer_facts(environment) | {
        f"maxtext.version.{name}": version for name, version in maxtext.versions.items()
    }
    facts |= {
        "data_digest": data_digest(spec),
        "device_class": _device_class(spec, slices),
        "engine": spec.engine,
        "layer_policy": spec.layer_policy,
        "maxtext.command_sha256": hashlib.sha256(common.encode()).hexdigest(),
        "maxtext.command": common,
        f"maxtext.arm.{spec.recipe}": maxtext_command.arm_options(spec),
        "threads": str(device.usable_threads()),
    }
    return dict(sorted(facts.items()))


def train(
    spec: RunSpec,
    place: MaxTextPlace,
    *,
    environment: Mapping[str, str] = os.environ,
    note: Callable[[str], None] = lambda _: None,
    profile: Callable[[int, Mapping[str, float]], None] = lambda _step, _values: None,
    validated: Callable[[int, float], None] = lambda _step, _loss: None,
    alive: Callable[[], None] = lambda: None,
) -> Iterator[StepStats]:
    """Train the run step by step; stop iterating (or kill the process group) to cancel it.

    Calls `profile` with the memory that the run took, `validated` with each held-out loss once the
    training has ended (`schedule.validation_every`), `note` with sentences for readers (at the
    start of replicate 0, how many documents MaxText cuts), and `alive` when MaxText's log has new
    lines. Resumes from MaxText's newest checkpoint that holds no step beyond
    `place.resume_at_most`.

    Raises a MaxTextError with a code and a sentence; MetricsGapError after the last step of a run
    that lost steps; DivergedError after the first step whose loss is not finite; WrapperError if
    several processes were started for hardware that takes one.
    """
    launch = Launch(
        spec=spec,
        maxtext=installed(environment),
        environment=meeting_place(environment, place.processes, spec.maxtext.hardware),
        folder=place.folder,
        slices=place.slices,
        part=place.processes.number,
    )
    steps = spec.schedule.steps if place.stop_after is None else place.stop_after
    if place.processes.count > 1 and spec.maxtext.hardware == "gpu":
        raise WrapperError(
            f"maxtext.hardware is {spec.maxtext.hardware}, expected gpu_multiprocess: the wrapper "
            f"started {place.processes.count} processes"
        )
    launch.folder.mkdir(parents=True, exist_ok=True)
    lacks_parameters = (
        maxtext_command.loads_parameters(spec) and not launch.first_parameters.exists()
    )
    command = maxtext_command.train_command(launch, steps)
    evaluates = bool(spec.schedule.validation_every) and steps == spec.schedule.steps
    if not place.processes.is_first:
        _take_part(
            launch,
            [maxtext_command.first_parameters_command(launch)] * lacks_parameters + [command],
        )
        if evaluates:
            steps_to_evaluate = told_steps(launch)
            _take_part(
                launch,
                [maxtext_command.evaluation_command(launch, at) for at in steps_to_evaluate],
            )
        return
    with maxtext_failures.reported(launch.folder, place.processes.count) as look:
        patience = SilenceLimit(seconds=place.silence_seconds, alive=alive, look=look)
        put_back(launch)
        forget_told(launch)
        first = _forget_newer_checkpoints(launch, place.resume_at_most)
        if first == 0 and spec.replicate == 0:
            cut = maxtext_documents.in_words(spec, environment)
            if cut is not None:
                note(cut)
        if lacks_parameters:
            _write_first_parameters(launch, patience)
        launch.metrics.unlink(missing_ok=True)
        plan = FollowedRun(first=first, steps=steps, tokens_per_step=spec.data.tokens_per_step)
        with running(command, launch.folder, launch.log, launch.environment) as process:
            log = MaxTextLog(launch.log, sys.stderr)
            follower = MaxTextFollower(launch.metrics, log, plan)
            yield from _follow(process, follower, plan, Silence(log, patience))
        if follower.last >= plan.first:
            profile(
                follower.last,
                {
                    "device_memory_bytes": log.held_bytes,
                    "host_peak_memory_bytes": float(_children_peak_bytes()),
                },
            )
        _conclude(process.returncode, follower, log, plan, note)
        if evaluates:
            for step, loss in evaluations(launch, patience):
                validated(step, loss)


def data_digest(spec: RunSpec) -> str:
    """Returns the sha256 of the data's options and local files: of their contents up to 1 GiB, of
    their names and sizes beyond that.

    It begins with `named:` if data are known by name only: large ones, or those on a hub or in a
    bucket. Two such digests may be equal though the data have changed, so no curve is reused for
    them. Raises DataMissingError for a local file or folder that does not exist.
    """
    options = spec.maxtext
    digest = hashlib.sha256(repr((spec.data, options.tokenizer_path)).encode())
    names = {"data.path": spec.data.path or "", "maxtext.eval_path": options.eval_path}
    names |= {
        f"maxtext.{name}": getattr(options, name) for name in ("tokenizer_path", "hf_train_files")
    }
    known_by_name = False
    for field, text in names.items():
        is_data = bool(text) and field != "maxtext.tokenizer_path"
        if not text.startswith("/"):
            if (
                spec.data.source == "grain"
                and field in ("data.path", "maxtext.eval_path")
                and text
                and "://" not in text
            ):
                raise DataMissingError(
                    f"{field} is {text!r}, expected an absolute path, or a bucket's address such "
                    "as gs://…"
                )
            known_by_name = known_by_name or is_data
            continue  # a name on a hub, a bucket, or a file of MaxText's own
        files = sorted(path for name in glob.glob(text) for path in _files(Path(name)))  # noqa: PTH207
        if not files:
            raise DataMissingError(
                f"{field} is {text!r}, expected a file, a folder or a pattern of files on this "
                "worker; there is none"
            )
        small = sum(file.stat().st_size for file in files) <= _HASHED_BYTES
        known_by_name = known_by_name or not small
        for file in files:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            if small:
                with file.open("rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
    return (NAMED_DATA if known_by_name else "") + digest.hexdigest()


def _take_part(launch: Launch, commands: Sequence[Sequence[str]]) -> None:
    """Run the same commands as the reporting process, which follows them for all; if one fails, the
    first process tells, and the wrapper ends all.
    """
    for command in commands:
        with running(command, launch.folder, launch.log, launch.environment) as process:
            process.wait()
        if process.returncode != 0:
            log = MaxTextLog(launch.log, sys.stderr)
            list(log.steps())
            error = failure(process.returncode, log, f"(log {launch.log})", progressed=True)
            maxtext_failures.write(launch.folder, launch.part, error)
            raise error


def _follow(
    process: subprocess.Popen[bytes], follower: MaxTextFollower, plan: FollowedRun, silence: Silence
) -> Iterator[StepStats]:
    while True:
        # before the read, so that everything it wrote before its end is read
        ended = process.poll() is not None
        for step in follower.steps():
            silence.broken()
            yield step
            if not math.isfinite(step.loss):
                raise DivergedError(step.step)
        if ended:
            return
        silence.check(_progress_words(follower, plan), transient=True)
        time.sleep(LOOK_SECONDS)


def _conclude(
    status: int,
    follower: MaxTextFollower,
    log: MaxTextLog,
    plan: FollowedRun,
    note: Callable[[str], None],
) -> None:
    """Raise a MaxTextError unless the process ended as a complete run does."""
    after = _progress_words(follower, plan)
    if status != 0:
        raise failure(status, log, after, progressed=follower.last >= plan.first)
    if follower.unrecorded():
        lost = steps_in_words([follower.unrecorded()])
        raise MetricsStoppedError(
            f"metrics_file ends at step {follower.last}, and MaxText's log also shows {lost}"
        )
    if follower.last != plan.steps - 1:
        raise early_end(
            log,
            after,
            has_steps=follower.last >= 0,
            progressed=follower.last >= plan.first,
        )
    if not follower.proven():
        note(
            f"MaxText's log shows steps up to {follower.shown} only, so the completeness of the "
            "later steps relies on metrics_file alone"
        )
    if follower.gaps:
        raise MetricsGapError(
            f"metrics_file lost {sum(map(len, follower.gaps))} steps that were trained: "
            f"{steps_in_words(follower.gaps)}"
            f" (it was emptied {follower.shrank} times)"
        )


def _progress_words(follower: MaxTextFollower, plan: FollowedRun) -> str:
    if follower.last >= plan.first:
        return f"after step {follower.last} of {plan.steps}"
    if follower.last >= 0:
        return f"before a step, resumed after step {follower.last} of {plan.steps}"
    return "before its first step"


def _write_first_parameters(launch: Launch, patience: SilenceLimit) -> None:
    """Let MaxText write the checkpoint that every run of this seed starts from."""
    shutil.rmtree(launch.folder / "step0", ignore_errors=True)
    command, log_path = (
        maxtext_command.first_parameters_command(launch),
        launch.folder / "step0.log",
    )
    log = run_to_its_end(
        command,
        log_path,
        launch.environment,
        patience,
        "made the parameters of step 0",
        transient=True,
    )
    if not launch.first_parameters.exists():
        raise CrashedError(
            f"MaxText wrote no checkpoint of step 0; the last lines of its log:\n{log.end()}"
        )


def _forget_newer_checkpoints(launch: Launch, recorded: int) -> int:
    """Remove checkpoints beyond the recorded steps; returns the step after the newest remaining
    one, where MaxText will resume.
    """
    if not maxtext_command.resumes(launch.spec):
        shutil.rmtree(launch.checkpoints, ignore_errors=True)
    first = 0
    for folder in launch.checkpoints.glob("*"):
        if not folder.name.isdecimal() or int(folder.name) + 1 > recorded:
            shutil.rmtree(folder)
        else:
            first = max(first, int(folder.name) + 1)
    return first


def _children_peak_bytes() -> int:
    """Peak memory in bytes of the largest child process that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    return [path]


def _device_class(spec: RunSpec, slices: Sequence[int]) -> str:
    """Returns the name that `training.device` gives, without jax: two processes can't share a GPU's
    memory.
    """
    if spec.maxtext.hardware == "cpu":
        return device.processor_class("cpu")
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise CrashedError(
            f"nvidia-smi does not say which GPU this is: {error}; maxtext.hardware is "
            f"{spec.maxtext.hardware}"
        ) from None
    name = f"gpu:sm{answer.stdout.split()[0].replace('.', '')}"
    return device.class_of_gpus(name, slices)
