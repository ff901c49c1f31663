"""The recorded cases of two rules that hold at once, and the pairs that exclude each other."""

import itertools
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
Pair = tuple[str, str]


def recorded_cases(losses: str) -> dict[Pair, tuple[str, ...]]:
    """The changes of an honest pair by the rule that decides and another one that holds; `losses`
    are training or evaluations.
    """
    cases: dict[Pair, tuple[str, ...]] = {}
    for first, tables in tomllib.loads((FOLDER / f"{losses}.toml").read_text("utf-8")).items():
        for table in tables:
            for other in table["over"]:
                cases.setdefault((first, other), tuple(table["made"]))
    return cases


def excluded_pairs(losses: str) -> set[Pair]:
    """Neighbours of the order that no case can raise together, either way round."""
    excluded = tomllib.loads((FOLDER / "excluded.toml").read_text("utf-8"))
    pairs = {
        pair
        for group in excluded[losses]
        for pair in itertools.product(group["rules"], group["never_with"])
    }
    return pairs | {(other, rule) for rule, other in pairs}
