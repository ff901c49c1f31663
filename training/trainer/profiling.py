"""Measures a run's time and memory: compilation, peak memory, and the device's shares of computing,
communicating and waiting.

    compile_seconds       time to compile programs in this process, or to read them from XLA's cache
    peak_memory_bytes     peak memory of the device (jax's allocator); on a CPU that of the process
    compute_share         share of the traced time in which a device computed
    communication_share   share of the traced time in which it ran only collectives (those that
                          overlap with computing cost nothing)
    idle_share            the rest: it waited for data or for the host
    data_wait_share       the host's time for tokens divided by the step time, as the steps report
                          them; overlaps with the device's work

The shares come from a jax.profiler trace of some steps, which stays in the run's folder for
TensorBoard or Perfetto. Without a trace they are NaN. A trace costs time but does not change any
bit.

The assumption that can fail: the trace's names. Lanes that begin with "Stream" belong to a GPU,
those of XLA's thread pools to a CPU; collectives are recognised by name (NCCL's or XLA's). A trace
begins at the step that was reported last; the device is up to a block ahead of it.
"""

import gzip
import json
import math
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from training.frozen import frozen
from training.step_values import StepStats

Intervals = list[tuple[float, float]]
COLUMNS = (
    "compile_seconds",
    "peak_memory_bytes",
    "compute_share",
    "communication_share",
    "idle_share",
    "data_wait_share",
    "traced_steps",
)
_COMPILED = "/jax/core/compile/backend_compile_duration"
_COLLECTIVE = re.compile(
    r"nccl|all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all|collective|psum|ppermute|send|recv",
    re.IGNORECASE,
)
_CPU_LANES = ("tf_XLA", "XLAEigen")
_LEAST_SECONDS = 0.2  # in less time a busy host may not have started any work on the device


@frozen
class Tracing:
    """Trace `steps` steps from step `first` on into `folder`; 0 means no trace."""

    folder: Path
    first: int = 10
    steps: int = 0


Report = Callable[[int, Mapping[str, float]], None]


def profiled(steps: Iterable[StepStats], plan: Tracing, report: Report) -> Iterator[StepStats]:
    """Yields the steps unchanged; calls `report` with the last step and COLUMNS when the trace has
    ended and at the end of the run.
    """
    compiled = _Compiled()
    trace = _Trace(plan)
    last, shares = -1, dict.fromkeys(COLUMNS[2:], math.nan)
    try:
        for stats in steps:
            last = stats.step
            finished = trace.follow(stats)
            if finished is not None:
                shares = finished
                report(last, compiled.so_far() | shares)
            yield stats
        if last >= 0:
            report(last, compiled.so_far() | (shares if trace.done else trace.stop(shares)))
    finally:
        trace.abandon()
        compiled.forget()


class _Compiled:
    """Seconds of compilation since its creation."""

    def __init__(self) -> None:
        self._seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            self._seconds += duration_secs

    def so_far(self) -> dict[str, float]:
        return {"compile_seconds": self._seconds, "peak_memory_bytes": peak_memory_bytes()}

    def forget(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._hear)


