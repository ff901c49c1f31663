"""Statements as they are written: options of `parity compare`, arguments of `parity.compare`, and
what the owner of a job does. The one home of how a statement is written.
"""

import shlex
from collections.abc import Sequence
from typing import Any, Literal

from parity.frozen import frozen

Key = Literal[
    "planned_steps",
    "schedule",
    "recipe",
    "rounding",
    "seeds",
    "pairing",
    "loss_is",
    "loss_unit",
    "start",
    "start_precision",
]
_OF_POLICY = ("schedule", "pairing", "loss_unit", "start")
_IN_FORM = ("planned_steps", "recipe", "seeds")


@frozen
class Statement:
    """What a person may state: `key` as `parity.compare` calls it (a fact of the context by its own
    name), of an `arm`, or (None) of all.
    """

    key: Key
    value: str
    arm: str | None = None


def as_options(statements: Sequence[Statement]) -> str:
    """`--planned-steps 1500 --rounding fp8=nearest`, quoted for a shell."""
    return " ".join(_option(one) for one in statements)


def _option(one: Statement) -> str:
    if one.key == "start_precision":
        return f"--context {shlex.quote(f'{one.arm}:{one.key}={one.value}')}"
    value = one.value if one.arm is None else f"{one.arm}={one.value}"
    return f"--{one.key.replace('_', '-')} {shlex.quote(value)}"


def as_arguments(statements: Sequence[Statement]) -> str:
    """`planned_steps=1500, rounding={"fp8": "nearest"}`, as Python has it."""
    by_name: dict[str, Any] = {}
    for one in statements:
        if one.key == "start_precision":
            by_name.setdefault("context", {})[one.arm] = {one.key: one.value}
        elif one.arm is not None:
            by_name.setdefault(one.key, {})[one.arm] = one.value
        elif one.key == "planned_steps":
            by_name[one.key] = int(one.value)
        elif one.key == "seeds":
            by_name[one.key] = [int(seed) for seed in one.value.split(",")]
        else:
            by_name[one.key] = one.value
    return ", ".join(f"{name}={_literal(value)}" for name, value in by_name.items())


def _literal(value: object) -> str:
    """A value with double quotes, as the documentation writes them."""
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
        )
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def for_owner(statements: Sequence[Statement]) -> str:
    """What the owner of a job does, to follow "Then": "write `schedule: decayed` under `policy:` of
    a new job".
    """
    lines = [f"`{one.key}: {one.value}`" for one in statements if one.key in _OF_POLICY]
    parts = [f"write {' and '.join(lines)} under `policy:` of a new job"] if lines else []
    stated = [
        f"{one.key.replace('_', ' ')}{f' of {one.arm}' if one.arm else ''}: {one.value}"
        for one in statements
        if one.key in _IN_FORM
    ]
    if stated:
        parts.append(f"state it on the job's page ({'; '.join(stated)})")
    if any(one.key == "rounding" for one in statements):
        parts.append("state `rounding: nearest` where each run attaches")
    if any(one.key == "start_precision" for one in statements):
        parts.append("record `start_precision: bf16` in the run's manifest")
    return " and ".join(parts)
