"""Forged or absurd curves: each ends at once in one clear line, or in a verdict that is not a
pass.
"""

from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, CurveError, curve_from_arrays
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge

N = 2000
STEPS = np.arange(N)
JudgePair = Callable[..., Verdict]


@pytest.fixture
def losses(make_run: Callable[..., Curve]) -> tuple[np.ndarray, np.ndarray]:
    return make_run(seed=1).loss, make_run(seed=2).loss


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (STEPS + 2**53, "out of range"),
        (STEPS.astype(np.uint64) + np.uint64(2**63), "out of range"),
        (STEPS - 5, "step -5 is out of range"),
        (STEPS * 1e300, "not a whole number"),
        (STEPS + 0.5, "step 0.5"),
        (np.where(STEPS == 7, np.nan, STEPS), "step nan in row 7"),
        (np.where(STEPS == 7, -np.inf, STEPS), "step -inf in row 7"),
    ],
)
def test_steps_that_no_run_has(steps: np.ndarray, words: str) -> None:
    with pytest.raises(CurveError, match=words) as error:
        curve_from_arrays(steps, np.ones(N))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (STEPS * 2**42, "STEPS_TOO_LARGE"),
        (STEPS + 2**53 - N, "STEPS_TOO_LARGE"),
        (STEPS * 0, "TOO_FEW_STEPS"),
    ],
)
def test_steps_that_count_nothing(
    steps: np.ndarray, code: str, losses: tuple[np.ndarray, np.ndarray], judge_pair: JudgePair
) -> None:
    base, cand = (curve_from_arrays(steps, loss) for loss in losses)
    verdict = judge_pair(base, cand, assume_complete=True)
    assert verdict.verdict == "inconclusive"
    assert code in verdict.codes


def test_a_run_that_counts_tokens_is_judged(
    losses: tuple[np.ndarray, np.ndarray], judge_pair: JudgePair
) -> None:
    """The honest twin: 15 x 10^12 tokens in 2,000 steps."""
    base, cand = (curve_from_arrays(STEPS * 7_500_000_000, loss) for loss in losses)
    assert "STEPS_TOO_LARGE" not in judge_pair(base, cand, assume_complete=True).codes


@pytest.mark.parametrize(
    "change",
    [
        lambda loss: loss * 1e307,
        lambda loss: loss * 1e9,
        lambda loss: loss * 0.0,
        lambda loss: loss * np.nan,
        lambda loss: loss * np.inf,
        lambda loss: loss * 1e-160,
        lambda loss: loss * 1e-310,
        lambda loss: loss * 5e-324,
        lambda loss: -loss,
        lambda loss: np.full_like(loss, 2.0),
        lambda loss: np.full_like(loss, 1e6),
        lambda loss: np.where(STEPS % 2, np.nan, loss),
        lambda loss: np.where(STEPS % 2, 1e308, loss),
    ],
)
def test_losses_of_no_training_do_not_pass(
    change: Callable[[np.ndarray], np.ndarray],
    losses: tuple[np.ndarray, np.ndarray],
    judge_pair: JudgePair,
) -> None:
    base, cand = (curve_from_arrays(STEPS, change(loss)) for loss in losses)
    assert judge_pair(base, cand).verdict != "pass"
    assert judge_pair(curve_from_arrays(STEPS, losses[0]), cand).verdict != "pass"
    assert judge_pair(base, curve_from_arrays(STEPS, losses[1])).verdict != "pass"


@pytest.mark.parametrize("points", [0, 1, 2, 3, 7])
def test_a_handful_of_points_decides_nothing(points: int, judge_pair: JudgePair) -> None:
    base, cand = (
        curve_from_arrays(STEPS[:points], np.linspace(3, 2, points) + shift)
        for shift in (0.0, 0.001)
    )
    assert judge_pair(base, cand, assume_complete=True).verdict == "inconclusive"


def test_a_constant_loss_is_no_training(
    losses: tuple[np.ndarray, np.ndarray], judge_pair: JudgePair
) -> None:
    base, cand = (curve_from_arrays(STEPS, np.full(N, level)) for level in (2.0, 2.0001))
    assert judge_pair(base, cand).codes[0] == "LOSS_CONSTANT"
    # the honest twin: rounded, but not constant
    coarse = [curve_from_arrays(STEPS, loss.round(2)) for loss in losses]
    assert "LOSS_CONSTANT" not in judge_pair(*coarse).codes


@pytest.mark.parametrize("planned", [0, -1, 2**53 + 1, 10**400, 1500.5, float("nan"), True, "1500"])
def test_a_plan_that_is_no_length(
    planned: object, losses: tuple[np.ndarray, np.ndarray], one_percent: Policy
) -> None:
    base, cand = (curve_from_arrays(STEPS, loss) for loss in losses)
    with pytest.raises(ValueError, match="planned_steps") as error:
        judge([base], {"cand": [cand]}, one_percent, planned_steps=planned)  # type: ignore[arg-type]
    assert len(str(error.value)) < 150


@pytest.mark.parametrize(
    "column", ["learning_rate", "step_seconds", "grad_norm", "validation_loss", "tokens"]
)
@pytest.mark.parametrize("value", [0.0, -1.0, 1e308, 5e-324, np.nan, np.inf, "mixed"])
def test_absurd_columns_break_nothing(
    column: str, value: float | str, losses: tuple[np.ndarray, np.ndarray], judge_pair: JudgePair
) -> None:
    values = np.where(STEPS % 2, 1e308, 5e-324) if isinstance(value, str) else np.full(N, value)
    base, cand = (curve_from_arrays(STEPS, loss, columns={column: values}) for loss in losses)
    verdict = judge_pair(base, cand)
    assert verdict.document()["gap"] is not None
