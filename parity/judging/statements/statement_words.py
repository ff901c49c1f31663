"""Statements as they are written: options of `parity compare`, arguments of `parity.compare`, and
what the owner of a job does. The one home of how a statement is written.
"""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from parity.frozen import frozen
from parity.judging.document_types import StatementKey

_POLICY_KEYS = ("schedule", "pairing", "loss_unit", "start")
_FORM_KEYS = ("planned_steps", "recipe", "rounding", "seeds")


@frozen
class PossibleStatement:
    """What a person may state: `key` as `parity.compare` calls it (a fact of the context by its own
    name), of an `arm`, or (None) of all.
    """

    key: StatementKey
    value: str
    arm: str | None = None


def is_stated_on_a_page(statement: PossibleStatement) -> bool:
    """Whether the owner of a job of external runs states it on the job's page."""
    return statement.key in _FORM_KEYS


def as_options(statements: Sequence[PossibleStatement]) -> str:
    """`--planned-steps 1500 --rounding fp8=nearest`, quoted for a shell."""
    return " ".join(_option(one) for one in statements)


def _option(one: PossibleStatement) -> str:
    if one.key == "start_precision":
        return f"--context {shlex.quote(f'{one.arm}:{one.key}={one.value}')}"
    value = one.value if one.arm is None else f"{one.arm}={one.value}"
    return f"--{one.key.replace('_', '-')} {shlex.quote(value)}"


def as_arguments(statements: Sequence[PossibleStatement]) -> dict[str, Any]:
    """Arguments of `parity.compare`: planned_steps 1500, rounding {"fp8": "nearest"}."""
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
    return by_name


def python_literal(value: object) -> str:
    """A value of plain types as Python source with double quotes; ValueError for any other."""
    if isinstance(value, dict):
        items = [f"{python_literal(key)}: {python_literal(item)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(python_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(python_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise ValueError(f"a {type(value).__name__} has no literal; expected text, numbers, lists")


def for_owner(statements: Sequence[PossibleStatement]) -> str:
    """What the owner of a job does, to follow "Then": "write `schedule: decayed` under `policy:` of
    a new job".
    """
    lines = [f"`{one.key}: {one.value}`" for one in statements if one.key in _POLICY_KEYS]
    parts = [f"write {' and '.join(lines)} under `policy:` of a new job"] if lines else []
    stated = [
        f"{one.key.replace('_', ' ')}{f' of {one.arm}' if one.arm else ''}: {one.value}"
        for one in statements
        if is_stated_on_a_page(one)
    ]
    if stated:
        parts.append(f"state it on the job's page ({'; '.join(stated)})")
    if any(one.key == "start_precision" for one in statements):
        parts.append("record `start_precision: bf16` in the run's manifest")
    return " and ".join(parts)
