"""The answers that a sober reader allows, from examples/public/expected.csv."""

import csv
import functools
from collections.abc import Mapping

from tools.public_verdicts.sets import SETS, SetAnswer


@functools.cache
def expected() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """What a sober reader allows, by set and question."""
    with (SETS / "expected.csv").open(encoding="utf-8", newline="") as file:
        return {(row["set"], row["question"]): row for row in csv.DictReader(file)}


def holds(answer: SetAnswer) -> bool:
    """Whether an answer is allowed and rests on none of the codes that must not decide."""
    row = expected()[answer.of.name, answer.question]
    return answer.word in row["allowed"].split("|") and answer.document["codes"][0] not in row[
        "never_by"
    ].split("|")
