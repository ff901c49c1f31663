"""Does the search find the fastest assignment that passes? 40 searches in worlds with known gaps,
and three with real training.

    taskset -c 1 nice -n 15 python -m experiments.search simulate     # 40 worlds, every method;
      needs the grid of experiments.assignments
    taskset -c 1 nice -n 15 python -m experiments.search train        # 3 real searches; stop it at
      will
    python -m experiments.search table                                # the cases behind
      docs/evidence.md

Every search is one line of search.jsonl; the runs and forks of the real ones are lines of
assignments.jsonl. Cost counts steps before the first confirmation: forks of 60 steps, runs of 600.
The assumption that can fail: the worlds are `experiments.search_world`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments import search_world as worlds
from experiments.assignments import (
    BASELINE,
    EVERYTHING,
    MODEL,
    REPLICATES,
    STEPS,
    SWITCHES,
    Space,
    records,
)
from experiments.search_methods import Found, greedy, ranking, search
from parity_lab.assignments import Shape, Switch, modelled_times
from parity_lab.assignments import Space as Assignments
from parity_lab.belief import Evaluation, Outcome, Result
from parity_lab.search import ask

RECORD = Path(__file__).with_suffix(".jsonl")
SEARCHES = 40
SHARES = (0.3, 0.45, 0.6)  # of the real searches: the target as a share of the candidate's gap
_FRESH = 100  # replicates of confirmations start here
_ENOUGH_SPEED = 0.97


def simulate() -> None:
    """Every method in every world that is not on record."""
    measured = worlds.fit()
    done = {line["world"] for line in _lines("simulated")}
    for number in range(SEARCHES):
        if number in done:
            continue
        truth = worlds.truth(measured, number)
        own = _simulated(truth, number, "search", search)
        budget = own["steps"]
        rows = [own, _simulated(truth, number, "greedy", greedy)]
        random_order = np.random.default_rng([2, number]).random(worlds.SIZE)
        for name, scores in {**truth.scores, "random order": random_order}.items():
            rows.append(_simulated(truth, number, name, ranking(scores, budget)))
        _write(rows)


def _simulated(truth: worlds.Truth, number: int, name: str, method: Any) -> dict[str, Any]:
    own: Found = method(truth.setting, worlds.World(truth, number))
    at = None if own.assignment is None else int(own.assignment, 2)
    return {
        "kind": "simulated",
        "world": number,
        "method": name,
        "assignment": own.assignment,
        "confirmations": len(own.tried),
        "steps": own.steps,
        "speed": None if at is None else truth.best_time / float(truth.setting.times[at]),
        "gap_in_margins": None
        if at is None
        else float(truth.gaps[at]) / truth.setting.confirmation.margin,
        "seconds_saved": 1.0 - truth.best_time,
        "reason": own.reason,
    }


def switches() -> tuple[Switch, ...]:
    """The switches of the real space, as overrides of a job file."""
    own = []
    for name in SWITCHES:
        block, part = name.split(".", 1)
        attention = part == "attention"
        place: dict[str, Any] = {
            "blocks": [int(block)],
            "projections": list(_PROJECTIONS[:4] if attention else _PROJECTIONS[4:]),
        }
        gemms = {} if attention else {"gemms": [part.removeprefix("mlp.")]}
        own.append(Switch(name=name, override={**place, **gemms, "recipe": "fp8_current"}))
    return tuple(own)


_PROJECTIONS = ("query", "key", "value", "out", "gate", "up", "down")


def times() -> Any:
    """Modelled step times (2^8,) of the real space."""
    d, kv, ff = MODEL.d_model, MODEL.n_kv_heads * MODEL.head_size, MODEL.d_ff
    weights = dict(
        zip(_PROJECTIONS, (d * d, d * kv, d * kv, d * d, d * ff, d * ff, ff * d), strict=True)
    )
    return modelled_times(
        Assignments(switches=switches()),
        Shape(weights=weights, n_layers=MODEL.n_layers, steps=STEPS, recipe="nvfp4"),
    )


def train() -> None:
    """The real searches that are not on record."""
    done = {line["share"] for line in _lines("trained")}
    for number, share in enumerate(SHARES):
        if share in done:
            continue
        setting, policy = _real_setting(share)
        space = Space()
        results: list[Result] = []
        tried: list[Evaluation] = []
        steps = 0
        while not isinstance(step := ask(setting, results), Outcome):
            for evaluation in step:
                if evaluation.kind == "confirmation":
                    tried.append(evaluation)
                else:
                    steps += worlds.FORK_STEPS if evaluation.kind == "fork" else STEPS
                results.append(
                    _trained(space, evaluation, number, policy, setting.confirmation.margin)
                )
        last = [result for result in results if result.evaluation.kind == "confirmation"]
        about = {
            "kind": "trained",
            "share": share,
            "assignment": step.assignment,
            "reason": step.reason,
            "steps": steps,
        }
        gaps = [[each.evaluation.assignment, each.value, each.se, each.passed] for each in last]
        _write(
            [
                {
                    **about,
                    "margin": setting.confirmation.margin,
                    "target": setting.target,
                    "confirmed": gaps,
                }
            ]
        )


def _real_setting(share: float) -> tuple[worlds.Setting, worlds.Policy]:
    """A real search: given are the baseline's and the candidate's first four runs."""
    runs = [
        Result(
            evaluation=Evaluation(
                kind="run", assignment=line["assignment"], number=1000 + line["replicate"]
            ),
            value=line["late_mean"],
        )
        for line in records()
        if line["kind"] == "run"
        and line["assignment"] in {BASELINE, EVERYTHING}
        and line["replicate"] < REPLICATES
    ]
    return worlds.setting_of(times(), runs, worlds.fit().noise, share)


def _trained(
    space: Space, evaluation: Evaluation, number: int, policy: worlds.Policy, margin: float
) -> Result:
    """Train an evaluation, or read it from the record: replicates of pilots and confirmations are
    fresh for every search.
    """
    if evaluation.kind == "fork":
        parts = space.fork(
            evaluation.assignment,
            BASELINE,
            int(evaluation.parent),
            10 * (number + 1) + evaluation.number,
            worlds.FORK_STEPS,
        )
        return Result(evaluation=evaluation, value=worlds.fork_loss(parts))
    first = _FRESH * (number + 1)
    if evaluation.kind == "run":
        return Result(
            evaluation=evaluation,
            value=space.full_run(evaluation.assignment, first + evaluation.number),
        )
    fresh = range(
        first + 10 * (evaluation.number + 1), first + 10 * (evaluation.number + 1) + worlds.PAIRS
    )
    arms = [
        np.array([space.full_run(assignment, replicate) for replicate in fresh])
        for assignment in (BASELINE, evaluation.assignment)
    ]
    return worlds.judged(evaluation, arms[0], arms[1], policy, margin)


def table() -> Iterator[str]:
    """The cases behind docs/evidence.md as tables in Markdown."""
    yield from switch_table()
    yield ""
    yield (
        "| method | passed | at once | above the margin | speed >= 97 % of the best | median speed "
        "| median steps |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    rows = list(_lines("simulated"))
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        passed = [row for row in own if row["assignment"]]
        first = sum(row["confirmations"] == 1 for row in passed)
        wrong = sum(row["gap_in_margins"] > 1.0 for row in passed)
        fast = sum(row["speed"] >= _ENOUGH_SPEED for row in passed)
        speed = np.median([row["speed"] or 0.0 for row in own])
        steps = np.median([row["steps"] for row in own])
        counts = " | ".join(share(count, len(own)) for count in (len(passed), first, wrong, fast))
        yield f"| {method} | {counts} | {speed:.3f} | {steps:,.0f} |"
    yield ""
    yield (
        "| target, share of the gap | assignment | gap of the confirmation | margin | passed | "
        "steps before it |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in _lines("trained"):
        for assignment, gap, se, passed in row["confirmed"] or [
            ["none", float("nan"), float("nan"), False]
        ]:
            words = f"{gap:+.4f} (standard error {se:.4f})"
            yield (
                f"| {row['share']:.2f} | {assignment} | {words} | {row['margin']:.4f} | "
                f"{'yes' if passed else 'no'} | {row['steps']:,} |"
            )


def switch_table() -> Iterator[str]:
    """Each part of both blocks: what it costs alone and what taking it back gains, in full runs and
    in forks of 60 steps.
    """
    runs = [line for line in records() if line["kind"] == "run" and line["replicate"] < REPLICATES]
    forks = [line for line in records() if line["kind"] == "fork" and not line["draw"]]

    def full(first: str, second: str) -> str:
        losses = [
            [line["late_mean"] for line in runs if line["assignment"] == assignment]
            for assignment in (first, second)
        ]
        variance = sum(float(np.var(own, ddof=1)) / len(own) for own in losses)
        return f"{np.mean(losses[0]) - np.mean(losses[1]):+.4f} ({np.sqrt(variance):.4f})"

    def forked(first: str, second: str, origin: str) -> str:
        own = {
            (line["assignment"], line["replicate"]): worlds.fork_loss(line["parts"])
            for line in forks
            if line["origin"] == origin
        }
        gaps = [
            own[first, at] - own[second, at]
            for at in range(100)
            if (first, at) in own and (second, at) in own
        ]
        return f"{np.mean(gaps):+.4f} ({np.std(gaps, ddof=1) / np.sqrt(len(gaps)):.4f})"

    yield (
        "| part, in both blocks | alone: full runs | alone: forks, put in | taken back: full runs "
        "| taken back: forks, taken out |"
    )
    yield "| --- | --- | --- | --- | --- |"
    half = len(SWITCHES) // 2
    for name, bits in [
        ("everything", "1" * half),
        *((SWITCHES[at][2:], "0" * at + "1" + "0" * (half - at - 1)) for at in range(half)),
    ]:
        put, rest = bits * 2, "".join("01"[bit == "0"] for bit in bits) * 2
        cells = [
            full(put, BASELINE),
            forked(put, BASELINE, BASELINE),
            full(EVERYTHING, rest),
            forked(EVERYTHING, rest, EVERYTHING),
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def share(count: int, total: int) -> str:
    """A count with its Clopper-Pearson limits (95 %): "38 of 40 (83 to 99 %)"."""
    low = stats.beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return f"{count} of {total} ({100 * low:.0f} to {100 * high:.0f} %)"


def _lines(kind: str) -> Iterator[Mapping[str, Any]]:
    if RECORD.exists():
        yield from (
            line
            for line in map(json.loads, RECORD.read_text().splitlines())
            if line["kind"] == kind
        )


def _write(rows: list[dict[str, Any]]) -> None:
    with RECORD.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        sys.stdout.write(json.dumps(row)[:150] + "\n")
    sys.stdout.flush()


def main() -> int:
    """Simulate, train, or print the tables."""
    parser = argparse.ArgumentParser(description="Searches for the fastest assignment that passes.")
    parser.add_argument("what", choices=["simulate", "train", "table"])
    what = parser.parse_args().what
    if what == "simulate":
        simulate()
    elif what == "train":
        train()
    else:
        sys.stdout.write("\n".join(table()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
