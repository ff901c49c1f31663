"""Policies: which parts of a model keep the candidate's arithmetic, and which go back to something safer.

A space has n switches, each with the override of a job file that takes its part back: places (blocks, projections, GEMMs in bf16 or
FP8), an ingredient (`switches` without a recipe), or the last part of a run (`from_step`). A policy has one bit for each switch:

    1  the candidate's arithmetic      0  the switch's override holds           "11...1" is the candidate itself

The assumption that can fail: with all switches at 0 the run computes what the baseline does, or something safer, so its gap counts
as 0. The switches of a space must cover everything that the candidate changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Policy = str
MOST_SWITCHES = 12
"""4,096 policies, each of which is rated after every result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One part that can go back, and the override of a job file that does it. ValueError for one that reaches too far."""

    name: str
    override: Mapping[str, Any]

    def __post_init__(self) -> None:
        if "recipe" in self.override and not self.override.get("projections"):
            raise ValueError(
                f"the override of switch {self.name!r} has a recipe and no projections, expected their names: "
                "without them it quantizes attention under layer_policy mlp_only"
            )
        if "recipe" not in self.override and not self.override.get("switches"):
            raise ValueError(f"the override of switch {self.name!r} is {dict(self.override)}, expected a recipe or switches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All policies of up to 12 switches."""

    switches: tuple[Switch, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.switches]
        if not 1 <= len(names) <= MOST_SWITCHES or len(set(names)) < len(names):
            raise ValueError(f"{len(names)} switches, expected 1 to {MOST_SWITCHES} with different names; put neighbouring parts together")

    @property
    def size(self) -> int:
        """The number of switches."""
        return len(self.switches)

    @property
    def candidate(self) -> Policy:
        """The policy that takes nothing back."""
        return "1" * self.size

    def overrides(self, policy: Policy) -> list[dict[str, Any]]:
        """The overrides of a job file, in the order in which they must stand: later ones win, so ingredients come before recipes."""
        check(policy, self.size)
        held = [switch.override for switch, bit in zip(self.switches, policy, strict=True) if bit == "0"]
        return [dict(each) for each in sorted(held, key=_rank)]


def check(policy: Policy, size: int) -> None:
    """Raises ValueError for a policy that does not have one bit for each switch."""
    if len(policy) != size or set(policy) - {"0", "1"}:
        raise ValueError(f"the policy is {policy!r}, expected {size} times 0 or 1")


def all_policies(size: int) -> tuple[Policy, ...]:
    """The 2^size policies in the order of their numbers: policy i is i in binary."""
    return tuple(f"{number:0{size}b}" for number in range(2**size))


def without(size: int, at: int) -> Policy:
    """The candidate with one switch taken back."""
    return "1" * at + "0" + "1" * (size - at - 1)


def alone(size: int, at: int) -> Policy:
    """The candidate's arithmetic in one switch alone."""
    return "0" * at + "1" + "0" * (size - at - 1)


def _rank(override: Mapping[str, Any]) -> tuple[bool, bool]:
    return "recipe" in override, "from_step" in override


def names(switches: Sequence[Switch], policy: Policy) -> list[str]:
    """The switches that a policy takes back."""
    return [switch.name for switch, bit in zip(switches, policy, strict=True) if bit == "0"]
