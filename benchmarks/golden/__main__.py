"""How often does the rule of goldens blame an honest change, and how often does it miss a fault?

    python -m benchmarks.golden [--part end] [--pairs FILE]
    python -m benchmarks.golden --trained [--long]

The first prints the rates on pairs of Megatron-LM's golden curves with an honest change, by label
and part, and on faults that are planted into them, both against the three customary rules. The
second trains small models on the CPU (10 minutes): honest reruns, faults by their true gap, and
resumes; with --long faults planted into runs of 400 and 5,000 steps (15 minutes more).
"""

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.golden.customary import CUSTOMARY
from benchmarks.golden.planted import FAULTS, Fault
from benchmarks.golden.public_pairs import END, KNOWN_MOVES, PAIRS, TUNING, Pair, public_pairs
from parity.golden.answers import ANSWERS, FINE, OPEN, Answer
from parity.golden.measured import ComparisonFacts
from parity.golden.rule import judge
from parity.judging.curves.curve import Curve, curve_from_arrays

MOST_BASES = 40
SPOTS = 5  # times that a fault is planted into a pair


def answer_of(pair: Pair, run: Curve | None = None) -> Answer:
    """The rule's answer about the run of a pair, or another one."""
    stated = ComparisonFacts(random=pair.random, recipe=pair.recipe)
    return judge([pair.golden], pair.run if run is None else run, stated)[0].answer


def honest_rows(pairs: Sequence[Pair]) -> Iterator[list[str]]:
    """A row per group of honest changes and part, in %; families with known moves apart."""
    yield ["change", "part", "pairs", *ANSWERS, *CUSTOMARY]
    by_row: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        moves = ", T5" if pair.family.startswith(KNOWN_MOVES) else ""
        by_row.setdefault((pair.group + moves, pair.part), []).append(pair)
    for (group, part), some in sorted(by_row.items()):
        answers = Counter(answer_of(pair) for pair in some)
        flagged = [
            sum(not passes(pair.golden.loss, pair.run.loss) for pair in some)
            for passes in CUSTOMARY.values()
        ]
        counts = [*(answers[answer] for answer in ANSWERS), *flagged]
        yield [group, part, str(len(some)), *(f"{100 * n / len(some):.1f}" for n in counts)]


def bases(pairs: Sequence[Pair], rows: int) -> list[Pair]:
    """Up to 40 pairs with an honest change, at least `rows` rows and a fine answer over these,
    evenly from all.
    """
    cut = [
        dataclasses.replace(pair, golden=_first(pair.golden, rows), run=_first(pair.run, rows))
        for pair in pairs
        if pair.group != "data replaced" and len(pair.golden.steps) >= rows
    ]
    fine = [pair for pair in cut if answer_of(pair) in FINE]
    chosen = np.unique(np.linspace(0, len(fine) - 1, min(MOST_BASES, len(fine))).astype(int))
    return [fine[index] for index in chosen]


def planted_rows(chosen: Sequence[Pair], rows: int) -> Iterator[list[str]]:
    """A row per fault: how often it is found and named worse, and passes the customary rules, %."""
    yield [f"fault ({rows} rows)", "pairs", "found", "worse", "cannot tell", *CUSTOMARY]
    for name, fault in FAULTS.items():
        runs = [
            (pair, _planted(pair.run, fault, index, spot))
            for index, pair in enumerate(chosen)
            for spot in range(SPOTS)
        ]
        answers = Counter(answer_of(pair, run) for pair, run in runs)
        caught = len(runs) - sum(answers[answer] for answer in FINE)
        passed = [
            sum(passes(pair.golden.loss, run.loss) for pair, run in runs)
            for passes in CUSTOMARY.values()
        ]
        counts = [caught, answers["worse"], answers[OPEN], *passed]
        yield [name, str(len(chosen)), *(f"{100 * n / len(runs):.0f}" for n in counts)]


def table(rows: Iterator[list[str]]) -> str:
    """Rows of cells as a Markdown table."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *body])


def _planted(run: Curve, fault: Fault, index: int, spot: int) -> Curve:
    draw = np.random.default_rng([index, spot])
    return curve_from_arrays(run.steps, np.round(fault(run.loss, draw), 5))


def _first(curve: Curve, rows: int) -> Curve:
    return curve_from_arrays(curve.steps[:rows], curve.loss[:rows])


def public_tables(path: Path, part: str | None) -> Iterator[str]:
    """The tables on public pairs."""
    pairs = [pair for pair in public_pairs(path) if part in (None, pair.part)]
    yield table(honest_rows(pairs))
    for name in dict.fromkeys(pair.part for pair in pairs):
        some = [pair for pair in pairs if pair.part == name]
        for rows in (50, 100, 200):
            yield f"{name}:\n" + table(planted_rows(bases(some, rows), rows))


def trained_tables(*, are_long: bool) -> Iterator[str]:
    """The tables on runs of the project's own trainer."""
    from benchmarks.golden import trained_rates  # noqa: PLC0415 jax takes seconds

    yield table(trained_rates.honest_reruns())
    yield table(trained_rates.trained_faults())
    for recipe in ("bf16", "fp8_delayed"):
        yield f"{recipe}:\n" + table(trained_rates.resumes(recipe))
    yield table(trained_rates.killed_resumes())
    yield table(trained_rates.accumulated())
    if are_long:
        for steps, seeds, sequences in ((400, range(3), 8), (5_000, range(2), 32)):
            pairs = trained_rates.long_pairs(steps, seeds, sequences)
            fine = sum(answer_of(pair) in FINE for pair in pairs)
            of_what = f"{steps:,} steps of {64 * sequences:,} tokens"
            yield f"{of_what}: {fine} of {len(pairs)} honest reruns fine\n" + table(
                planted_rows(pairs, steps)
            )


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden")
    parser.add_argument("--part", choices=[TUNING, END])
    parser.add_argument("--pairs", type=Path, default=PAIRS)
    parser.add_argument("--trained", action="store_true")
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args(arguments)
    if options.trained:
        tables = trained_tables(are_long=options.long)
    else:
        tables = public_tables(options.pairs, options.part)
    for one in tables:
        print(one, end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
