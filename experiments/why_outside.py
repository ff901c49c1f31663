"""Does an analysis name GEMMs whose precision is not the cause, and does its replay let the planted
faults of `experiments.why` pass?

    taskset -c 1 nice -n 19 python -m experiments.why_outside run       # what why.jsonl does not
      hold yet; stop it at will
    XLA_FLAGS=--xla_backend_optimization_level=0 python -m experiments.why_outside build   # the
      record of another build, harmless
    python -m experiments.why_outside table                             # the rows of
      docs/evidence.md

outside   one run of a pair is trained with something else than its specification says (CAUSES):
          schedule, optimizer, data, initial weights,
          a state that broke at a resume, another library. The pair is nvfp4 against fp8_current,
          where forks always name something, or
          nvfp4 against itself. `parity_lab.training.replays.Replays`, the code of a worker, then
          trains that run's record again
inside    a fault of `experiments.why` in some GEMMs of the candidate, or none: record and replay
          both have it
build     a record of another build, whose bits differ from the fourth step on: harmless, and reruns
          must say so

A case is replayed as in a long run (windows from step 0 and from the checkpoint) and as in a short
one (whole). The other run of the pair follows its record, as every honest run did. What the replay
lets pass goes on to forks; between different recipes those name something in 20 of 20 cases,
between equal ones in 1 of 65.

The assumption that can fail: models of 0.1 million parameters, 400 steps, one cause at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.why import RECORD, WORK
from experiments.why_cases import DATA, PLANTED, PLANTS, STEPS
from experiments.why_faults import MARK, codes, spoiled
from experiments.why_table import share
from parity_lab.parting import COLUMNS, parts_at
from parity_lab.replay import RecordedRun, check, planned
from parity_lab.training.replays import Replays
from training.arithmetic import linear, random_bits
from training.device import describe
from training.provenance import trainer_facts
from training.spec import RunSpec, Schedule
from training.trainer import data, optimizer
from training.trainer.checkpoint import Checkpointing, Checkpoints
from training.trainer.identity import identity, manifest
from training.trainer.run import TrainingRun
from training.trainer.step import ROW, State

KEPT, SEEDS, BLOCK = 240, 4, 64
EARLY, LATE = 120, 320  # before and after the checkpoint, where no window looks
_SETTINGS = "0.1M x 400, 4 x 64 tokens, outside"
_LOSS = ROW.index("lm_loss")
_LATE_SHARE = 0.8
Tokens = npt.NDArray[np.int32]


def _noisy(size: float, state: State) -> State:
    """Every weight times 1 plus noise of this size."""
    random = np.random.default_rng(7)
    return state._replace(
        parameters=jax.tree.map(
            lambda w: w * jnp.asarray(1 + size * random.standard_normal(w.shape), w.dtype),
            state.parameters,
        )
    )


def _scaled(factor: float, state: State) -> State:
    return state._replace(
        parameters=jax.tree.map(lambda w: w * np.float32(factor), state.parameters)
    )


def _zeroed(state: State) -> State:
    """One layer of the last block is zero."""
    parameters = {**state.parameters, "blocks": [*state.parameters["blocks"]]}
    last = parameters["blocks"][-1]
    parameters["blocks"][-1] = {**last, "down": jnp.zeros_like(last["down"])}
    return state._replace(parameters=parameters)


def _forgotten(state: State) -> State:
    """The optimizer starts again."""
    return state._replace(moments=optimizer.initial_state(state.parameters))


def _halved(state: State) -> State:
    return state._replace(
        moments=state.moments._replace(mu=jax.tree.map(lambda moment: moment / 2, state.moments.mu))
    )


def _rounded(state: State) -> State:
    """Weights as a library keeps them that has no master copy."""
    return state._replace(
        parameters=jax.tree.map(lambda w: w.astype(jnp.bfloat16).astype(w.dtype), state.parameters)
    )


def _doubled(tokens: Tokens) -> Tokens:
    """The second half of each batch is the first."""
    return np.concatenate([tokens[:, : DATA.batch_size // 2]] * 2, axis=1)


def _garbled(share_of: float, tokens: Tokens) -> Tokens:
    random = np.random.default_rng(int(tokens.sum()) % 2**31)
    return np.where(
        random.random(tokens.shape) < share_of, random.integers(0, 256, tokens.shape), tokens
    ).astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a run does outside its specification: another schedule; `change` its state before step
    `first`, or after each step (`always`); from step `first` to `end` the tokens of step
    `at(step)`, of another order (`seed`), or spoiled (`spoil`).
    """

    name: str
    schedule: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[State], State] | None = None
    always: bool = False
    first: int = 0
    end: int = STEPS
    seed: int = 0
    at: Callable[[int], int] = int
    spoil: Callable[[Tokens], Tokens] | None = None


