"""The policies that a job can name, over REST: margins and default values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from parity.judging.criteria import NVFP4, PROFILES, Criteria, Unit

router = APIRouter(prefix="/api/v1", tags=["policies"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How much worse a candidate may be: nats, or a share of the baseline's loss (`relative`, 0.01 is 1 %)."""

    value: float
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDocument:
    """A policy by name; the margin is null if it is computed from the baseline's measured run noise."""

    name: str
    margin: Margin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesDocument:
    """The values of `criteria.profile`, and the default of every other key of `criteria`."""

    profiles: list[ProfileDocument]
    defaults: Mapping[str, Any]


@router.get("/policies")
def policies() -> PoliciesDocument:
    """The policies that a job can name; docs/method.md gives the sources of their margins."""
    profiles = [
        ProfileDocument(name=name, margin=None if amount is None else Margin(value=amount.value, unit=amount.unit))
        for name, amount in PROFILES.items()
    ]
    defaults = {key: value for key, value in Criteria(profile=NVFP4).document().items() if key not in ("profile", "margin")}
    return PoliciesDocument(profiles=profiles, defaults=defaults)
