"""A MaxText process: its command line without a shell, its start and end, and what its metrics file
and log say.
"""

import hashlib
import json
import math
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from training.environment.maxtext import (
    CrashedError,
    HungError,
    Installed,
    MaxTextError,
    MetricsError,
    MetricsStoppedError,
    TooLittleMemoryError,
    check_text,
    mesh,
    quantization,
)
from training.environment.processes import COORDINATOR, Processes, WrapperError, ends_with_parent
from training.rules import StepStats
from training.spec import RunSpec, Schedule

# Follows a MaxText process through two files: metrics_file, which has all digits, and its log,
# which shows whether a step is missing.
#
# What it answers: which steps has the run done since the last read, and was any of them lost?
#
# MaxText writes the log line of a step before its record in metrics_file, and both one step late.
# So if the log is read first and shows step s, the file that is read next must have a record of
# every step up to s - 1. MaxText 0.2.5 empties the file whenever it writes a record of step 0,
# which each of its evaluations does. A file that shrank is read again from its beginning, and steps
# that were lost between two reads are a gap.
#
# The assumption that can fail: the log's wording. If a process logs no steps, `proven` is False and
# completeness relies on metrics_file.
#
# Source: MaxText 0.2.5, common/metric_logger.py.

LOG_LINES = 50
_ERROR = re.compile(r"[\w.]+(?:Error|Exception): \S")
_HELD = re.compile(r"Using \(GB\) ([\d.]+) / [\d.]+ \([^)]*\) on ")
# The whole number must match: a line that another line interrupts proves nothing.
_STEP = re.compile(
    r"completed (?:profiler activation/deactivation )?step: (\d+)\b.*?, lm_loss: "
    r"(-?(?:\d+\.\d{3}|nan|inf))(?:,|$)"
)
# What MaxText records of each layer's output with record_internal_nn_metrics, by the names of
# ACTIVATION_STATISTICS.
_ACTIVATIONS = ("activ_mean", "activ_stdev", "activ_fraction_zero")
ACTIVATION_STATISTICS = ("mean", "stdev", "fraction_zero")
_LAG = 100  # steps that the log may be ahead of the record before the record counts as stopped
_ROUNDING = 0.0006  # the log has 3 decimals
_REMEMBERED = 256
_NAN = float("nan")


