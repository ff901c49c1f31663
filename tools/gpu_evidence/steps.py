"""The steps of a session in their order of value: what each runs, how long it needs, and when it is
killed.

Seconds are those of an H200 (docs/hardware.md) with a third more for a machine that also measures,
compiles and writes. A step whose size can be chosen takes the largest that can end in the time that
is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Facts = Literal["file", "json", "lines"]
REHEARSAL_SECONDS = 120.0
STEPS = (4000, 2000, 1000, 500)
"""Lengths of a pair's runs."""
# Seconds of one step of 32 x 512 tokens at 20 M, a third more than measured: bf16, fp8_current and
# nvfp4 together, and bf16 with TE's FP8.
_PAIR_STEP, _TE_STEP = 0.081, 0.039
_SEEDS = 2
_PAIR_START, _TE_START = 100.0, 75.0  # the service starts, and each arm's program is compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """One size of a step: the least seconds that it needs, and its arguments."""

    seconds: float
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. `module` and its arguments follow the Python that runs it.

    sizes: the largest first; the first that fits is run. limit: seconds after which it is killed;
    None: at the end of the session. facts: where the step's facts come from: the file of its option
    --facts, the JSON on the last line of its output, or its lines. refusal: the exit status that
    means that it cannot run here. timed: the option --seconds names its limit. background: later
    steps run beside it. alone: it measures, so it waits until no step runs beside it. patient: it
    waits so too, as long as it can still end.
    """

    name: str
    module: tuple[str, ...]
    sizes: tuple[StepSize, ...]
    limit: float | None = None
    facts: Facts = "file"
    fine: tuple[int, ...] = (0,)
    refusal: int | None = None
    timed: bool = False
    background: bool = False
    alone: bool = False
    patient: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def fitting(self, left: float) -> StepSize | None:
        """The largest size that can end in the seconds that are left, or None."""
        return next((size for size in self.sizes if size.seconds <= left), None)


def steps(out: Path, tokens: Path | None) -> list[Step]:
    """The steps on a GPU. Results, logs and the service's state lie in `out`; without tokens the
    pairs train on bytes.
    """
    data = () if tokens is None else ("--tokens", str(tokens))

    def pair(
        name: str, job: str, count: float, start: float, step_seconds: float, **more: object
    ) -> Step:
        module = ("-m", "tools.gpu_evidence.pair", job, "--folder", str(out / name), *data)
        sizes = tuple(
            StepSize(
                seconds=start + _SEEDS * number * step_seconds, arguments=("--steps", str(number))
            )
            for number in STEPS
            if number <= count
        )
        return Step(name=name, module=module, sizes=sizes, timed=True, **more)  # type: ignore[arg-type]

    layers = ("-m", "tools.gpu_evidence.layers")
    speeds = ("benchmarks/gpu_arithmetic.py", "--seconds", "4", "--sizes")
    accurate = {"NVTE_FP8_GEMM_HIGH_PRECISION_ACCUMULATION": "1"}
    return [
        device("gpu"),
        _step("preflight", _preflight("emulated"), 45, 150, facts="json"),
        pair("pair", "emulated", 4000, _PAIR_START, _PAIR_STEP, background=True),
        _step("abilities", ("-m", "training.device", "--json"), 30, 120, facts="json"),
        _step("te_preflight", _preflight("transformer_engine"), 45, 150, facts="json", refusal=2),
        _step("te_layers", layers, 40, 180, refusal=2),
        _step("te_layers_accurate", layers, 40, 180, refusal=2, environment=accurate),
        _step(
            "te_vectors",
            ("tools/make_te_vectors.py", str(out / "te_kernels.npz")),
            30,
            120,
            facts="lines",
            refusal=2,
        ),
        pair("te_pair", "transformer_engine", 2000, _TE_START, _TE_STEP, patient=True),
        _step("speeds_20m", (*speeds, "20M"), 75, 150, facts="lines", fine=(0, 1), alone=True),
        _step("speeds_150m", (*speeds, "150M"), 100, 200, facts="lines", fine=(0, 1), alone=True),
        _step("te_speeds", (*layers, "--seconds", "2"), 45, 150, refusal=2, alone=True),
        _step(
            "speeds_1b",
            (*speeds, "1B", "--recipes", "fp8_current", "nvfp4"),
            120,
            300,
            facts="lines",
            fine=(0, 1),
            alone=True,
        ),
    ]


def rehearsal(out: Path, tokens: Path | None, seconds: float) -> list[Step]:
    """The same steps on a processor. What trains or measures has a stand-in of about `seconds` on
    two cores; none needs a GPU.
    """
    data = () if tokens is None else ("--tokens", str(tokens))
    small = ("--steps", str(max(20, round(3 * seconds))), "--small")
    immediate = (StepSize(seconds=0),)

    def pair(name: str, folder: str, arms: Sequence[str]) -> tuple[str, ...]:
        return (
            "-m",
            "tools.gpu_evidence.pair",
            name,
            "--folder",
            str(out / folder),
            *data,
            *small,
            "--arms",
            *arms,
        )

    layers = ("-m", "tools.gpu_evidence.layers", "--engine", "emulated")
    small_speeds = (
        "--any-device",
        "--sizes",
        "0.3M",
        "--recipes",
        "fp8_current",
        "--seconds",
        f"{seconds / 8:g}",
    )
    return [
        device("cpu"),
        Step(
            name="te_preflight",
            module=_preflight("transformer_engine"),
            sizes=immediate,
            facts="json",
            refusal=2,
        ),
        Step(
            name="pair",
            module=pair("emulated", "pair", ("fp8_current", "nvfp4")),
            sizes=immediate,
            background=True,
        ),
        Step(
            name="abilities",
            module=("-m", "training.device", "--json"),
            sizes=immediate,
            facts="json",
        ),
        Step(name="te_layers", module=layers, sizes=immediate, refusal=2),
        Step(
            name="te_vectors",
            module=("tools/make_te_vectors.py", str(out / "te_kernels.npz")),
            sizes=immediate,
            facts="lines",
            refusal=2,
        ),
        Step(
            name="te_pair",
            module=pair("emulated", "te_pair", ("fp8_current",)),
            sizes=immediate,
            patient=True,
        ),
        Step(
            name="speeds_20m",
            module=("benchmarks/gpu_arithmetic.py", *small_speeds),
            sizes=immediate,
            facts="lines",
            fine=(0, 1),
            alone=True,
        ),
        Step(
            name="te_speeds",
            module=(*layers, "--seconds", f"{seconds / 60:g}"),
            sizes=immediate,
            refusal=2,
            alone=True,
        ),
    ]


def device(expected: Literal["gpu", "cpu"]) -> Step:
    """The first step, without which no other begins."""
    return _step("device", ("-m", "tools.gpu_evidence.device", "--expect", expected), 0, 60)


def _preflight(engine: str) -> tuple[str, ...]:
    return ("-m", "training.preflight", "--engine", engine, "--json")


def _step(name: str, module: tuple[str, ...], seconds: float, limit: float, **more: object) -> Step:
    return Step(name=name, module=module, sizes=(StepSize(seconds=seconds),), limit=limit, **more)  # type: ignore[arg-type]
