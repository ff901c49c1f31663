"""The policies that a job can name, with their numbers and the sources of these (docs/method.md has the same table)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.judging.criteria import BF16_BAR, FP8_GRADE, NOISE_FLOOR, NOISE_FLOOR_DF, NVFP4, NVFP4_DECAY, PROFILES, Criteria

_ORIGINS: Mapping[str, str] = {
    FP8_GRADE: "DeepSeek-V3's relative loss error of FP8 against BF16",
    BF16_BAR: "the threshold in marin's FP8 work",
    NVFP4: "NVFP4 pre-training report, stable phase",
    NVFP4_DECAY: "the same report, decay phase; never chosen automatically",
    NOISE_FLOOR: f"no worse than a rerun; needs a run floor measured with {NOISE_FLOOR_DF} degrees of freedom",
}
_MEANINGS: Mapping[str, str] = {
    "confidence": "level of the two-sided interval; each test is one-sided, at half of the remainder",
    "window_fraction": "the last part of the planned steps, which the verdict reads",
    "min_points": "least number of common steps in the window",
    "assumed_noise": "whether a candidate can pass if run-to-run noise is assumed, not measured",
    "two_sided": "whether a candidate that is better by more than the margin is refused too",
    "pairing": "whether the arms see the same batches in the same order",
    "run_floor_df": "degrees of freedom of an assumed run noise",
    "gates": "checks that decide; all others are advisory",
    "accuracy_margin_points": "percentage points by which a downstream accuracy may be worse",
    "looks": "how often the question may be judged, with runs added in between; the looks share the error",
    "early_stop": "whether a hopeless or futile candidate is stopped or only reported",
}


def profiles() -> list[tuple[str, str, str]]:
    """Every profile: its name, its margin in words, its origin."""
    return [(name, _margin(name), _ORIGINS[name]) for name in (FP8_GRADE, BF16_BAR, NVFP4, NVFP4_DECAY, NOISE_FLOOR)]


def defaults() -> list[tuple[str, str, str]]:
    """The default values of a policy: key, value, meaning."""
    values = Criteria(profile=NVFP4).document()
    return [(key, _value_text(values[key]), meaning) for key, meaning in _MEANINGS.items()]


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


def _margin(name: str) -> str:
    amount = PROFILES[name]
    if amount is None:
        return "3 sqrt(2) x the baseline's measured run noise"
    return f"{amount} of the baseline's loss" if amount.unit == "relative" else str(amount)
