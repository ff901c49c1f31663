"""The table in docs/hardware.md of what a session of 25 minutes does, made from its steps.

Each step takes the least seconds that it needs; the rules by which it begins are those of
`session`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parity.frozen import frozen
from tools.gpu_evidence.budget import CLOSING_SECONDS
from tools.gpu_evidence.steps import Step, steps
from tools.tables.generated import DOCS, GeneratedTable

MINUTES = 25
CUTS = (5, 10, 15, 20)
_DEVICE_SECONDS = 10.0  # to start jax
_GIVES = {
    "device": "device, driver, versions; without a GPU the session ends",
    "preflight": "`parity preflight`: codes, sums and rounding of the emulation",
    "pair": "bf16 against `fp8_current` and `nvfp4`, 20 M, two seeds, through the service: "
    "verdicts, bundle, curves",
    "abilities": "which engine runs which recipe here, and why not the rest",
    "te_preflight": "codes and scales of TE's kernels against known answers",
    "te_layers": "TE's layer against the emulation: y, dx, dw",
    "te_layers_accurate": "the same with `NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION=1`",
    "te_vectors": "a vector file of TE's kernels, where PyTorch is installed",
    "te_pair": "bf16 against TE's `fp8_current`, 20 M, two seeds: verdict, bundle, curves",
    "speeds_20m": "steps of 20 M",
    "speeds_150m": "steps of 150 M",
    "te_speeds": "TE's FP8 layer, the emulated one and bf16",
    "speeds_1b": "steps of 1 B",
}


@frozen
class TimetableRow:
    """A step with the seconds of its session in which it runs, and its size."""

    step: Step
    begin: float
    end: float
    size: tuple[str, ...]


def rows(minutes: float) -> Iterator[TimetableRow]:
    """The steps that a session of so many minutes begins, in the order of their begin."""
    now, last = 0.0, minutes * 60 - CLOSING_SECONDS
    busy_until = 0.0  # by the step in the background
    for step in steps(Path("out"), None):
        if step.alone or (step.patient and last - busy_until >= step.sizes[-1].seconds * 1.1):
            now = max(now, busy_until)
        size = step.fitting(last - now)
        if size is None:
            continue
        seconds = size.seconds or _DEVICE_SECONDS
        yield TimetableRow(step=step, begin=now, end=now + seconds, size=size.arguments)
        if step.background:
            busy_until = now + seconds
        else:
            now += seconds


def table(minutes: float = MINUTES) -> str:
    """The table, and a line for each minute at which the session may be cut."""
    made = list(rows(minutes))
    lines = ["| minute | step | gives |", "| --- | --- | --- |"]
    for row in made:
        size = f" ({' '.join(row.size).removeprefix('--steps ')} steps)" if row.size else ""
        lines.append(
            f"| {_clock(row.begin)} to {_clock(row.end)} | `{row.step.name}`{size} | "
            f"{_GIVES[row.step.name]} |"
        )
    lines += ["", "| cut at minute | there are | cut in the middle |", "| --- | --- | --- |"]
    for cut in CUTS:
        done = [f"`{row.step.name}`" for row in made if row.end <= cut * 60]
        running = [
            f"`{row.step.name}` at {(cut * 60 - row.begin) / (row.end - row.begin):.0%}"
            for row in made
            if row.begin < cut * 60 < row.end
        ]
        lines.append(f"| {cut} | {', '.join(done)} | {', '.join(running) or 'none'} |")
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


TABLE = GeneratedTable(name="timetable", parts={DOCS / "hardware.md": {"first half hour": table}})