class _Trace:
    """A trace; it starts and stops between two steps."""

    def __init__(self, plan: Tracing) -> None:
        self._plan = plan
        self._seen: list[StepStats] = []
        self._running = False
        self._began = 0.0
        self.done = False

    def follow(self, stats: StepStats) -> dict[str, float] | None:
        """Start or stop the trace if it is time after this step; returns the shares if it stopped,
        else None.
        """
        plan = self._plan
        if self._running:
            self._seen.append(stats)
            if not self._holds_enough():
                return None
            return self.stop({})
        if plan.steps and not self.done and stats.step + 1 >= plan.first:
            plan.folder.mkdir(parents=True, exist_ok=True)
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            jax.profiler.start_trace(str(plan.folder), profiler_options=options)
            self._running, self._began = True, time.monotonic()
        return None

    def _holds_enough(self) -> bool:
        """Whether enough steps and time have passed: all steps of a block are reported at once,
        when the device has done them.
        """
        if len(self._seen) < self._plan.steps:
            return False
        took = sum(step.step_seconds for step in self._seen[: self._plan.steps])
        return time.monotonic() - self._began >= max(took, _LEAST_SECONDS)

    def stop(self, without: dict[str, float]) -> dict[str, float]:
        """Stop the trace and return its shares; `without` if none is running."""
        self.done = True
        if not self._running:
            return without
        self.abandon()
        waited, took = (
            sum(getattr(step, name) for step in self._seen)
            for name in ("data_wait_seconds", "step_seconds")
        )
        share = waited / took if took else math.nan
        return device_shares(newest(self._plan.folder)) | {
            "data_wait_share": share,
            "traced_steps": float(len(self._seen)),
        }

    def abandon(self) -> None:
        """Stop a trace without reading it, so that this process can start another one."""
        if self._running:
            self._running = False
            # jax 0.12 has types here, 0.10 has none
            jax.profiler.stop_trace()  # type: ignore[no-untyped-call, unused-ignore]


def peak_memory_bytes() -> float:
    """Peak memory in bytes of the device of this process that used most; on a CPU that of the
    process.
    """
    peaks = [
        int((device.memory_stats() or {}).get("peak_bytes_in_use", 0))
        for device in jax.local_devices()
    ]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(max(peaks) or (resident if sys.platform == "darwin" else resident * 1024))


def newest(folder: Path) -> dict[str, Any]:
    """Returns the newest trace that jax.profiler wrote into a folder, as Chrome's trace events;
    without events if there is none.
    """
    traces = sorted(folder.glob("plugins/profile/*/*.trace.json.gz"))
    if not traces:
        return {"traceEvents": []}
    with gzip.open(traces[-1]) as file:
        trace: dict[str, Any] = json.load(file)
    return trace


def device_shares(trace: Mapping[str, Any]) -> dict[str, float]:
    """Returns compute_share, communication_share and idle_share of a trace as means over its
    devices; NaN if it shows no device.
    """
    names: dict[int, str] = {}
    lanes: dict[tuple[int, int], str] = {}
    for event in trace["traceEvents"]:
        if event.get("name") == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event.get("name") == "thread_name":
            lanes[event["pid"], event["tid"]] = event["args"]["name"]
    computing: dict[int, Intervals] = {}
    talking: dict[int, Intervals] = {}
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or not _is_operation(
            names.get(event["pid"], ""), lanes.get((event["pid"], event["tid"]), ""), event["name"]
        ):
            continue
        kind = talking if _COLLECTIVE.search(event["name"]) else computing
        kind.setdefault(event["pid"], []).append((event["ts"], event["ts"] + event["dur"]))
    every = [part for kind in (computing, talking) for parts in kind.values() for part in parts]
    if not every:
        return dict.fromkeys(COLUMNS[2:5], math.nan)
    window = max(end for _, end in every) - min(start for start, _ in every)
    devices = computing.keys() | talking.keys()
    compute = sum(_length(computing.get(device, [])) for device in devices) / len(devices) / window
    busy = (
        sum(_length(computing.get(device, []) + talking.get(device, [])) for device in devices)
        / len(devices)
        / window
    )
    return {"compute_share": compute, "communication_share": busy - compute, "idle_share": 1 - busy}


def _is_operation(process: str, lane: str, name: str) -> bool:
    """Whether an event is a device's work: a kernel on a GPU's stream, or an operation in XLA's
    thread pools on a CPU.
    """
    if process.startswith("/device:"):
        return lane.startswith("Stream")
    return lane.startswith(_CPU_LANES) and "::" not in name and not name.startswith("end: ")


def _length(parts: Intervals) -> float:
    """Returns the length of the union of intervals."""
    covered, reached = 0.0, -math.inf
    for start, end in sorted(parts):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