class Tail:
    """The complete lines that were appended to a file since the last read; a file that was emptied
    is read from its beginning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._end = b""
        self.shrank = 0

    def lines(self) -> list[bytes]:
        """Returns the new lines without their line ends; an unfinished line waits for the next
        read.
        """
        try:
            with self._path.open("rb") as file:
                if not self._goes_on(file):
                    self._offset, self._end = 0, b""
                    self.shrank += 1
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        self._end = (self._end + complete)[-_REMEMBERED:]
        return complete.splitlines()

    def _goes_on(self, file: Any) -> bool:
        """Whether the bytes that were read last are still there: a file may shrink and grow past
        our position between two reads.
        """
        file.seek(self._offset - len(self._end))
        return bool(file.read(len(self._end)) == self._end)


class Log:
    """MaxText's log: its steps, its last lines, and a copy of each line on `echo`."""

    def __init__(self, path: Path, echo: TextIO | None = None) -> None:
        self._tail = Tail(path)
        self._echo = echo
        self.last_lines: deque[str] = deque(maxlen=LOG_LINES)
        self.lines_read = 0
        self.out_of_memory = False
        self.held_bytes = math.nan

    def steps(self) -> Iterator[tuple[int, float]]:
        """Yields (step, loss with 3 decimals) for every new line of a step."""
        for raw in self._tail.lines():
            line = raw.decode("utf-8", "replace")
            self.lines_read += 1
            self.last_lines.append(line)
            self.out_of_memory |= "RESOURCE_EXHAUSTED" in line or "Out of memory" in line
            if held := _HELD.search(line):  # each device's memory, after the parameters were made
                self.held_bytes = max(
                    float(held[1]) * 2**30,
                    -math.inf if math.isnan(self.held_bytes) else self.held_bytes,
                )
            if self._echo is not None:
                self._echo.write(line + "\n")
            if match := _STEP.search(line):
                yield int(match[1]), float(match[2])
        if self._echo is not None:
            self._echo.flush()

    def error(self) -> str:
        """Returns ": " and the newest exception in the last lines, or ""."""
        return next((f": {line}" for line in reversed(self.last_lines) if _ERROR.match(line)), "")

    def end(self) -> str:
        """The last lines."""
        return "\n".join(self.last_lines) or "(empty)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of the followed run: the first step that it may report, the number of steps, and the
    tokens per step.
    """

    first: int
    steps: int
    tokens_per_step: int


class Follower:
    """The steps of one process in order, each once; `gaps` holds the steps that were trained but
    not recorded.
    """

    def __init__(self, metrics: Path, log: Log, plan: Plan) -> None:
        self._metrics = Tail(metrics)
        self._log = log
        self._plan = plan
        self._logged: dict[int, float] = {}
        self._lines = 0
        self.shown = plan.first - 1
        self.last = plan.first - 1
        self._begun = False
        self.gaps: list[range] = []

    @property
    def shrank(self) -> int:
        """How often metrics_file was emptied."""
        return self._metrics.shrank

    def steps(self) -> Iterator[StepStats]:
        """Yields the steps that were recorded since the last read.

        Raises MetricsError if the file contains something that MaxText does not write or that
        contradicts the log, and MetricsStoppedError if the log is far ahead of it.
        """
        # before the file: what the log shows must then be in the file
        for step, loss in self._log.steps():
            self._logged[step] = loss
            self.shown = max(self.shown, step)
        for line in self._metrics.lines():
            self._lines += 1
            record = self._record(line)
            if "learning/loss" in record and (stats := self._next(record)) is not None:
                yield stats
        if self.shown > self.last + _LAG:
            raise MetricsStoppedError(
                f"MaxText's log shows step {self.shown} and its metrics_file ends at step "
                f"{self.last}; "
                "check for a full disk, and for another process that writes to the file"
            )

    def unrecorded(self) -> range:
        """The last steps, which the log shows and metrics_file lacks; call it once the process has
        ended.
        """
        return range(self.last + 1, self.shown + 1)

    def proven(self) -> bool:
        """Whether the log has shown every step up to the last recorded one."""
        return self.shown >= self.last

    def _next(self, record: dict[str, Any]) -> StepStats | None:
        step = int(record["step"])
        if self._begun and step <= self.last:
            return None  # read again after the file was emptied
        if not 0 <= step < self._plan.steps:
            raise MetricsError(
                f"metrics_file has step {step}, expected steps from 0 to {self._plan.steps - 1}"
            )
        if step > self.last + 1:
            self.gaps.append(range(self.last + 1, step))
        self._begun, self.last = True, step
        stats = _stats(record, step, self._plan.tokens_per_step)
        self._compare(stats)
        return stats

    def _compare(self, stats: StepStats) -> None:
        logged = self._logged.get(stats.step)
        for step in [step for step in self._logged if step <= stats.step]:
            del self._logged[step]
        if logged is None or not math.isfinite(logged):
            return
        if not abs(stats.lm_loss - logged) <= _ROUNDING + 1e-6 * abs(logged):
            raise MetricsError(
                f"step {stats.step} has lm_loss {stats.lm_loss!r} in metrics_file and {logged} in "
                "the log; does another run write to it?"
            )

    def _record(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if float(record["step"]).is_integer():
                return dict(record)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        raise MetricsError(
            f"line {self._lines} of metrics_file is {line[:80]!r}, expected a JSON object with a "
            "step"
        )


def _stats(record: dict[str, Any], step: int, tokens_per_step: int) -> StepStats:
    """Converts a record to the fields of our own engine; fields that MaxText does not have
    are NaN.
    """

    def number(*names: str) -> float:
        value = next((record[name] for name in names if name in record), _NAN)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise MetricsError(
                f"step {step} of metrics_file has {names[0]} = {value!r}, expected a number"
            )
        return float(value)

    layers = sorted(
        name.partition("/")[2] for name in record if name.startswith(f"{_ACTIVATIONS[0]}/")
    )
    return StepStats(
        step=step,
        loss=number("learning/loss"),
        lm_loss=number("learning/lm_loss", "learning/loss"),
        learning_rate=number("learning/current_learning_rate"),
        grad_norm=number("learning/raw_grad_norm"),
        clipped_grad_norm=number("learning/grad_norm"),
        param_norm=number("learning/param_norm"),
        update_norm=_NAN,
        tokens=(step + 1) * tokens_per_step,
        step_seconds=number("perf/step_time_seconds"),
        data_wait_seconds=_NAN,
        nonfinite_inputs=_NAN,
        layer_grad_norms=(),
        tflops_per_device=number("perf/per_device_tflops_per_sec"),
        layers=tuple(tuple(number(f"{name}/{layer}") for name in _ACTIVATIONS) for layer in layers)
        or None,
    )


# Runs one MaxText process, without a shell and in the caller's process group, so that killing the
# group kills it too.

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds a process may write no line before it counts as hung, and what to call when
    it writes one.
    """

    seconds: float
    alive: Callable[[], None] = lambda: None


