"""Which unit causes a planted gap? Faults planted in single GEMMs, healthy and sham cases, and whether attribution names them.

    taskset -c 1 nice -n 15 python -m experiments.why run [CASE]   # computes what why.jsonl does not hold yet; stop it at will
    python -m experiments.why list                                 # the cases, and what each lacks
    taskset -c 1 nice -n 15 python -m experiments.why insert [CASE]  # forks of the baseline with the harm put in
    python -m experiments.why table                                # one row for every case with an answer

A case trains pairs of a baseline and a candidate that differ in what is planted, splits the candidate at its checkpoint (60 % of the
steps), and searches the guilty unit between forks; every unit is a suspect. Switching a unit off gives it the baseline's arithmetic. Every
result is one line of why.jsonl, and a search that was stopped goes on with the forks on record.

Faults are planted here, by replacing functions of the arithmetic in this process: the product has no code for them. The GEMM with the
fault has the switch `nan: hardware`, which changes nothing by itself for finite numbers, and marks the operands to spoil.

An effect at the checkpoint need not have the sign of the gap of the full runs: weights have adapted to what is switched off. With zeroed
gradients the candidate ended 0.056 nats worse, and 60 steps after the fault was switched off it was 0.004 nats worse still. So harm is also
put in: forks of the baseline's checkpoint with everything that the candidate does differently.

The assumption that can fail: the judge sees the fault in the full runs. Where it does not, there is nothing to find: every answer
has the pairs' gap with its interval, and only cases with a visible gap count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from parity.why.estimate import Estimate, estimate
from parity.why.forks import Forks, effect, fork_noise
from parity.why.halving import Cluster, Guilt, both_ways, find_guilty
from parity.why.parts import split
from training.arithmetic import linear
from training.arithmetic.quantize import Operand, Quantizer
from training.device import describe
from training.forks import Fork
from training.overrides import Override
from training.provenance import trainer_facts
from training.spec import Data, Model, RunSpec, Schedule
from training.switches import Switches
from training.trainer import data
from training.trainer.run import Run
from training.trainer.step import State
from training.why.measure import forked, losses, menu_decoder
from training.why.units import Choice, Measured, Unit, measured

RECORD = Path(__file__).with_suffix(".jsonl")
_DATA = Data(batch_size=8, sequence_length=64)
_MODEL = Model(d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=192)
_STEPS, _FORK_AT, _FORK_STEPS = 600, 360, 60
_PARENTS, _DRAWS, _AA_DRAWS = 3, 2, 4
_LATE = 0.8  # the late window of a full run starts here, as a share of its steps
_LATE_OF_A_FORK = 0.5
_BATCHES = 8
_ALPHA = 0.05
# Of every line; lines with others are left alone.
_SETTINGS = f"0.1M x {_STEPS}, forks at {_FORK_AT} for {_FORK_STEPS}, {_PARENTS} parents, {_DRAWS} draws"
_MARK = Switches(nan="hardware")
_INSERTED = ("put in", "baseline")  # arms of forks from the baseline's checkpoint
Spoil = Callable[[jax.Array, Quantizer, Callable[[jax.Array], Operand]], Operand]


def _zeroed(x: jax.Array, quantizer: Quantizer, quantize: Callable[[jax.Array], Operand]) -> Operand:
    """Gradients are lost: the copy for this product is zero."""
    operand = quantize(x)
    return operand._replace(value=jnp.zeros_like(operand.value)) if quantizer.stochastic else operand


def _stale_amax(x: jax.Array, _quantizer: Quantizer, quantize: Callable[[jax.Array], Operand]) -> Operand:
    """The scale comes from a time when the tensor was eight times smaller: what is larger saturates."""
    bound = jnp.max(jnp.abs(x.astype(jnp.float32))) * np.float32(1 / 8)
    return quantize(jnp.clip(x.astype(jnp.float32), -bound, bound).astype(x.dtype))


def _scale_order(x: jax.Array, quantizer: Quantizer, quantize: Callable[[jax.Array], Operand]) -> Operand:
    """The rows of the operand have each other's order: what an index error in the layout of scales does, at its worst."""
    operand = quantize(x)
    return operand if quantizer.stochastic else operand._replace(value=jnp.roll(operand.value, quantizer.block, axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the candidate does differently: an override of the baseline's recipe, or marked GEMMs that are spoiled; none is healthy."""

    name: str
    override: Override | None = None
    spoil: Spoil | None = None
    baseline: str = "nvfp4"
    seed: int = 0

    @property
    def candidate(self) -> tuple[Override, ...]:
        """The candidate's overrides of recipe nvfp4."""
        return () if self.override is None else (self.override,)


def _marked(block: int, projection: str, gemm: str) -> Override:
    places: dict[str, Any] = {"blocks": (block,), "projections": (projection,), "gemms": (gemm,)}
    return Override(switches=_MARK, **places)


def _in(block: int, projection: str, *gemms: str, recipe: str | None = None, **switches: Any) -> Override:
    places: dict[str, Any] = {"blocks": (block,), "projections": (projection,), "gemms": gemms, "recipe": recipe}
    return Override(switches=Switches(**switches), **places)


# The most telling first: one of every kind, then more places.
CASES = (
    Case(name="zeroed gradient, dgrad of down in block 0", override=_marked(0, "down", "dgrad"), spoil=_zeroed),
    Case(name="healthy", seed=1),
    Case(name="stale amax, fprop of gate in block 1", override=_marked(1, "gate", "fprop"), spoil=_stale_amax),
    Case(name="sham switch, wgrad of up in block 0", override=_marked(0, "up", "wgrad")),
    Case(name="scale order, fprop of up in block 0", override=_marked(0, "up", "fprop"), spoil=_scale_order),
    Case(name="mxfp4 in down of block 1", override=_in(1, "down", recipe="mxfp4")),
    Case(name="blocks of 64 in gate of block 0", override=_in(0, "gate", block_size=64)),
    Case(name="no rotation in down of block 1", override=_in(1, "down", "wgrad", rht=False)),
    Case(name="no stochastic rounding in up of block 1", override=_in(1, "up", "dgrad", "wgrad", stochastic_rounding=False)),
    Case(name="1D weights in down of block 0", override=_in(0, "down", "fprop", "dgrad", weight_scaling="1d")),
    Case(name="nvfp4 against fp8", baseline="fp8_current"),
)


class Bench:
    """One case in progress: its program, its parents' checkpoints, and the record."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._corpus = data.load(_DATA)
        self._baseline, self._candidate = _spec(case, case.baseline, ()), _spec(case, "nvfp4", case.candidate)
        own, other = (measured(spec.segments[0], _MODEL.n_layers) for spec in (self._candidate, self._baseline))
        menu = list(dict.fromkeys([*own.arithmetics[:1], *_taken(own), *_taken(other)]))
        self._fast = describe().fast_bf16
        self._model = menu_decoder(_MODEL, tuple(menu), fast_bf16=self._fast)
        self._own, self._other = (_numbered(each, menu) for each in (own, other))
        self.units = {unit.name: unit for unit in own.units}
        self._states: dict[tuple[str, int], State] = {}
        self._lines = [line for line in _lines() if line["case"] == case.name]
        facts = trainer_facts({})
        self._about = {"case": case.name, "settings": _SETTINGS, "code": facts["code_sha256"][:12], "device": describe().device_class}

    def toggled(self, units: Cluster) -> Choice:
        """The candidate's arithmetic, but the baseline's in these units."""
        choice = self._own.copy()
        for name in units:
            place = self.units[name].place
            choice[place] = self._other[place]
        return choice

    def run(self) -> None:
        """Compute what the record lacks, in the order in which a user would."""
        for replicate in range(_PARENTS):
            for arm in ("baseline", "candidate"):
                self._full_run(arm, replicate)
        self._instant()
        for replicate in range(_PARENTS):
            self._aa(replicate)
        self._search()

    def _full_run(self, arm: str, replicate: int) -> None:
        if self._find("run", arm=arm, replicate=replicate):
            return
        run = self._made(self._baseline if arm == "baseline" else self._candidate, replicate)
        choice = self._other if arm == "baseline" else self._own
        state, early = forked(self._model, run, run.state, choice, 0, _FORK_AT)
        self._states[arm, replicate] = state
        late = forked(self._model, run, state, choice, _FORK_AT, _STEPS - _FORK_AT).losses
        window = np.concatenate([early, late])[int(_LATE * _STEPS) :]
        self._write("run", arm=arm, replicate=replicate, steps=_STEPS, late_mean=float(window.mean()))

    def _state(self, arm: str, replicate: int) -> State:
        """An arm's state at the fork, computed again if this process does not have it."""
        if (arm, replicate) not in self._states:
            run = self._made(self._baseline if arm == "baseline" else self._candidate, replicate)
            choice = self._other if arm == "baseline" else self._own
            self._states[arm, replicate] = forked(self._model, run, run.state, choice, 0, _FORK_AT).state
        return self._states[arm, replicate]

    def insert(self) -> None:
        """Forks of the baseline's checkpoint: unchanged, and with the candidate's arithmetic everywhere."""
        for replicate in range(_PARENTS):
            for draw in range(1, _AA_DRAWS + 1):
                self._fork("baseline", self._other, replicate, 200 + draw, origin="baseline")
                self._fork("put in", self._own, replicate, 300 + draw, origin="baseline")

    def _instant(self) -> None:
        """The instant split of the first parent: each unit with the baseline's arithmetic, and alone with its own."""
        if self._find("instant"):
            return
        names, everything = [*self.units], (*self.units,)
        choices = {"off": self.toggled(everything), "on": self._own}
        for name in names:
            choices[f"without {name}"] = self.toggled((name,))
            choices[f"alone {name}"] = self.toggled(tuple(each for each in names if each != name))
        batches = data.validation_batches(self._corpus, _DATA)[:_BATCHES]
        values = dict(zip(choices, losses(self._model, self._state("candidate", 0), batches, choices.values()), strict=True))
        result = split(values, names)
        parts = {part.name: [part.without.value, part.without.se, part.alone.value, part.alone.se] for part in result.parts}
        whole, rest = result.whole, result.unexplained_without
        self._write("instant", batches=len(batches), whole=[whole.value, whole.se], unexplained=[rest.value, rest.se], parts=parts)

    def _aa(self, replicate: int) -> None:
        for draw in range(1, _AA_DRAWS + 1):
            self._fork("unchanged", self._own, replicate, draw)
            self._fork("everything", self.toggled((*self.units,)), replicate, 100 + draw)

    def _fork(self, arm: str, choice: Choice, replicate: int, draw: int, origin: str = "candidate") -> float:
        line = self._find("fork", arm=arm, replicate=replicate, draw=draw)
        if line:
            return float(line["loss"])
        run = self._made(self._candidate, replicate, draw)
        run.start_from(self._state(origin, replicate))
        values = forked(self._model, run, run.state, choice, _FORK_AT, _FORK_STEPS).losses
        loss = float(values[int(_LATE_OF_A_FORK * _FORK_STEPS) :].mean())
        self._write("fork", arm=arm, replicate=replicate, draw=draw, steps=_FORK_STEPS, loss=loss)
        return loss

    def _forks(self, arm: str, choice: Choice, first_draw: int) -> Forks:
        draws = range(first_draw, first_draw + _DRAWS)
        return {str(replicate): [self._fork(arm, choice, replicate, draw) for draw in draws] for replicate in range(_PARENTS)}

    def _search(self) -> None:
        if self._find("answer"):
            return
        unchanged, everything = (recorded(self._lines, arm) for arm in ("unchanged", "everything"))
        noise = fork_noise([unchanged, everything])
        whole = effect(unchanged, everything, noise)
        names = (*self.units,)

        def p_of(cluster: Cluster) -> float:
            if cluster == names:
                return whole.p()
            others = tuple(name for name in names if name not in cluster)
            number = 1000 + 100 * names.index(cluster[0]) + 10 * len(cluster)
            without = self._forks(f"without {cluster[0]} to {cluster[-1]}", self.toggled(cluster), 2 * number)
            alone = self._forks(f"alone {cluster[0]} to {cluster[-1]}", self.toggled(others), 2 * number + _DRAWS)
            return both_ways(effect(unchanged, without, noise).p(), effect(alone, everything, noise).p())

        guilt = find_guilty(names, p_of, _ALPHA)
        forks = [line for line in self._lines if line["kind"] == "fork" and line["arm"] not in _INSERTED]
        cost = {"fork_steps": sum(line["steps"] for line in forks), "pair_steps": 2 * _STEPS, "forks": len(forks)}
        self._write("answer", whole=[whole.value, whole.se], noise=noise.sd, **_answer(guilt), **cost)

    def _made(self, spec: RunSpec, replicate: int, draw: int = 0) -> Run:
        own = RunSpec(**{**_fields(spec), "replicate": replicate})
        fork = Fork(parent=own, step=_FORK_AT, draw=draw) if draw else None
        return Run(own, self._corpus, fast_bf16=self._fast, fork=fork)

    def _find(self, kind: str, **values: Any) -> Mapping[str, Any] | None:
        wanted = {"kind": kind, **values}
        return next((line for line in self._lines if all(line.get(name) == value for name, value in wanted.items())), None)

    def _write(self, kind: str, **values: Any) -> None:
        line = {**self._about, "kind": kind, **values}
        self._lines.append(line)
        with RECORD.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{self.case.name}: {kind} {json.dumps(values)[:110]}\n")
        sys.stdout.flush()


def _spec(case: Case, recipe: Any, overrides: Sequence[Override]) -> RunSpec:
    return RunSpec(
        recipe=recipe,
        overrides=tuple(overrides),
        engine="emulated",
        model=_MODEL,
        data=_DATA,
        schedule=Schedule(steps=_STEPS, learning_rate=4e-3),
        layer_policy="mlp_only",
        seed=case.seed,
        replicate=0,
        devices=1,
    )


def _fields(spec: RunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def _taken(own: Measured) -> list[Any]:
    """The arithmetics that a run itself takes."""
    return [own.arithmetics[number] for number in sorted(set(own.own.ravel().tolist()))]


def _numbered(own: Measured, menu: Sequence[Any]) -> Choice:
    """A run's choice in the numbers of another menu."""
    return np.array([menu.index(own.arithmetics[number]) for number in own.own.ravel()], np.int32).reshape(own.own.shape)


def _answer(guilt: Guilt) -> dict[str, Any]:
    tests = [[list(each.cluster), each.p, each.adjusted] for each in guilt.tested]
    return {"named": [list(cluster) for cluster in guilt.named], "tests": tests}


@contextmanager
def planted(case: Case) -> Iterator[None]:
    """Spoil the operands whose quantizer is marked."""
    original = linear.to_bfloat16
    spoil = case.spoil

    def spoiled(x: jax.Array, axis: int, quantizer: Quantizer, seed: Any = None, scale: Any = None) -> Operand:
        def quantize(values: jax.Array) -> Operand:
            return original(values, axis, quantizer, seed, scale)

        return spoil(x, quantizer, quantize) if spoil and quantizer.drops_nan else quantize(x)

    jax.clear_caches()
    linear.to_bfloat16 = spoiled  # type: ignore[attr-defined]
    try:
        yield
    finally:
        linear.to_bfloat16 = original  # type: ignore[attr-defined]
        jax.clear_caches()


def _lines() -> Iterator[Mapping[str, Any]]:
    if RECORD.exists():
        for line in map(json.loads, RECORD.read_text().splitlines()):
            if line["settings"] == _SETTINGS:
                yield line


def recorded(rows: Sequence[Mapping[str, Any]], arm: str) -> Forks:
    """The final losses of an arm's forks, by parent."""
    forks = [row for row in rows if row["kind"] == "fork" and row["arm"] == arm]
    return {str(replicate): [row["loss"] for row in forks if row["replicate"] == replicate] for replicate in range(_PARENTS)}


def put_in(rows: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """What the candidate's arithmetic costs in forks of the baseline, in nats; None if they are not all on record."""
    arms = [recorded(rows, arm) for arm in _INSERTED]
    if any(len(losses) < _AA_DRAWS for arm in arms for losses in arm.values()):
        return None
    return effect(arms[0], arms[1], fork_noise(arms))


def gap(rows: Sequence[Mapping[str, Any]]) -> Estimate:
    """The gap of the full runs: candidate minus baseline by replicate."""
    means = {(row["arm"], row["replicate"]): row["late_mean"] for row in rows if row["kind"] == "run"}
    return estimate([means["candidate", at] - means["baseline", at] for arm, at in means if arm == "candidate"])


def guilty_units(case: Case) -> set[str]:
    """The units in which something harmful was planted."""
    if case.override is None or (case.spoil is None and case.override.switches == _MARK):
        return set()
    own = case.override
    return {
        Unit(block, projection, gemm).name
        for block in range(_MODEL.n_layers)
        for projection in own.projections
        for gemm in own.gemms or ("fprop", "dgrad", "wgrad")
        if block in own.blocks
    }


def table() -> Iterator[str]:
    """Lines of Markdown: one row for every case with an answer."""
    yield "| case | gap of full runs (95 %) | taken out | put in | named | planted | forks | steps, share of a pair |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for case in CASES:
        rows = [line for line in _lines() if line["case"] == case.name]
        answer = next((row for row in rows if row["kind"] == "answer"), None)
        if answer is None:
            continue
        low, high = gap(rows).bounds(0.95)
        both = f"{answer['whole'][0]:+.4f} | {_words(put_in(rows))}"
        named = "; ".join(", ".join(cluster) if len(cluster) < 4 else f"{cluster[0]} to {cluster[-1]}" for cluster in answer["named"])
        yield (
            f"| {case.name} | {gap(rows).value:+.4f} ({low:+.4f} to {high:+.4f}) | {both} | {named or 'none'} | "
            f"{', '.join(sorted(guilty_units(case))) or 'none'} | {answer['forks']} | {answer['fork_steps'] / answer['pair_steps']:.2f} |"
        )


def _words(value: Estimate | None) -> str:
    return "not run" if value is None else f"{value.value:+.4f}"


def main() -> int:
    """Compute, list the cases, or print the table."""
    parser = argparse.ArgumentParser(description="Attribution of planted faults.")
    parser.add_argument("what", choices=["run", "insert", "list", "table"])
    parser.add_argument("case", nargs="?", choices=[case.name for case in CASES], help="this case alone")
    options = parser.parse_args()
    if options.what == "table":
        sys.stdout.write("\n".join(table()) + "\n")
        return 0
    for case in CASES:
        if options.case in {None, case.name}:
            kinds = [line["kind"] for line in _lines() if line["case"] == case.name]
            if options.what == "list":
                done = "answered" if "answer" in kinds else f"{kinds.count('run')} runs, {kinds.count('fork')} forks"
                sys.stdout.write(f"{case.name}: {done}\n")
            elif options.what == "insert" and put_in([line for line in _lines() if line["case"] == case.name]) is None:
                with planted(case):
                    Bench(case).insert()
            elif options.what == "run" and "answer" not in kinds:
                with planted(case):
                    Bench(case).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
