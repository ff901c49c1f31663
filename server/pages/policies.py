"""The policies that a job can name, with their numbers and where those come from (docs/method.md has the same table)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.judging.criteria import BF16_BAR, FP8_GRADE, NOISE_FLOOR, NOISE_FLOOR_DF, NVFP4, NVFP4_DECAY, PROFILES, Criteria

_ORIGINS: Mapping[str, str] = {
    FP8_GRADE: "DeepSeek-V3's relative loss error of FP8 against BF16",
    BF16_BAR: "the bar used in marin's FP8 work",
    NVFP4: "NVFP4 pre-training report, stable phase",
    NVFP4_DECAY: "the same report, decay phase; never chosen automatically",
    NOISE_FLOOR: f"no worse than a rerun; needs a run floor measured with {NOISE_FLOOR_DF} degrees of freedom",
}
_MEANINGS: Mapping[str, str] = {
    "confidence": "of the two-sided interval; the tests are one-sided at half of what is left",
    "window_fraction": "the last share of the planned steps, which the verdict reads",
    "min_points": "common steps that the window has to hold",
    "assumed_noise": "whether a run-to-run noise that was assumed, not measured, can pass",
    "two_sided": "whether a candidate that is better by more than the margin is refused too",
    "pairing": "whether the arms see the same batches in the same order",
    "run_floor_df": "how many degrees of freedom an assumed run noise counts for",
    "gates": "checks that decide; the others advise",
    "accuracy_margin_points": "how many percentage points a downstream accuracy may be worse",
    "early_stop": "whether a pair that looks hopeless is stopped or only told",
}


def profiles() -> list[tuple[str, str, str]]:
    """Every profile: its name, its margin in words, its origin."""
    return [(name, _margin(name), _ORIGINS[name]) for name in (FP8_GRADE, BF16_BAR, NVFP4, NVFP4_DECAY, NOISE_FLOOR)]


def defaults() -> list[tuple[str, str, str]]:
    """What a policy says unless a job says otherwise: key, value, meaning."""
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
