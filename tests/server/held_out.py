"""Held-out losses for tests: cases, bodies of requests, and jobs of engine evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping
from server.database.sessions import Database
from server.jobs.evaluations import bundle_of, outcome_of
from server.jobs.push_evaluations import EvaluationSubmission, record_once

POLICY = {"margin": "1.0%", "schedule": "decayed"}
STEPS = np.arange(500, 2001, 300)
SEEDS = 4


def losses(arm: int, seed: int, gap: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The losses of one run at 500 to 2,000 steps, to six decimals."""
    own = np.random.default_rng([arm, seed])
    loss = 2.4 + 1.5 * np.exp(-STEPS / 300) + gap
    rounded: np.ndarray[Any, np.dtype[np.float64]] = np.round(
        loss + own.normal(0.0, 0.002) + own.normal(0.0, 0.0008, len(STEPS)), 6
    )
    return rounded


def runs_of(arm: int, gap: float) -> list[dict[str, Any]]:
    """The runs of an arm as a request has them."""
    return [
        {
            "steps": STEPS.tolist(),
            "loss": losses(arm, seed, gap).tolist(),
            "label": f"seed {seed}",
            "seed": seed,
        }
        for seed in range(SEEDS)
    ]


def body(gaps: Mapping[str, float], **more: Any) -> dict[str, Any]:
    """A request: candidates so far above bf16."""
    return {
        "name": "held out",
        "baseline_name": "bf16",
        "baseline": runs_of(0, 0.0),
        "candidates": {name: runs_of(arm, gap) for arm, (name, gap) in enumerate(gaps.items(), 1)},
        "policy": POLICY,
        "planned_steps": 2000,
        "paired": True,
    } | more


def case_of(request: Mapping[str, Any]) -> EvaluationCase:
    """The case of such a request."""

    def curves(runs: list[dict[str, Any]]) -> list[Curve]:
        return [
            curve_from_arrays(run["steps"], run["loss"], label=run["label"], seed=run["seed"])
            for run in runs
        ]

    return EvaluationCase(
        baseline=curves(request["baseline"]),
        candidates={name: curves(runs) for name, runs in request["candidates"].items()},
        policy=policy_from_mapping(request["policy"]),
        baseline_name=request["baseline_name"],
        paired=request["paired"],
        planned_steps=request["planned_steps"],
    )


def make_evaluations(
    database: Database, gaps: Mapping[str, float], key: str | None = None, name: str = "held out"
) -> str:
    """A judged job of candidates so far above bf16."""
    case = case_of(body(gaps))
    submission = EvaluationSubmission(name=name, case=case, bundle=bundle_of(case))
    with database.write() as session:
        return record_once(session, submission, outcome_of(case), "local", key)[0].id
