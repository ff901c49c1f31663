"""What a verdict shows of runs that are equal one for one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.gap.chances import chances_of
from parity.judging.policy import Policy
from parity.judging.verdict.path import path_of
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
SEEDS = (0, 1, 2)
STEPS = 2000


def at(revision: str, **further: str) -> dict[str, str]:
    return {
        "code_digest": f"digest-{revision}",
        "repository_revision": revision,
        "device_class": "h100",
        "data_digest": "d",
        **further,
    }


def arm(
    make_run: MakeRun,
    revision: str,
    *,
    own: int = 0,
    seeds: tuple[int, ...] = SEEDS,
    **options: Any,
) -> list[Curve]:
    """Runs of one seed and batch order each; arms with equal `own` are equal bit for bit."""
    context = options.pop("context", None) or at(revision)
    return [
        make_run(
            seed=100 * own + seed + 1, batch_seed=seed, context=context, recipe="bf16", **options
        )
        for seed in seeds
    ]


def seeded(runs: list[Curve]) -> list[Curve]:
    return [dataclasses.replace(run, seed=seed) for seed, run in enumerate(runs)]


@pytest.fixture
def base(make_run: MakeRun) -> list[Curve]:
    return seeded(arm(make_run, "base"))


@pytest.fixture
def same(make_run: MakeRun) -> list[Curve]:
    """A refactor: another revision, bit-equal runs."""
    return seeded(arm(make_run, "head"))


def judged(
    base: list[Curve], head: list[Curve], policy: Policy, compares: Any = "revision", **options: Any
) -> Verdict:
    options.setdefault("planned_steps", STEPS)
    (verdict,) = judge(
        base, {"head": head}, policy, baseline_name="base", compares={"head": compares}, **options
    )
    return verdict


def changed(run: Curve, loss: np.ndarray | None = None, **context: str) -> Curve:
    values = run.loss if loss is None else loss
    return curve_from_arrays(
        run.steps[: len(values)],
        values,
        label=run.label,
        seed=run.seed,
        recipe=run.recipe,
        rounding=run.rounding,
        context={**run.context, **context},
    )


def test_path_chances_and_advice_of_equal_runs(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    rounded = [[changed(run, np.round(run.loss, 4)) for run in runs] for runs in (base, same)]
    for arms in ((base, same), rounded):
        verdict = judged(arms[0], arms[1], one_percent)
        document, path = verdict.document(), path_of(verdict)
        assert document["gap"] is not None
        assert len(path) >= 26
        assert {(point["mean"], point["lo"], point["hi"]) for point in path} == {
            (0.0, document["gap"]["lo"], document["gap"]["hi"])
        }
        assert {
            (entry["lo"], entry["hi"]) for entry in verdict.measurements.statistics.sensitivity
        } == {(path[0]["lo"], path[0]["hi"])}  # type: ignore[union-attr]
        assert chances_of(document) is None
        assert document["advice"]["sentences"] == []
    waiting = judged(base, same, Policy(margin="1%")).document()
    assert (chances_of(waiting) or {})["undecided"] == 1.0


def test_equal_runs_are_told_of_smoothing_and_not_of_run_to_run_noise(
    base: list[Curve], one_percent: Policy
) -> None:
    """Averages hide spikes in equal logs, too; no noise can lie between equal runs."""
    kernel = np.ones(30) / 30
    smoothed = [
        dataclasses.replace(
            run, loss=np.convolve(np.pad(run.loss, (29, 0), "edge"), kernel, "valid")
        )
        for run in base[:1]
    ]
    verdict = judged(smoothed, smoothed, one_percent)
    assert verdict.codes[0] == "IDENTICAL"
    assert "SMOOTHED" in verdict.codes
    assert "RUN_NOISE_ASSUMED" not in verdict.codes
    single = judged(base[:1], base[:1], one_percent)
    assert (single.codes[0], "SMOOTHED" in single.codes) == ("IDENTICAL", False)
