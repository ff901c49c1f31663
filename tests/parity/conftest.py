"""Curves with a known truth: seven public reruns of one configuration, and synthetic runs of a
power law.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_runs

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    return DATA


@pytest.fixture(scope="session")
def reruns() -> tuple[Curve, ...]:
    """Seven reruns of identical code, initialization and data order (true gap 0), 1,750 steps
    each.
    """
    return tuple(
        dataclasses.replace(run, rounding="nearest")
        for run in read_runs(str(DATA / "nanogpt_reruns.npz"))
    )


def law(n: int) -> np.ndarray:
    return 2.5 + 8.0 * (np.arange(n) + 1.0) ** -0.5


def synthetic(
    n: int = 2000,
    *,
    gap: float = 0.0,
    batch_seed: int = 0,
    seed: int = 1,
    batch_sd: float = 0.08,
    pair_sd: float = 0.004,
    rho: float = 0.0,
    offset_sd: float = 0.0,
    **extra: object,
) -> Curve:
    """One run: law + batch noise (shared by equal `batch_seed`) + the run's own AR(1) noise and
    offset + a constant gap.

    Without a recipe it is on record that it rounds to nearest.
    """
    if "recipe" not in extra:
        extra.setdefault("rounding", "nearest")
    rng = np.random.default_rng((seed, 12345))
    own = rng.normal(0.0, pair_sd / np.sqrt(2.0) * np.sqrt(1.0 - rho**2), n)
    own = lfilter([1.0], [1.0, -rho], own)
    batch = np.random.default_rng(batch_seed).normal(0.0, batch_sd, n)
    loss = law(n) + batch + own + offset_sd * rng.normal() + gap
    return curve_from_arrays(np.arange(n), loss, label=f"run{seed}", **extra)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Curve]:
    return synthetic


@pytest.fixture(scope="session")
def one_percent() -> Policy:
    return policy_from_mapping({"schedule": "decayed", "margin": "1.0%"})


@pytest.fixture(scope="session")
def judge_pair(one_percent: Policy) -> Callable[..., Verdict]:
    """Judge single runs at 1 %, as planned to the baseline's last step unless told otherwise."""

    def judged(
        base: Curve | list[Curve],
        cand: Curve | list[Curve],
        policy: Policy | None = None,
        **options: object,
    ) -> Verdict:
        base, cand = ([arm] if isinstance(arm, Curve) else list(arm) for arm in (base, cand))
        if "planned_steps" not in options and "assume_complete" not in options:
            options["planned_steps"] = int(max(run.steps[-1] for run in base)) + (
                0 if base[0].steps[0] else 1
            )
        (verdict,) = judge(base, {"cand": cand}, policy or one_percent, **options)  # type: ignore[arg-type]
        return verdict

    return judged
