"""Judged cases for cards: one of each verdict, several candidates, and held-out losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from parity.cards.card import Card
from parity.cards.make_card import make_card
from parity.judging.case import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import Policy

STEPS = np.arange(1500)
CONTEXT = {
    "device_class": "gpu:sm100",
    "code_revision": "4f2a9d17c0de",
    "version.jax": "0.10.2",
    "host": "node-7",
}


def run(seed: int, gap: float = 0.0, recipe: str | None = "fp8", **more: str) -> Curve:
    """A run whose batches are those of its seed, so far above the baseline."""
    batches, own = (
        np.random.default_rng([key, seed]) for key in (1, len(str(recipe)) + round(1e4 * gap))
    )
    loss = 1.4 + 1.5 * np.exp(-STEPS / 80) + batches.normal(0, 0.05, len(STEPS)) + gap
    return curve_from_arrays(
        STEPS,
        loss + own.normal(0, 0.005, len(STEPS)),
        seed=seed,
        recipe=recipe,
        context=CONTEXT | more,
        label=f"seed {seed}",
    )


def case(gaps: Mapping[str, float], **changes: object) -> Case:
    """fp8 against candidates so far above it, two runs an arm."""
    facts = {
        "baseline": [run(1), run(2)],
        "candidates": {name: [run(1, gap, name), run(2, gap, name)] for name, gap in gaps.items()},
        "policy": Policy(margin="1%", schedule="decayed"),
        "baseline_name": "fp8",
        "planned_steps": 1500,
    }
    return Case(**(facts | changes))


def held_out(gap: float) -> EvaluationCase:
    """Held-out losses of four runs an arm at six points."""
    steps = np.arange(500, 2001, 300)

    def losses(arm: int, seed: int) -> Curve:
        own = np.random.default_rng([arm, seed])
        loss = 2.4 + 1.5 * np.exp(-steps / 300) + own.normal(0.0, 0.002, len(steps)) + arm * gap
        recipe = ("bf16", "mxfp8")[arm]
        return curve_from_arrays(steps, loss, seed=seed, recipe=recipe, label=f"seed {seed}")

    return EvaluationCase(
        baseline=[losses(0, seed) for seed in range(4)],
        candidates={"mxfp8": [losses(1, seed) for seed in range(4)]},
        policy=Policy(margin="1%", schedule="decayed"),
        baseline_name="bf16",
        paired=True,
        planned_steps=2000,
    )


CASES: Mapping[str, Callable[[], Case | EvaluationCase]] = {
    "pass": lambda: case({"mxfp8": 0.0}),
    "fail": lambda: case({"nvfp4": 0.05}),
    "inconclusive": lambda: case({"mxfp8": 0.0134}),
    "several candidates": lambda: case({"mxfp8": 0.0, "nvfp4": 0.05, "nvfp4_no_rht": 0.0134}),
    "held-out losses": lambda: held_out(0.0),
}
STATES = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "inconclusive",
    "several candidates": "fail",
    "held-out losses": "pass",
}


def card_of(judged: Case | EvaluationCase, **more: object) -> Card:
    """The card of a case as this judge judges it."""
    return make_card(judged, judged.documents(), **more)
