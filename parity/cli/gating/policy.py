"""The `gate:` part of parity.yaml: what CI makes of a verdict, and for how long one holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parity.judging.criteria import CriteriaError

Choice = Literal["fail", "pass"]

MAX_AGE_DAYS = 3650.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """How a gate leaves: every field has a flag of `parity gate` that overrides it.

    A verdict of the same question is served again for `max_age_days` (0: never). `on_inconclusive` and `on_infra` say what an open
    verdict and a broken infrastructure do to CI; `advisory` never breaks it. `confirm_marginal_fail` trains one more replicate an arm
    before a narrow fail is believed. `timeout_seconds` limits the wait.
    """

    max_age_days: float = 7.0
    on_inconclusive: Choice = "fail"
    on_infra: Choice = "fail"
    advisory: bool = False
    confirm_marginal_fail: bool = False
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        _number("gate.max_age_days", self.max_age_days, 0.0, MAX_AGE_DAYS)
        if self.timeout_seconds is not None:
            _number("gate.timeout_seconds", self.timeout_seconds, 0.0, 1e9)
        for name in ("on_inconclusive", "on_infra"):
            if getattr(self, name) not in ("fail", "pass"):
                raise CriteriaError(f"gate.{name}", getattr(self, name), "fail or pass")
        for name in ("advisory", "confirm_marginal_fail"):
            if not isinstance(getattr(self, name), bool):
                raise CriteriaError(f"gate.{name}", getattr(self, name), "true or false")


def gate_policy_from_mapping(mapping: object, flags: Mapping[str, object] | None = None) -> GatePolicy:
    """Read a `gate:` part with closed keys, flags (where not None) over it; CriteriaError says path, value and what was expected."""
    names = [item.name for item in dataclasses.fields(GatePolicy)]
    mapping = {} if mapping is None else mapping
    if not isinstance(mapping, Mapping):
        raise CriteriaError("gate", mapping, "a mapping of " + ", ".join(names))
    for key, value in mapping.items():
        if key not in names:
            raise CriteriaError(f"gate.{key}", value, "no such key; known keys: " + ", ".join(names))
    values: dict[str, Any] = {**mapping, **{name: value for name, value in (flags or {}).items() if value is not None}}
    return GatePolicy(**values)


def _number(path: str, value: object, low: float, high: float) -> None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not usable or not low <= value <= high:  # type: ignore[operator]
        raise CriteriaError(path, value, f"a number from {low:g} to {high:g}")
