"""Numbers in place of files: `parity compare bf16=2.242 fp8=2.276`, one loss an arm, as published
tables have them.

Each number becomes a run of one evaluation, at its tokens where these are stated, printed to the
last digit that was typed. Run-to-run noise is assumed; pairing, software and schedule are not
known, so that two numbers can fail but never pass (`evaluations.rules`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from parity.cli.inputs.statements import ArmStatements
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import Arm
from parity.judging.curves.curve import MAX_STEP
from parity.readers.run_tables.typed_number import is_typed_number, number_curve
from parity.recipes import RECIPES

EXPECTED = "a loss in nats per token for each arm, such as bf16=2.242 fp8=2.276"
NEEDS_NUMBERS = "needs numbers in place of files, such as bf16=2.242 fp8=2.276"
NEEDS_RUNS = "needs runs in files, but these are numbers"


def typed_numbers(runs: Sequence[str]) -> dict[str, str] | None:
    """The number of each arm as it was typed, None where all arms are files.

    Raises UsageError for numbers and files together, for one number alone, for a name given twice,
    and for what is no loss.
    """
    split = [run.rpartition("=") for run in runs]
    typed = [
        is_typed_number(value) and not (Path(run).exists() or Path(value).exists())
        for run, (_, _, value) in zip(runs, split, strict=True)
    ]
    if not any(typed):
        return None
    for run, (name, _, _), is_typed in zip(runs, split, typed, strict=True):
        if not is_typed:
            number = next(other for other, one in zip(runs, typed, strict=True) if one)
            raise UsageError(
                f"{number} is a number, but {run!r} is not; expected numbers for all arms, or "
                "files for all"
            )
        if not name:
            raise UsageError(f"{run} is a number without the name of its arm; expected {EXPECTED}")
    if len(runs) < 2:
        raise UsageError(f"only {runs[0]} was given; expected {EXPECTED}")
    numbers = {name: value for name, _, value in split}
    if len(numbers) < len(runs):
        twice = next(
            name for name, _, _ in split if sum(other == name for other, _, _ in split) > 1
        )
        raise UsageError(f"{twice} was given twice; expected a name of its own for each arm")
    for name, value in numbers.items():
        if not 0.0 < float(value) < math.inf:
            raise UsageError(f"{name} is {value}; expected a positive number: {EXPECTED}")
    return numbers


def number_arms(
    numbers: Mapping[str, str], tokens: float | None, facts: ArmStatements
) -> list[Arm]:
    """An arm with one run of one evaluation for each number, baseline first.

    An arm that is named as a recipe has that recipe unless another is stated.
    """
    if tokens is not None and not 1.0 <= tokens <= MAX_STEP:
        raise UsageError(
            f"--tokens is {tokens:g}; expected the tokens that both runs were trained on, such as "
            "23e9"
        )
    facts.refuse_unknown(numbers)
    return [
        (
            name,
            [
                replace(
                    number_curve(value, name, 1 if tokens is None else round(tokens)),
                    recipe=facts.recipes.get(name, name if name in RECIPES else None),
                    rounding=facts.roundings.get(name),
                )
            ],
        )
        for name, value in numbers.items()
    ]