def _schedules() -> Iterator[Cause]:
    values: Mapping[str, tuple[float, ...]] = {
        "learning_rate": (4.2e-3, 5.2e-3, 2.8e-3, 8e-3),
        "weight_decay": (0.0, 0.2, 1.0),
        "beta2": (0.99, 0.999),
        "beta1": (0.8,),
        "warmup_steps": (10, 100),
        "clip_norm": (0.3, 100.0),
        "final_fraction": (0.5,),
        "z_loss": (0.0, 1e-2),
        "steps": (440,),
    }
    for name, settings in values.items():
        for value in settings:
            yield Cause(name=f"{name} {value:g}", schedule={name: value})


CAUSES = (
    *_schedules(),
    Cause(name="data in another order", seed=1),
    Cause(name="data in another order for 80 steps", seed=1, first=EARLY, end=200),
    Cause(name="data in another order at the end", seed=1, first=LATE),
    Cause(name="the first half of the data twice", first=200, at=lambda step: step - 200),
    Cause(name="a batch is left out", first=EARLY, at=lambda step: step + 1),
    Cause(name="half of each batch twice", spoil=_doubled),
    Cause(name="3 % of the tokens garbled", spoil=partial(_garbled, 0.03)),
    Cause(name="one batch garbled", spoil=partial(_garbled, 1.0), first=150, end=151),
    Cause(name="initial weights 10 % larger", change=partial(_scaled, 1.1)),
    Cause(name="initial weights 1 % other", change=partial(_noisy, 0.01)),
    *(
        Cause(name=f"{what} at step {first}", change=change, first=first)
        for first in (EARLY, LATE)
        for what, change in (
            ("weights 1 % other", partial(_noisy, 0.01)),
            ("weights 5 % other", partial(_noisy, 0.05)),
            ("optimizer lost", _forgotten),
            ("a layer zeroed", _zeroed),
        )
    ),
    Cause(name="momentum halved at step 120", change=_halved, first=EARLY),
    Cause(name="weights rounded to bf16 at step 120", change=_rounded, first=EARLY),
    Cause(name="weights in bf16 throughout", change=_rounded, always=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A cause in one run of a pair."""

    cause: Cause
    recipes: tuple[str, str]
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """Such as `beta2 0.99 in the candidate, fp8_current and nvfp4, seed 3`."""
        return (
            f"{self.cause.name} in the {self.arm}, {' and '.join(self.recipes)}, seed {self.seed}"
        )

    @property
    def recipe(self) -> str:
        """That of the run with the cause."""
        return self.recipes[self.arm == "candidate"]


def cases() -> Iterator[Outside]:
    """Each cause in a candidate of another recipe, and then in turn in such a baseline, or in a
    candidate of the same recipe.
    """
    different, equal = ("fp8_current", "nvfp4"), ("nvfp4", "nvfp4")
    for number, cause in enumerate(CAUSES):
        yield Outside(cause=cause, recipes=different, arm="candidate", seed=number % SEEDS)
        other = (equal, "candidate") if number % 2 else (different, "baseline")
        yield Outside(cause=cause, recipes=other[0], arm=other[1], seed=(number + 1) % SEEDS)


class Caused(TrainingRun):
    """A run with a cause."""

    def __init__(self, spec: RunSpec, cause: Cause) -> None:
        super().__init__(
            replace(spec, schedule=replace(spec.schedule, **cause.schedule)),
            _corpus(),
            fast_bf16=describe().fast_bf16,
        )
        self._cause = cause

    def _tokens(self, first: int, count: int, capacity: int | None = None) -> jax.Array:
        cause, data_seed = self._cause, self._data_seed
        tokens = np.zeros(
            (capacity or self._capacity, DATA.batch_size, DATA.sequence_length + 1), np.int32
        )
        for number in range(first, first + count):
            acts = cause.first <= number < cause.end
            seed = (
                random_bits.integer_fold(data_seed, cause.seed)
                if acts and cause.seed
                else data_seed
            )
            batch = data.batches(
                _corpus().train, DATA, seed, cause.at(number) if acts else number, 1
            )
            tokens[number - first] = cause.spoil(batch)[0] if acts and cause.spoil else batch[0]
        return jax.device_put(tokens)

    def record(self, folder: Path, spec: RunSpec, steps: int) -> list[float]:
        """Train, keep the checkpoint in a folder, and return the losses."""
        cause = self._cause
        writer = Checkpoints(Checkpointing(folder=folder, keep=(KEPT,)), identity(spec, _corpus()))
        rows: list[Any] = []
        while len(rows) < steps:
            first = len(rows)
            if cause.change is not None and (cause.always or first == cause.first):
                self.start_from(cause.change(self.state))
            stops = (cause.first, KEPT, steps, first + (1 if cause.always else BLOCK))
            count = min(stop for stop in stops if stop > first) - first
            rows += [*np.asarray(self.advance(first, count).rows, np.float64)[:count]]
            if len(rows) == KEPT:
                writer.save(KEPT, jax.tree.map(jnp.copy, self.state))
        writer.close()
        np.save(folder / "rows.npy", np.stack(rows))
        return np.stack(rows)[:, _LOSS].tolist()


@cache
def _corpus() -> data.Corpus:
    return data.load(DATA)


def spec_of(recipe: Any, seed: int, **changes: Any) -> RunSpec:
    """What a run is on record."""
    schedule = Schedule(steps=STEPS, learning_rate=4e-3)
    values: dict[str, Any] = {
        "engine": "emulated",
        "model": PLANTED.model,
        "data": DATA,
        "schedule": schedule,
        "layer_policy": "mlp_only",
    }
    return RunSpec(
        **values | {"recipe": recipe, "seed": seed, "replicate": 0, "devices": 1} | changes
    )


@cache
def _honest(recipe: str, seed: int) -> tuple[float, ...]:
    """The losses of a run as specified, once for all cases."""
    spec = spec_of(recipe, seed)
    return tuple(
        Caused(spec, Cause(name="none")).record(WORK / "outside" / f"{recipe} {seed}", spec, STEPS)
    )


class OutsideBench:
    """The record, and what it lacks."""

    def __init__(self) -> None:
        self._lines = list(records())
        self._about = {
            "settings": _SETTINGS,
            "code": trainer_facts({})["code_sha256"][:12],
            "device": describe().device_class,
        }

    def outside(self) -> None:
        """Every cause, replayed by windows and whole."""
        for case in cases():
            if self._has("outside", case.name):
                continue
            spec, folder = spec_of(case.recipe, case.seed), _folder(case)
            losses = Caused(spec, case.cause).record(folder, spec, STEPS)
            honest = _honest(case.recipe, case.seed)
            first = next(
                (at for at, (a, b) in enumerate(zip(losses, honest, strict=True)) if a != b), None
            )
            late = int(_LATE_SHARE * STEPS)
            windows = _windows(spec, folder, losses, case.arm)
            self._write(
                "outside",
                case.name,
                cause=case.cause.name,
                arm=case.arm,
                recipes=list(case.recipes),
                first_difference=first,
                late_difference=float(np.mean(losses[late:]) - np.mean(honest[late:])),
                windows=windows.outcome,
                noise=_windows(spec, folder, losses, case.arm, exact=False).outcome
                if case.seed == 0
                else None,
                whole="differs"
                if windows.outcome == "differs" or first is not None
                else windows.outcome,
            )

    def partings(self) -> None:
        """Whether the records of each pair part, as the server sees it before anything is
        trained.
        """
        for case in cases():
            if self._has("outside", case.name) and not self._has("parting", case.name):
                _honest(other := case.recipes[case.arm == "baseline"], case.seed)
                folders = [WORK / "outside" / f"{other} {case.seed}", _folder(case)]
                self._write(
                    "parting",
                    case.name,
                    **_parting(*(folders if case.arm == "candidate" else folders[::-1])),
                )

    def fresh(self) -> None:
        """Pairs and causes between windows with seeds on which no threshold was chosen."""
        between = [
            cause
            for cause in CAUSES
            if cause.first in (EARLY, LATE)
            and "1 %" not in cause.name
            and "rounded" not in cause.name
        ]
        for number, cause in enumerate(between):
            case = Outside(
                cause=cause,
                recipes=("fp8_current", "nvfp4"),
                arm="candidate",
                seed=SEEDS + 10 + number,
            )
            pair = [WORK / "outside" / f"{recipe} {case.seed}" for recipe in case.recipes]
            if self._has("fresh", case.name):
                continue
            for recipe in case.recipes:
                _honest(recipe, case.seed)
            self._write("fresh pair", case.name, **_parting(*pair))
            spec = spec_of(case.recipe, case.seed)
            Caused(spec, cause).record(_folder(case), spec, STEPS)
            self._write("fresh", case.name, cause=cause.name, **_parting(pair[0], _folder(case)))

    def inside(self, cases_of: int = 27) -> None:
        """Planted faults and healthy runs: the replay of a record that has the fault, with the
        arithmetic that has it.
        """
        kinds = list(PLANTS)
        with _faulty() as plant:
            for number in range(cases_of + 3):
                kind = kinds[number % len(kinds)] if number < cases_of else "healthy"
                units = (
                    PLANTS[kind][(number // len(kinds)) % len(PLANTS[kind])]
                    if number < cases_of
                    else ()
                )
                spec, steps = spec_of("nvfp4", number, switches=MARK), KEPT + 32
                name = " ".join([kind, *units, f"seed {number}"])
                if self._has("inside", name):
                    continue
                twin, folder = WORK / "outside" / "twin", WORK / "outside" / "inside"
                plant("healthy", ())
                Caused(spec, Cause(name="none")).record(twin, spec, steps)
                plant(kind, units)
                losses = Caused(spec, Cause(name="none")).record(folder, spec, steps)
                outcome = _windows(spec, folder, losses, "candidate", whole=1).outcome
                self._write(
                    "inside",
                    name,
                    fault=kind,
                    gemms=list(units),
                    whole=outcome,
                    **_parting(twin, folder),
                )

    def build(self) -> None:
        """The first steps of runs by this process's build."""
        for recipe in ("fp8_current", "nvfp4"):
            for seed in range(6):
                if not self._has("build", f"{recipe} seed {seed}"):
                    run = Caused(spec_of(recipe, seed), Cause(name="none"))
                    losses = np.asarray(run.advance(0, 32).rows, np.float64)[:32, _LOSS].tolist()
                    flags = os.environ.get("XLA_FLAGS", "")
                    self._write(
                        "build",
                        f"{recipe} seed {seed}",
                        recipe=recipe,
                        seed=seed,
                        flags=flags,
                        losses=losses,
                    )

    def builds(self) -> None:
        """What this build says of the records of another one."""
        for line in [line for line in self._lines if line["kind"] == "build"]:
            if not self._has("other build", line["case"]):
                replays = _windows(
                    spec_of(line["recipe"], line["seed"]),
                    WORK,
                    line["losses"],
                    "candidate",
                    exact=False,
                )
                result = replays.replayed[-1].result
                about = {
                    "recipe": line["recipe"],
                    "outcome": replays.outcome,
                    "departs": result["departs"],
                    "first": result["first"],
                }
                self._write("other build", line["case"], **about)

    def _has(self, kind: str, case: str) -> bool:
        return any(line["kind"] == kind and line["case"] == case for line in self._lines)

    def _write(self, kind: str, case: str, **values: Any) -> None:
        line = {**self._about, "kind": kind, "case": case, **values}
        self._lines.append(line)
        with RECORD.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {kind} {case}: {json.dumps(values)[:200]}\n")
        sys.stdout.flush()


def _folder(case: Outside) -> Path:
    return WORK / "outside" / "caused" / case.name.replace(" ", "_")


def _parting(baseline: Path, candidate: Path) -> dict[str, Any]:
    """Where the records in two folders part, and how."""
    rows = (np.load(folder / "rows.npy") for folder in (baseline, candidate))
    found = parts_at(*({name: row[:, ROW.index(name)] for name in COLUMNS} for row in rows))
    return {"parts": found and found.step, "how": found and found.how}


def _quiet() -> None:
    """Nobody waits for a sign of life."""


def _windows(
    spec: RunSpec,
    folder: Path,
    losses: list[float],
    arm: Any,
    *,
    whole: int = 0,
    exact: bool | None = None,
) -> Any:
    """What the replays of a record say; `exact`: whether equal bits are expected, whatever the
    manifest says.
    """
    checkpoints = (KEPT,) if len(losses) > KEPT else ()
    plan = planned(
        [RecordedRun(run=folder.name, arm=arm, steps=len(losses), checkpoints=checkpoints)], whole
    )
    record: Any = {
        "spec": spec,
        "manifest": manifest(spec, _corpus()),
        "losses": {
            str(replay.first): losses[replay.first : replay.first + replay.steps] for replay in plan
        },
    }
    replays = Replays({folder.name: record}, folder.parent, lambda path: path, _corpus())
    results: dict[str, Any] = {}
    while (pending := check(plan, results, accept_noise=True).pending) is not None:
        replay = pending.replay
        results[pending.key] = (
            replays.rerun(replay, pending.draw, _quiet)
            if pending.draw
            else replays.replay(replay, _quiet)
        )
        if exact is not None and not pending.draw:
            results[pending.key]["exact"] = exact
    return check(plan, results, accept_noise=True)


@contextmanager
def _faulty() -> Iterator[Callable[[str, Any], None]]:
    """The trainer's own program has the fault that a function plants; it lies in scales that these
    recipes do not use.
    """
    names: Any = vars(linear)
    original, initial, planted = (
        names["operand_of"],
        TrainingRun._initial_state,
        {"kind": "healthy", "units": ()},
    )

    def faulty_state(run: TrainingRun) -> State:
        state = initial(run)
        scale = jnp.asarray(codes(state.scales.scale.shape, planted["kind"], planted["units"]))  # type: ignore[arg-type]
        return state._replace(scales=state.scales._replace(scale=scale))

    def plant(kind: str, units: Any) -> None:
        planted.update(kind=kind, units=units)

    names["operand_of"] = spoiled
    TrainingRun._initial_state = faulty_state  # type: ignore[method-assign, assignment]
    jax.clear_caches()
    try:
        yield plant
    finally:
        names["operand_of"], TrainingRun._initial_state = original, initial  # type: ignore[method-assign]
        jax.clear_caches()


def records() -> Iterator[Mapping[str, Any]]:
    """The lines of this experiment."""
    yield from (
        line
        for line in map(json.loads, RECORD.read_text().splitlines())
        if line["settings"] == _SETTINGS
    )


def table() -> Iterator[str]:
    """Lines of Markdown."""
    lines = list(records())
    outside = [line for line in lines if line["kind"] == "outside"]
    yield "| measured | result |"
    yield "| --- | --- |"
    parted = {
        line["case"] for line in lines if line["kind"] == "parting" and line["parts"] is not None
    }
    passed = {
        mode: [line for line in outside if line[mode] != "differs"] for mode in ("whole", "windows")
    }
    passed["windows and record"] = [
        line for line in passed["windows"] if line["case"] not in parted
    ]
    for what, passed_lines in passed.items():
        different = sum(line["recipes"][0] != line["recipes"][1] for line in passed_lines)
        size = max((abs(line["late_difference"]) for line in passed_lines), default=0.0)
        yield f"| causes outside, {what}: passes | {share(len(passed_lines), len(outside))} |"
        yield (
            "| ... of different recipes, where forks name something; largest effect, nats | "
            f"{different}; {size:.4f} |"
        )
    for kind, what in (
        ("fresh", "causes between windows, other seeds: the record does not part"),
        ("fresh pair", "their honest pairs: it parts"),
    ):
        fresh = [line for line in lines if line["kind"] == kind]
        right = sum((line["parts"] is None) == (kind == "fresh") for line in fresh)
        yield f"| {what} | {share(right, len(fresh))} |"
    noisy = [line for line in outside if line["noise"] is not None]
    if noisy:
        passes = sum(line["noise"] != "differs" for line in noisy)
        yield (
            "| causes outside, windows, where equal bits are not expected: passes | "
            f"{share(passes, len(noisy))} |"
        )
    inside = [line for line in lines if line["kind"] == "inside"]
    if inside:
        stopped = sum(line["whole"] != "reproduced" or line["parts"] is not None for line in inside)
        yield (
            "| causes inside and healthy: stopped by replay or record | "
            f"{share(stopped, len(inside))} |"
        )
    builds = [line for line in lines if line["kind"] == "other build"]
    if builds:
        yield (
            "| another build: the replay stops it | "
            f"{share(sum(line['outcome'] != 'reproduced' for line in builds), len(builds))} |"
        )
    sizes = sorted(abs(line["late_difference"]) for line in outside)
    if sizes:
        yield (
            f"| size of the causes, nats: median (least to most) | {np.median(sizes):.4f} "
            f"({sizes[0]:.4f} to {sizes[-1]:.4f}) |"
        )


def main() -> int:
    """Compute, or print what is on record."""
    parser = argparse.ArgumentParser(description="Causes outside the GEMMs.")
    parser.add_argument("what", choices=["run", "inside", "fresh", "build", "table"])
    what = parser.parse_args().what
    if what == "table":
        sys.stdout.write("\n".join(table()) + "\n")
        return 0
    jax.config.update("jax_compilation_cache_dir", str(WORK / "compiled"))
    bench = OutsideBench()
    if what == "build":
        bench.build()
    elif what == "inside":
        bench.inside()
    elif what == "fresh":
        bench.fresh()
    else:
        bench.builds()
        bench.outside()
        bench.partings()
    return 0


if __name__ == "__main__":
    sys.exit(main())
