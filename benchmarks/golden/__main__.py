"""How often does the rule of goldens blame an honest change, and how often does it miss a fault?

    python -m benchmarks.golden [--part end] [--pairs FILE]

Prints the rates on pairs of Megatron-LM's golden curves with an honest change, by label and part,
and on faults that are planted into them, both against the three customary rules.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.golden.customary import CUSTOMARY
from benchmarks.golden.planted import FAULTS, Fault
from benchmarks.golden.public_pairs import END, KNOWN_MOVES, PAIRS, TUNING, Pair, public_pairs
from parity.golden.answers import ANSWERS, FINE, OPEN, Answer
from parity.golden.measured import Stated
from parity.golden.rule import judge
from parity.judging.curves.curve import Curve, curve_from_arrays

MOST_BASES = 40
SPOTS = 5  # each fault is planted so many times into each pair
HONEST = ("container", "code, fix, option")


def answer_of(golden: Curve, run: Curve, random: bool) -> Answer:
    """The rule's answer."""
    return judge([golden], run, Stated(random=random))[0].answer


def honest_rows(pairs: Sequence[Pair]) -> Iterator[list[str]]:
    """A row per group of honest changes and part, in %; families with known moves apart."""
    yield ["change", "part", "pairs", *ANSWERS, *CUSTOMARY]
    by_row: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        moves = ", T5" if pair.family.startswith(KNOWN_MOVES) else ""
        by_row.setdefault((pair.group + moves, pair.part), []).append(pair)
    for (group, part), some in sorted(by_row.items()):
        answers = Counter(answer_of(pair.golden, pair.run, pair.random) for pair in some)
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
        Pair(
            golden=_first(pair.golden, rows),
            run=_first(pair.run, rows),
            test=pair.test,
            family=pair.family,
            group=pair.group,
            part=pair.part,
            random=pair.random,
        )
        for pair in pairs
        if pair.group != "data replaced" and len(pair.golden.steps) >= rows
    ]
    fine = [pair for pair in cut if answer_of(pair.golden, pair.run, pair.random) in FINE]
    chosen = np.unique(np.linspace(0, len(fine) - 1, min(MOST_BASES, len(fine))).astype(int))
    return [fine[index] for index in chosen]


def planted_rows(pairs: Sequence[Pair], rows: int) -> Iterator[list[str]]:
    """A row per fault: how often it is found and named worse, and passes the customary rules, %."""
    chosen = bases(pairs, rows)
    yield [f"fault ({rows} rows)", "pairs", "found", "worse", "cannot tell", *CUSTOMARY]
    for name, fault in FAULTS.items():
        runs = [
            (pair, _planted(pair.run, fault, index, spot))
            for index, pair in enumerate(chosen)
            for spot in range(SPOTS)
        ]
        answers = Counter(answer_of(pair.golden, run, pair.random) for pair, run in runs)
        found = len(runs) - sum(answers[answer] for answer in FINE)
        passed = [
            sum(passes(pair.golden.loss, run.loss) for pair, run in runs)
            for passes in CUSTOMARY.values()
        ]
        counts = [found, answers["worse"], answers[OPEN], *passed]
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


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden")
    parser.add_argument("--part", choices=[TUNING, END])
    parser.add_argument("--pairs", type=Path, default=PAIRS)
    chosen = parser.parse_args(arguments)
    every = public_pairs(chosen.pairs)
    pairs = [pair for pair in every if chosen.part in (None, pair.part)]
    tables: list[Callable[[], Iterator[list[str]]]] = [lambda: honest_rows(pairs)]
    for part in dict.fromkeys(pair.part for pair in pairs):
        some = [pair for pair in pairs if pair.part == part]
        for rows in (50, 100, 200):
            tables.append(lambda some=some, rows=rows: planted_rows(some, rows))  # type: ignore[misc]
            print(f"{part}, {rows} rows: {len(bases(some, rows))} pairs")
    for make in tables:
        print(table(make()), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
