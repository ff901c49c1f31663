"""Which rules hold together, and in which case: `python -m tests.parity.judging.precedence.search`.

Every change, every two changes, and where two neighbours of the order were not found together
every two of their changes with a third one, are made on a pair that passes. The cases that show
each pair of rules once, in which the first one decides, are written into the files that
`test_precedence.py` reads: single changes first, then those that show the most pairs. The search
takes about ten minutes on two cores; the tests read its answer. The files change much where little
did, since few cases are chosen for all pairs: what it prints says which pairs of rules it gained
and lost.
"""

import itertools
import json
import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from tests.parity.judging.precedence import changes, evaluation_changes
from tests.parity.judging.precedence.cases import FOLDER, excluded_pairs, recorded_cases
from tests.parity.judging.precedence.held import (
    RULES_OF_EVALUATIONS,
    RULES_OF_TRAINING,
    evaluations_hold,
    training_holds,
)

Combination = tuple[str, ...]
Held = tuple[str, ...]
"""The names of the rules that hold, in their order."""
Hold = Callable[[Combination], Held]


def _tried(hold: Hold, combination: Combination) -> tuple[Combination, Held]:
    try:
        return combination, hold(combination)
    except (ValueError, IndexError, ZeroDivisionError):  # changes that exclude each other
        return combination, ()


def held_by(hold: Hold, combinations: Iterable[Combination]) -> dict[Combination, Held]:
    """The rules that hold after each combination of changes."""
    with multiprocessing.Pool(2) as pool:
        return dict(pool.imap(partial(_tried, hold), combinations, chunksize=16))


def shown(held: Held) -> set[tuple[str, str]]:
    """The pairs of rules of which a case shows the order: the one that decides, and each other."""
    return {(held[0], other) for other in held[1:]}


def missing_neighbours(
    order: Sequence[str], found: dict[Combination, Held]
) -> list[tuple[str, str]]:
    """Neighbours of the order that no case shows."""
    covered = {pair for held in found.values() if held for pair in shown(held)}
    return [pair for pair in itertools.pairwise(order) if pair not in covered]


def searched(hold: Hold, names: Sequence[str], order: Sequence[str]) -> dict[Combination, Held]:
    """All combinations that were tried, with the rules that hold."""
    singles = [(name,) for name in names]
    found = held_by(hold, [*singles, *itertools.combinations(names, 2)])
    with_rule = defaultdict(list)
    for (name,) in singles:
        for rule in found[name,]:
            with_rule[rule].append(name)
    triples = {
        tuple(sorted({one, other, third}, key=names.index))
        for first, second in missing_neighbours(order, found)
        for one in with_rule[first][:3]
        for other in with_rule[second][:3]
        for third in names
    }
    return found | held_by(hold, sorted(triple for triple in triples if len(triple) == 3))


def fewest(found: dict[Combination, Held]) -> list[Combination]:
    """Few cases that show every pair of rules that any case shows."""
    left = {pair for held in found.values() if held for pair in shown(held)}
    chosen = []
    while left:
        best = max(
            found,
            key=lambda combination: (
                len(shown(found[combination]) & left) / len(combination)
                if found[combination]
                else 0
            ),
        )
        chosen.append(best)
        left -= shown(found[best])
    return chosen


def changes_of_pairs(
    before: Collection[tuple[str, str]], after: Collection[tuple[str, str]], order: Sequence[str]
) -> Iterator[str]:
    """What a search says of the pairs that it gained and lost; a lost one is no longer tested."""
    for first, other in sorted(set(after) - set(before)):
        yield f"gained: {first} decides over {other}"
    for first, other in sorted(set(before) - set(after)):
        known = first in order and other in order
        why = "no case shows it any more" if known else "a rule is gone"
        yield f"lost: {first} decided over {other}; {why}"


def write(name: str, hold: Hold, names: Sequence[str], order: Sequence[str]) -> None:
    """Search, and write the cases by the rule that decides."""
    before = recorded_cases(name)
    found = searched(hold, names, order)
    by_rule: dict[str, list[tuple[Combination, Held]]] = defaultdict(list)
    for combination in fewest(found):
        by_rule[found[combination][0]].append((combination, found[combination]))
    lines = [
        "# Written by search.py: a rule decides `over` others after changes of an honest pair.\n"
    ]
    for rule in order:
        for combination, held in by_rule.get(rule, []):
            lines.append(
                f"[[{rule}]]\nmade = {json.dumps(combination)}\nover = {json.dumps(held[1:])}\n"
            )
    (FOLDER / f"{name}.toml").write_text("\n".join(lines), encoding="utf-8")
    for line in changes_of_pairs(before, recorded_cases(name), order):
        print(f"{name}: {line}")
    for first, second in set(missing_neighbours(order, found)) - excluded_pairs(name):
        print(
            f"{name}: neighbours never found together, and not in excluded.toml: {first}, {second}"
        )


def main() -> None:
    """Search over training losses and over held-out losses."""
    write("training", training_holds, list(changes.CHANGES), RULES_OF_TRAINING)
    write("evaluations", evaluations_hold, list(evaluation_changes.CHANGES), RULES_OF_EVALUATIONS)


if __name__ == "__main__":
    main()
