"""Numbers in place of files: `parity compare bf16=2.242 fp8=2.276`, one loss an arm, as published tables have them.

Each number becomes a run of one evaluation, at its tokens where these are stated, printed to the last digit that was typed. Run noise is
assumed; pairing, software and schedule are not known, so that two numbers can fail but never pass (`evaluations.rules`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.cli.inputs import Facts
from parity.cli.terminal.output import UsageError
from parity.comparing.arms import Arm
from parity.judging.curve import MAX_STEP, curve_from_arrays
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.recipes import RECIPES

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([-+]?\d{1,3}))?")
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
EXPECTED = "a loss in nats per token for each arm, such as bf16=2.242 fp8=2.276"
NEEDS_NUMBERS = "needs numbers in place of files, such as bf16=2.242 fp8=2.276"
NEEDS_RUNS = "needs runs in files, but these are numbers"


def typed_numbers(runs: Sequence[str]) -> dict[str, str] | None:
    """The number of each arm as it was typed, None where all arms are files.

    Raises UsageError for numbers and files together, for one number alone, for a name given twice, and for what is no loss.
    """
    split = [run.rpartition("=") for run in runs]
    typed = [_is_number(value) and not (Path(run).exists() or Path(value).exists()) for run, (_, _, value) in zip(runs, split, strict=True)]
    if not any(typed):
        return None
    for run, (name, _, _), is_number in zip(runs, split, typed, strict=True):
        if not is_number:
            number = next(other for other, one in zip(runs, typed, strict=True) if one)
            raise UsageError(f"{number} is a number, but {run!r} is not; expected numbers for all arms, or files for all")
        if not name:
            raise UsageError(f"{run} is a number without the name of its arm; expected {EXPECTED}")
    if len(runs) < 2:
        raise UsageError(f"only {runs[0]} was given; expected {EXPECTED}")
    numbers = {name: value for name, _, value in split}
    if len(numbers) < len(runs):
        twice = next(name for name, _, _ in split if sum(other == name for other, _, _ in split) > 1)
        raise UsageError(f"{twice} was given twice; expected a name of its own for each arm")
    for name, value in numbers.items():
        if not 0.0 < float(value) < math.inf:
            raise UsageError(f"{name} is {value}; expected a positive number: {EXPECTED}")
    return numbers


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text))


def number_arms(numbers: Mapping[str, str], tokens: float | None, facts: Facts) -> list[Arm]:
    """An arm with one run of one evaluation for each number, baseline first.

    An arm that is named as a recipe has that recipe unless another is stated.
    """
    if tokens is not None and not 1.0 <= tokens <= MAX_STEP:
        raise UsageError(f"--tokens is {tokens:g}; expected the tokens that both runs were trained on, such as 23e9")
    facts.refuse_unknown(numbers)
    return [
        (
            name,
            [
                curve_from_arrays(
                    [round(tokens) if tokens is not None else 1],
                    [float(value)],
                    columns={PRINTED_STEP: [printed_step_of(value)]},
                    label=name,
                    recipe=facts.recipes.get(name, name if name in RECIPES else None),
                    rounding=facts.roundings.get(name),
                )
            ],
        )
        for name, value in numbers.items()
    ]


def printed_step_of(text: str) -> float:
    """The last digit's place of a number as it was typed: 0.001 for "2.240" and for "2240e-3"."""
    match = _NUMBER.fullmatch(text)
    decimals = len((match[1] or match[2] or "") if match else "")
    exponent = int(match[3] or 0) if match else 0
    return float(10.0 ** (exponent - decimals))