class Silence:
    """Measures how long a process has written no line into its log."""

    def __init__(self, log: Log, patience: Patience) -> None:
        self._log, self._patience = log, patience
        self._lines = 0
        self._since = time.monotonic()

    def broken(self) -> None:
        """Restart the clock after another sign of life than a log line."""
        self._since = time.monotonic()

    def check(self, doing: str, *, transient: bool) -> None:
        """Call this at every read of the log. Raises HungError after too long a silence.

        `doing` completes the error's sentence; `transient` is whether another attempt may succeed.
        """
        if self._log.lines_read > self._lines:
            self._lines, self._since = self._log.lines_read, time.monotonic()
            self._patience.alive()
        if time.monotonic() - self._since > self._patience.seconds:
            message = (
                f"MaxText wrote nothing for {self._patience.seconds:g} s {doing} and was killed as "
                "hung"
            )
            raise HungError(
                f"{message}; the last lines of its log:\n{self._log.end()}", transient=transient
            )


@contextmanager
def running(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the process with its output in `log`; kills it when the block ends, or when this
    process dies (Linux).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            ends_with_parent(command, signal.SIGKILL),
            cwd=folder,
            env=process_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_to_its_end(
    command: Sequence[str],
    file: Path,
    environment: Mapping[str, str],
    patience: Patience,
    doing: str,
    *,
    transient: bool,
) -> Log:
    """Runs a process in the folder of `file` until it ends with status 0, and returns its log,
    which `file` holds.

    Raises HungError if it wrote nothing for too long, and the error of `failure` for any other
    status. `doing` completes the error's sentence; `transient` is whether another attempt may
    succeed after a silence.
    """
    log = Log(file, sys.stderr)
    silence = Silence(log, patience)
    with running(command, file.parent, file, environment) as process:
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            list(log.steps())
            silence.check(f"while it {doing}", transient=transient)
    list(log.steps())
    if process.returncode != 0:
        raise failure(process.returncode, log, f"while it {doing}", progressed=False)
    return log


def process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for MaxText: the training process's own, without Google Cloud."""
    return {**environment, "DECOUPLE_GCLOUD": "TRUE", "PYTHONUNBUFFERED": "1"}


def meeting_place(environment: Mapping[str, str], own: Processes) -> dict[str, str]:
    """Returns the environment in which MaxText's processes find each other (hardware:
    gpu_multiprocess).

    Raises WrapperError if the coordinator's address is missing.
    """
    if own.count == 1:
        return dict(environment)
    host, _, port = own.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise WrapperError(
            f"{COORDINATOR} is {own.coordinator!r}, expected host:port of the first of {own.count} "
            "processes of MaxText"
        )
    variables = {
        "JAX_COORDINATOR_IP": host,
        "JAX_COORDINATOR_PORT": port,
        "NNODES": str(own.count),
        "NODE_RANK": str(own.number),
    }
    return {**environment, **variables}


def failure(status: int, log: Log, after: str, *, progressed: bool) -> MaxTextError:
    """Returns the error for a process that ended with a status other than 0, with the end of its
    log.

    `progressed`: it had trained steps, so another attempt may succeed.
    """
    end = f"the last {LOG_LINES} lines of its log:\n{log.end()}"
    if log.out_of_memory:
        return TooLittleMemoryError(
            f"MaxText ran out of memory {after}; reduce data.batch_size or the model, or shard it "
            f"further; {end}"
        )
    if status < 0:
        hint = ""
        if status == -signal.SIGKILL:
            hint = (
                " (from outside, for example by the kernel if memory ran out; in that case reduce "
                "data.batch_size or the model)"
            )
        return CrashedError(
            f"MaxText was killed by signal {-status}{hint} {after}; {end}", transient=True
        )
    return CrashedError(
        f"MaxText ended with status {status} {after}{log.error()}; {end}", transient=progressed
    )


# Builds MaxText's command line for a run, as a list of arguments without a shell.
#
# What it answers: which options did MaxText get, and how do the arms' commands differ? They differ
# only in `quantization` and its declared consequences (CONSEQUENCES); `shared` returns the rest,
# and every run records it.
#
# Replicate r of seed s has the same parameters at step 0 and the same batches; a different
# `init_weights_seed`, from which Transformer Engine draws its stochastic rounding; and a learning
# rate of (1 + 1e-6 r) times the planned one, because without stochastic rounding it would repeat
# replicate 0 bit for bit.
#
# From one seed, MaxText 0.2.5 draws other parameters with `quantization=fp8` than without
# quantization (first loss 6.724 against 6.586 nats on a small decoder). So a separate process, at
# learning rate 0 and with the delayed-scaling recipe, writes a checkpoint of step 0, which the arms
# load. The delayed-scaling arms draw the same parameters from the seed instead: MaxText can't load
# parameters without the history of amaxes, and saves that elsewhere. They round nothing at random,
# so their replicates need no other seed.
#
# Source: MaxText 0.2.5, configs/base.yml; utils/maxtext_utils.py for the schedule.

Value = str | int | float | bool
PERTURBATION = 1e-6
QUANTIZATION = "quantization"
# Options that may follow from `quantization` and are recorded with it.
CONSEQUENCES = ("remat_policy",)
_NEVER = 1 << 30
_MODULE = "maxtext.trainers.pre_train.train"
# By implementation: the recipe that keeps a history next to its parameters; all arms start from its
# parameters.
_DELAYED = {"te": "te_fp8_delayedscaling", "xla": "fp8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One run on this worker: the MaxText and the environment of its processes, and where they read
    and write.

    Each of several processes of a run has its own number (`part`) and log.
    """

    spec: RunSpec
    maxtext: Installed
    environment: Mapping[str, str]
    folder: Path
    part: int = 0

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / (f"maxtext-{self.part}.log" if self.part else "maxtext.log")

    @property
    def checkpoints(self) -> Path:
        return self.folder / "run" / "checkpoints"

    @property
    def evaluation(self) -> Path:
        return self.folder / "evaluation"

    @property
    def evaluated_metrics(self) -> Path:
        return self.evaluation / "metrics.jsonl"

    @property
    def first_parameters(self) -> Path:
        return self.folder / "step0" / "checkpoints" / "0" / "items"


def settings(spec: RunSpec) -> dict[str, Value]:
    """The options that MaxText gets for a run, without paths and process: {key of base.yml:
    value}.
    """
    return {
        **_model(spec),
        **_data(spec),
        **_schedule(spec),
        **mesh(spec.maxtext, spec.devices),
        **_arm(spec),
        "hardware": spec.maxtext.hardware,
        "attention": spec.maxtext.attention,
        "scan_layers": spec.maxtext.scan_layers,
        "dtype": "bfloat16",
        "weight_dtype": "float32",
        "enable_dropout": False,
        "dropout_rate": 0.0,
        "data_shuffle_seed": spec.seed,
        "init_weights_seed": init_weights_seed(
            spec.seed, spec.replicate if loads_parameters(spec) else 0
        ),
        "eval_interval": -1,
        **({"record_internal_nn_metrics": 1} if spec.maxtext.record_internal_nn_metrics else {}),
        "enable_tensorboard": False,
        "log_config": False,
        "skip_jax_distributed_system": spec.maxtext.hardware != "gpu_multiprocess",
    }


def shared(spec: RunSpec) -> str:
    """Returns the options that the commands of all runs of a job share, as one text to compare."""
    plain = settings(replace(spec, seed=0, replicate=0))
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(plain.items())
        if name not in (QUANTIZATION, *CONSEQUENCES)
    )


def own(spec: RunSpec) -> str:
    """Returns the options that only this arm's command has, as one text."""
    facts = _arm(spec) | {"first_parameters": "loaded" if loads_parameters(spec) else "drawn"}
    return " ".join(f"{name}={value}" for name, value in facts.items())


def train_command(launch: Launch, steps: int) -> list[str]:
    """The arguments of the training process, which trains the first `steps` of the schedule."""
    spec, every = launch.spec, launch.spec.schedule.validation_every
    values = settings(spec) | {
        "run_name": "run",
        # every process that gets one writes to it
        "metrics_file": "" if launch.part else str(launch.metrics),
        "load_parameters_path": str(launch.first_parameters) if loads_parameters(spec) else "",
        "enable_checkpointing": resumes(spec),
        "checkpoint_period": every or spec.maxtext.checkpoint_period,
        "save_checkpoint_on_start": False,
        "save_checkpoint_on_completion": False,
        # Three to resume from, or all that will be evaluated.
        "max_num_checkpoints_to_keep": spec.schedule.steps // every + 1 if every else 3,
    }
    # MaxText takes warm-up and decay from `learning_rate_schedule_steps`, by default `steps`
    if steps < spec.schedule.steps:
        values |= {"steps": steps, "learning_rate_schedule_steps": spec.schedule.steps}
    return _arguments(values, launch)


def first_parameters_command(launch: Launch) -> list[str]:
    """The arguments of the process that writes the parameters at step 0 of a seed: one step at
    learning rate 0.
    """
    values = settings(replace(launch.spec, replicate=0, recipe="bf16")) | {
        QUANTIZATION: _DELAYED[launch.spec.maxtext.implementation],
        "steps": 1,
        "learning_rate": 0.0,
        "run_name": "step0",
        "metrics_file": "",
        "enable_checkpointing": True,
        "save_checkpoint_on_start": True,
        "async_checkpointing": False,
    }
    return _arguments(values, launch)


def evaluation_command(launch: Launch, step: int) -> list[str]:
    """The arguments of the process that evaluates the state after `step`: it continues for one step
    at learning rate 0.
    """
    options = launch.spec.maxtext
    values = settings(launch.spec) | {
        "run_name": "evaluation",
        "steps": step + 2,
        "learning_rate": 0.0,
        "metrics_file": str(launch.evaluated_metrics),
        "load_parameters_path": "",
        "enable_checkpointing": True,
        "checkpoint_period": _NEVER,
        "save_checkpoint_on_start": False,
        "save_checkpoint_on_completion": False,
        "eval_start_step": step + 1,
        "eval_interval": 1,
        "eval_steps": options.eval_steps,
        "grain_eval_files": options.eval_path,
        "grain_worker_count_eval": options.grain_worker_count,
    }
    return _arguments(values, launch)


def init_weights_seed(seed: int, replicate: int) -> int:
    """The seed of MaxText's params stream: the job's own for replicate 0, a 31-bit hash of both for
    the others.
    """
    if replicate == 0:
        return seed
    return (
        int.from_bytes(
            hashlib.sha256(json.dumps(["maxtext", seed, replicate]).encode()).digest()[:4], "big"
        )
        >> 1
    )


def loads_parameters(spec: RunSpec) -> bool:
    """Whether the run loads the parameters of step 0 instead of drawing the same ones from the
    seed.
    """
    return _arm(spec)[QUANTIZATION] != _DELAYED[spec.maxtext.implementation]


def resumes(spec: RunSpec) -> bool:
    """Whether a run may resume from a checkpoint: only grain saves its position in the data; other
    sources would start again.
    """
    return spec.data.source == "grain"


def _arm(spec: RunSpec) -> dict[str, Value]:
    options = spec.maxtext
    name = quantization("recipe", spec.recipe, options)
    if name and options.quantized_remat_policy:
        policy = options.quantized_remat_policy
    else:
        policy = options.remat_policy
    return {QUANTIZATION: name, "remat_policy": policy}


def _model(spec: RunSpec) -> dict[str, Value]:
    model = spec.model
    if spec.maxtext.model_name:
        return {"model_name": spec.maxtext.model_name}
    return {
        "decoder_block": "llama2",
        "vocab_size": model.vocab_size,
        "base_emb_dim": model.d_model,
        "base_num_decoder_layers": model.n_layers,
        "base_num_query_heads": model.n_heads,
        "base_num_kv_heads": model.n_kv_heads,
        "head_dim": model.head_size,
        "base_mlp_dim": model.d_ff,
        "rope_max_timescale": round(model.rope_theta),
        "logits_via_embedding": model.tied_embeddings,
    }


def _data(spec: RunSpec) -> dict[str, Value]:
    data, options = spec.data, spec.maxtext
    path = check_text("data.path", data.path or "")
    own: dict[str, dict[str, Value]] = {
        "grain": {
            "grain_train_files": path,
            "grain_file_type": options.grain_file_type,
            "grain_worker_count": options.grain_worker_count,
        },
        "hf": {
            "hf_path": path,
            "hf_name": options.hf_name,
            "hf_data_dir": options.hf_data_dir,
            "hf_train_files": options.hf_train_files,
            "train_split": options.train_split,
        },
        "tfds": {
            "dataset_path": path,
            "dataset_name": options.dataset_name,
            "train_split": options.train_split,
        },
    }
    return {
        "dataset_type": data.source,
        **{name: value for name, value in own[data.source].items() if value != ""},
        "tokenizer_path": options.tokenizer_path,
        "tokenizer_type": options.tokenizer_type,
        "packing": options.packing,
        "num_epoch": options.num_epoch,
        "max_target_length": data.sequence_length,
        "per_device_batch_size": data.batch_size / (spec.devices * spec.gradient_accumulation),
        "gradient_accumulation_steps": spec.gradient_accumulation,
    }


def _schedule(spec: RunSpec) -> dict[str, Value]:
    plan = spec.schedule
    return {
        "steps": plan.steps,
        "learning_rate": plan.learning_rate * (1.0 + PERTURBATION * spec.replicate),
        # MaxText takes the whole part of steps x fraction.
        "warmup_steps_fraction": (plan.warmup_steps + 0.5) / plan.steps,
        "learning_rate_final_fraction": plan.final_fraction,
        **_stable_phase(plan),
        "opt_type": plan.optimizer,
        **(
            {"muon_weight_decay": plan.weight_decay, "muon_consistent_rms": 0.2}
            if plan.optimizer == "muon"
            else {}
        ),
        "adam_b1": plan.beta1,
        "adam_b2": plan.beta2,
        "adam_weight_decay": plan.weight_decay,
        "gradient_clipping_threshold": plan.clip_norm,
        "z_loss_multiplier": plan.z_loss,
    }


def _stable_phase(plan: Schedule) -> dict[str, Value]:
    """MaxText's warm-up, stable, decay; the whole part of steps x fraction, so that it fits beside
    the warm-up.
    """
    if not plan.decay_steps:
        return {}
    return {
        "lr_schedule_type": "wsd",
        "wsd_decay_steps_fraction": (plan.decay_steps + 0.25) / plan.steps,
    }


def _arguments(values: Mapping[str, Value], launch: Launch) -> list[str]:
    placed = {**values, "base_output_directory": str(launch.folder)}
    if cache := launch.environment.get("JAX_COMPILATION_CACHE_DIR"):
        placed["jax_cache_dir"] = cache
    # MaxText reads `key=` as null and refuses it; options that are empty here are empty in base.yml
    # too.
    options = (f"{name}={value}" for name, value in placed.items() if value != "")
    return [launch.maxtext.python, "-m", _MODULE, launch.maxtext.base_yml, *options]
