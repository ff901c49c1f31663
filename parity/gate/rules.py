"""The `gate:` part of parity.yaml: what CI makes of a verdict, and for how long one holds."""

from collections.abc import Mapping
from typing import Literal

from parity.frozen import frozen
from parity.judging.policy import PolicyError
from parity.typed_json import check_between, check_words, known_keys, typed

Choice = Literal["fail", "pass"]

MAX_AGE_DAYS = 3650.0


@frozen
class GateRules:
    """How a gate leaves: every field has a flag of `parity gate` that overrides it.

    A verdict of the same question is served again for `max_age_days` (0: never). `on_inconclusive`
    and `on_infra` say what an open verdict and a broken infrastructure do to CI; `advisory` never
    breaks it. `confirm_marginal_fail` trains one more replicate an arm before a narrow fail is
    believed. `timeout_seconds` limits the wait.
    """

    max_age_days: float = 7.0
    on_inconclusive: Choice = "fail"
    on_infra: Choice = "fail"
    advisory: bool = False
    confirm_marginal_fail: bool = False
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        check_between("gate.max_age_days", self.max_age_days, 0.0, MAX_AGE_DAYS, PolicyError)
        if self.timeout_seconds is not None:
            check_between("gate.timeout_seconds", self.timeout_seconds, 0.0, 1e9, PolicyError)
        check_words(self, "gate", PolicyError)
        for name in ("advisory", "confirm_marginal_fail"):
            typed(getattr(self, name), bool, f"gate.{name}", refuse=PolicyError)


def gate_rules_from_mapping(
    mapping: object, flags: Mapping[str, object] | None = None
) -> GateRules:
    """Read a `gate:` part with closed keys, flags (where not None) over it; PolicyError says path,
    value and what was expected.
    """
    stated = known_keys({} if mapping is None else mapping, GateRules, "gate", PolicyError)
    values = {
        **stated,
        **{name: value for name, value in (flags or {}).items() if value is not None},
    }
    return GateRules(**values)
