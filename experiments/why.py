"""Does an analysis name the unit in which a fault was planted, and nothing where there is none?

    taskset -c 1 nice -n 19 python -m experiments.why run       # the cases that why.jsonl does not
      hold yet; stop it at will
    taskset -c 1 nice -n 19 python -m experiments.why larger    # the same with a model of 0.4
      million parameters in three blocks
    taskset -c 1 nice -n 19 python -m experiments.why recipes   # 20 analyses of nvfp4 against fp8,
      each with its truth by more forks
    taskset -c 1 nice -n 19 python -m experiments.why verdicts  # the judge's verdict on the faults:
      those that it fails are counted
    python -m experiments.why list                              # what is on record
    python -m experiments.why table                             # the cases behind docs/evidence.md

Baseline and candidate are nvfp4 in the MLP. The candidate has `nan: hardware` in every GEMM, which
changes no bit, so that all 18 GEMMs are suspects; in a planted case some of them have a fault
(`experiments.why_faults`), in a healthy case none. Three runs of the baseline keep their
checkpoints, and `parity_lab.training.program.analyse`, the code of a worker, takes the candidate
apart there. Each case has a seed and a checkpoint of its own, so that no two cases share the random
numbers of a fork; a planted and a healthy case share both, and the forks of the baseline. A fault
that three pairs of full runs do not show is not analysed, and one that the judge does not fail is
not counted. With really different recipes every GEMM may cost something and nobody knows which:
those cases only check the interval of what the named units leave unexplained. Measurements in
progress lie in build/why, and each answer is one line of why.jsonl. The lines with other settings
are those of earlier versions of this experiment (docs/design/attribution.md); they are not counted.

The assumption that can fail: models of 0.1 and 0.4 million parameters and 400 steps, in which one
fault is added to equal arithmetic. Real recipes differ everywhere at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.why_cases import (
    DATA,
    FORK_STEPS,
    FORKS_AT,
    LARGER,
    PARENTS,
    PLANTED,
    RECIPE_CASES,
    RECIPES,
    SEEDS,
    STEPS,
    TRIES,
    PlantedCase,
    Trial,
    cases,
    healthy,
)
from experiments.why_faults import codes, planted
from experiments.why_table import full_effects, is_seen, table
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from parity_lab.analysis_plan import Setup, make_setup
from parity_lab.answer import answer
from parity_lab.training.forks import forked
from parity_lab.training.menu_layer import menu_decoder
from parity_lab.training.program import Program, analyse
from parity_lab.training.subject import subject
from training.device import describe
from training.provenance import trainer_facts
from training.spec import RunSpec, Schedule
from training.trainer import data
from training.trainer.checkpoint import Checkpointing, Checkpoints, kept_steps, read_kept
from training.trainer.identity import identity
from training.trainer.run import TrainingRun
from training.trainer.step import State

RECORD = Path(__file__).with_suffix(".jsonl")
WORK = Path(__file__).parents[1] / "build" / "why"
POLICY = policy_from_mapping({"margin": "1%"})
_LATE = 0.8  # the late window of a full run starts here, as a share of its steps
_TRUTH_DRAWS, _FIRST_TRUTH_DRAW = 8, 100_000


class Bench:
    """The runs, their checkpoints, and the record."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._folder = WORK / trial.folder
        self._corpus = data.load(DATA)
        self._fast = describe().fast_bf16
        self._lines = list(records(trial))
        facts = trainer_facts({})
        self._about = {
            "settings": trial.settings,
            "code": facts["code_sha256"][:12],
            "device": describe().device_class,
        }
        self._measured = subject(self._candidate(0), self._spec(0, 0), FORKS_AT[0], FORK_STEPS)
        on, off = self._measured.on, self._measured.off
        taken = 1 + int(max(on.max(), off.max()))
        self._model = menu_decoder(
            trial.model, self._measured.arithmetics[:taken], [on, off], fast_bf16=self._fast
        )

    def run(self) -> None:
        """Every case that has no answer yet; a fault that the full runs do not show is not
        analysed.
        """
        for case in cases(self._trial):
            if self._find("answer", case=case.name) is None and not self._is_hopeless(case):
                self._full_runs(case)
                if not case.units or self._is_seen(case, case.seed):
                    self._analyse(case)

    def _is_seen(self, case: PlantedCase, seed: int) -> bool:
        return is_seen(full_effects(self._lines)[case.kind, case.units, seed])

    def _is_hopeless(self, case: PlantedCase) -> bool:
        """Whether full runs of other seeds have not shown this fault, often enough."""
        seeds = {
            seed
            for kind, units, seed in full_effects(self._lines)
            if (kind, units) == (case.kind, case.units)
        }
        return len(seeds) >= TRIES and not any(self._is_seen(case, seed) for seed in seeds)

    def verdicts(self) -> None:
        """The judge's verdict on every fault that was analysed, from three runs of each arm."""
        answers = [line for line in self._lines if line["kind"] == "answer" and line["gemms"]]
        for kind, units, seed in [
            (line["fault"], tuple(line["gemms"]), line["seed"]) for line in answers
        ]:
            if self._find("verdict", fault=kind, units=list(units), seed=seed) is None:
                case = PlantedCase(kind=kind, units=units, seed=seed, step=0)
                arms = [
                    [self._curve(arm, replicate) for replicate in range(PARENTS)]
                    for arm in (healthy(case), case)
                ]
                (verdict,) = judge(arms[0], {"planted": arms[1]}, POLICY, planned_steps=STEPS)
                interval = verdict.document()["gap"]
                gap = (
                    None if interval is None else [interval["mean"], interval["lo"], interval["hi"]]
                )
                self._write(
                    "verdict",
                    fault=kind,
                    units=list(units),
                    seed=seed,
                    verdict=verdict.verdict,
                    gap=gap,
                    codes=list(verdict.codes),
                )

    def _curve(self, case: PlantedCase, replicate: int) -> Curve:
        """A full run with the fault of a case."""
        path = WORK / "curves" / self._trial.folder / f"{case.name} {replicate}.npy"
        if not path.exists():
            run = TrainingRun(self._spec(case.seed, replicate), self._corpus, fast_bf16=self._fast)
            choice = self._measured.on if case.units else self._measured.off
            losses = forked(self._model, run, _with(run.state, case), choice, 0, STEPS).losses
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, losses)
        name = f"{case.kind} {replicate}"
        return curve_from_arrays(
            np.arange(STEPS), np.load(path), label=name, replicate=replicate, rounding="stochastic"
        )

    def _full_runs(self, case: PlantedCase) -> None:
        for replicate in range(PARENTS):
            self._baseline(case.seed, replicate)
            about = {
                "seed": case.seed,
                "replicate": replicate,
                "fault": case.kind,
                "gemms": list(case.units),
            }
            if case.units and self._find("run", **about) is None:
                run = TrainingRun(
                    self._spec(case.seed, replicate), self._corpus, fast_bf16=self._fast
                )
                losses = forked(
                    self._model, run, _with(run.state, case), self._measured.on, 0, STEPS
                ).losses
                self._write("run", **about, late_mean=_late(losses))

    def _baseline(self, seed: int, replicate: int) -> None:
        """A run of the baseline, with its checkpoints on disk."""
        folder = self._folder / f"{seed}-{replicate}"
        about = {"seed": seed, "replicate": replicate, "fault": "healthy", "gemms": []}
        has_states = folder.exists() and kept_steps(folder) == list(FORKS_AT)
        if has_states and self._find("run", **about):
            return
        spec = self._spec(seed, replicate)
        run = TrainingRun(spec, self._corpus, fast_bf16=self._fast)
        writer = Checkpoints(
            Checkpointing(folder=folder, keep=FORKS_AT), identity(spec, self._corpus)
        )
        state, losses, first = run.state, [], 0
        for last in (*FORKS_AT, STEPS):
            state, part = forked(self._model, run, state, self._measured.off, first, last - first)
            losses.append(part)
            if last < STEPS:
                writer.save(last, state)
            first = last
        writer.close()
        if self._find("run", **about) is None:
            self._write("run", **about, late_mean=_late(np.concatenate(losses)))

    def _plant(self, case: PlantedCase) -> list[tuple[RunSpec, Path]]:
        """The parents of a case: the baseline's checkpoints with the fault in their unused
        scales.
        """
        parents = []
        for replicate in range(PARENTS):
            spec, folder = (
                self._spec(case.seed, replicate),
                WORK / "planted" / self._trial.folder / case.kind / str(replicate),
            )
            like = TrainingRun(spec, self._corpus, fast_bf16=self._fast).state
            run_identity = identity(spec, self._corpus)
            writer = Checkpoints(Checkpointing(folder=folder, keep=(case.step,)), run_identity)
            writer.save(
                case.step,
                _with(
                    read_kept(
                        self._folder / f"{case.seed}-{replicate}", case.step, run_identity, like
                    ),
                    case,
                ),
            )
            writer.close()
            parents.append((spec, folder))
        return parents

    def _setup(self, case: PlantedCase) -> Setup:
        return make_setup(
            units=tuple(unit.name for unit in self._measured.units),
            ingredients=tuple(self._measured.ingredients),
            parents=tuple(f"run {replicate}" for replicate in range(PARENTS)),
            fork_step=case.step,
            run_steps=STEPS,
            fork_steps=FORK_STEPS,
        )

    def _analyse(self, case: PlantedCase) -> None:
        setup = self._setup(case)
        results = dict(self._measurements(case))
        if case.units:  # forks of the baseline, which both have
            twin = self._measurements(healthy(case))
            results = {
                key: value for key, value in twin if key.startswith("fork/without all/")
            } | results
        with self._journal(case).open("a") as journal:

            def keep(message: Any) -> None:
                if message["kind"] == "result":
                    results[message["key"]] = message["value"]
                    journal.write(json.dumps([message["key"], message["value"]]) + "\n")

            parents: Any = {folder.name: spec for spec, folder in self._plant(case)}
            analyse(
                {
                    "setup": asdict(setup),
                    "parents": parents,
                    "baseline": self._spec(case.seed, 0),  # type: ignore[typeddict-item]  (`read` takes it as it is)
                    "records": {},
                    "results": results,
                    "spent": 0.0,
                },
                self._candidate(case.seed),
                WORK / "planted" / self._trial.folder / case.kind,
                lambda spec: spec,
                keep,
            )
        found = answer(setup, results)
        columns = {
            name: found[name]
            for name in ("effect", "noise", "interaction", "unexplained", "stopped", "steps_spent")
        }  # type: ignore[literal-required]
        self._write(
            "answer",
            case=case.name,
            fault=case.kind,
            units=list(case.units),
            seed=case.seed,
            step=case.step,
            named=[part["gemms"] for part in found["named"]],
            estimates=[[part["without"], part["alone"]] for part in found["named"]],
            untested=found["untested"],
            **columns,
            pair_steps=2 * STEPS,
            forks={
                key: round(value, 6) for key, value in results.items() if key.startswith("fork/")
            },
            gradient_errors={
                part["name"]: round(part["error"]["value"], 5) for part in found["gradients"] or []
            },
        )

    def _truth(self, case: PlantedCase, named: Sequence[str]) -> None:
        """What is left with these units off, from forks that the answer has not seen."""
        program = Program(
            self._plant(case),
            self._candidate(case.seed),
            self._spec(case.seed, 0),
            case.step,
            FORK_STEPS,
            self._corpus,
        )
        everything = [unit.name for unit in self._measured.units]
        if set(named) == set(everything):
            return
        value = variance = 0.0
        for number, (sign, choice) in enumerate(
            [(-1.0, program.choice("without", everything)), (1.0, program.choice("without", named))]
        ):
            first = _FIRST_TRUTH_DRAW + number * _TRUTH_DRAWS
            forks = np.array(
                [
                    [program.fork(choice, parent, first + draw) for draw in range(_TRUTH_DRAWS)]
                    for parent in range(PARENTS)
                ]
            )
            value += sign * float(forks.mean())
            variance += float(forks.var(axis=1, ddof=1).mean()) / forks.size
        self._write("truth", case=case.name, unexplained=value, se=variance**0.5)

    def recipes(self) -> None:
        """Analyses of really different recipes, and what their named units really leave."""
        for number in range(RECIPE_CASES):
            case = PlantedCase(
                kind=RECIPES.folder, units=(), seed=number % SEEDS, step=FORKS_AT[number // SEEDS]
            )
            line = self._find("answer", case=case.name)
            if line is None:
                for replicate in range(PARENTS):
                    self._baseline(case.seed, replicate)
                self._analyse(case)
                line = self._find("answer", case=case.name)
            if line and line["named"] and self._find("truth", case=case.name) is None:
                self._truth(case, sorted(unit for cluster in line["named"] for unit in cluster))

    def _journal(self, case: PlantedCase) -> Path:
        path = WORK / "measurements" / f"{self._trial.model.n_layers} blocks {case.name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _measurements(self, case: PlantedCase) -> list[tuple[str, Any]]:
        """What a case has measured so far, by key."""
        path = self._journal(case)
        return (
            [(key, value) for key, value in map(json.loads, path.read_text().splitlines())]
            if path.exists()
            else []
        )

    def _candidate(self, seed: int) -> RunSpec:
        return self._spec(seed, 0, candidate=True)

    def _spec(self, seed: int, replicate: int, *, candidate: bool = False) -> RunSpec:
        """A run of the baseline, or of the candidate."""
        return RunSpec(
            engine="emulated",
            model=self._trial.model,
            data=DATA,
            schedule=Schedule(steps=STEPS, learning_rate=4e-3),
            layer_policy="mlp_only",
            seed=seed,
            replicate=replicate,
            devices=1,
            **(self._trial.candidate if candidate else self._trial.baseline),
        )

    def _find(self, kind: str, **values: Any) -> Mapping[str, Any] | None:
        fields = {"kind": kind, **values}
        return next(
            (
                line
                for line in self._lines
                if all(line.get(name) == value for name, value in fields.items())
            ),
            None,
        )

    def _write(self, kind: str, **values: Any) -> None:
        line = {**self._about, "kind": kind, **values}
        self._lines.append(line)
        with RECORD.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {kind} {json.dumps(values)[:230]}\n")
        sys.stdout.flush()


def _with(state: State, case: PlantedCase) -> State:
    """The state with the fault of a case in its scales."""
    scale = state.scales.scale
    return state._replace(
        scales=state.scales._replace(scale=jnp.asarray(codes(scale.shape, case.kind, case.units)))
    )


def _late(losses: np.ndarray[Any, Any]) -> float:
    return float(losses[int(_LATE * STEPS) :].mean())


def records(trial: Trial) -> Iterator[Mapping[str, Any]]:
    """The lines of a trial."""
    if RECORD.exists():
        yield from (
            line
            for line in map(json.loads, RECORD.read_text().splitlines())
            if line["settings"] == trial.settings
        )


def main() -> int:
    """Compute, or print what is on record."""
    parser = argparse.ArgumentParser(description="Attribution of planted faults.")
    parser.add_argument("what", choices=["run", "larger", "recipes", "verdicts", "list", "table"])
    what = parser.parse_args().what
    trial = {"larger": LARGER, "recipes": RECIPES}.get(what, PLANTED)
    if what in ("list", "table"):
        planted_lines = [line for size in (PLANTED, LARGER) for line in records(size)]
        shown = (
            table(planted_lines, list(records(RECIPES)))
            if what == "table"
            else (line.get("case", str(line)) for line in planted_lines)
        )
        sys.stdout.write("\n".join(shown) + "\n")
        return 0
    jax.config.update("jax_compilation_cache_dir", str(WORK / "compiled"))
    with planted():
        if what == "verdicts":
            for size in (PLANTED, LARGER):
                Bench(size).verdicts()
        elif what == "recipes":
            Bench(trial).recipes()
        else:
            Bench(trial).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
