import itertools

import numpy as np
import pytest

from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.independence import block_memory, dependence, resemblance, shared_start
from tests.parity.attacks.case import with_loss
from tests.parity.attacks.copies import COPIES, ema


def twin(difference: np.ndarray) -> float:
    """T by loops."""
    late = difference[int(0.2 * len(difference)) :]
    blocks = np.array_split(late, 8)
    deviations = []
    for block in blocks:
        middle = float(np.median(block))
        deviations.append(
            1.482602218505602 * float(np.median([abs(value - middle) for value in block]))
        )
    typical = sum(sorted(deviations)[3:5]) / 2
    return float(
        np.mean([len(block) * (sum(block) / len(block)) ** 2 for block in blocks]) / typical**2
    )


@pytest.mark.parametrize("n", [60, 500, 1750])
def test_memory_of_differences_twin(n: int) -> None:
    difference = np.random.default_rng(n).normal(0.001, 0.004, n)
    assert block_memory(difference) == pytest.approx(twin(difference))


def test_memory_is_one_for_noise_and_large_for_an_offset_and_unknown_for_short_series() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.004, 4000)
    assert block_memory(noise) == pytest.approx(1.0, abs=0.9)
    assert (block_memory(noise + 0.004) or 0.0) > 100.0
    assert block_memory(noise[:48]) is None
    assert block_memory(np.zeros(1000)) == 0.0


def test_real_reruns_are_independent_whatever_their_order(reruns: tuple[Curve, ...]) -> None:
    for first, second in itertools.permutations(reruns, 2):
        assert dependence(first, second) is None
        assert shared_start(first, second) is None
        assert resemblance(first, second) is None


@pytest.mark.parametrize("name", list(COPIES))
def test_no_copy_and_no_fork_counts(name: str, reruns: tuple[Curve, ...]) -> None:
    for number, (run, other, third) in enumerate([reruns[:3], reruns[3:6], reruns[4:7]]):
        kept, left_out = independent_runs(
            [
                run,
                COPIES[name](run, 1, (other, third, other)),
                COPIES[name](run, 2, (other, third, other)),
            ]
        )
        assert (kept, len(left_out)) == ((run,), 2), number


def test_the_reason_is_named(reruns: tuple[Curve, ...]) -> None:
    run, other = reruns[:2]
    late = curve_from_arrays(other.steps[200:], other.loss[200:], label="late")
    (entry,) = independent_runs([run, late])[1]
    assert (entry.label, entry.relation) == ("late", "late")
    assert dependence(run, run) == ("equal", "equal at every step")
    assert (
        dependence(run, curve_from_arrays(run.steps, np.append(run.loss[:300], other.loss[300:])))
        or ("", "")
    )[0] == "fork"


def test_curves_without_noise_at_two_levels_are_not_one() -> None:
    flat, above = (curve_from_arrays(np.arange(500), np.full(500, level)) for level in (3.0, 3.001))
    assert resemblance(flat, above) is None
    assert resemblance(flat, flat) == "equal at every step"


def test_runs_that_share_nothing_are_left_to_the_comparison() -> None:
    first, second = (
        curve_from_arrays(np.arange(start, start + 50), np.ones(50) * start) for start in (1, 100)
    )
    assert dependence(first, second) is None
    assert shared_start(first, second) is None


def as_bfloat16(loss: np.ndarray, *, cut: bool = False) -> np.ndarray:
    bits = loss.astype(np.float32).view(np.uint32)
    return (
        ((bits + (0 if cut else 0x8000)) & 0xFFFF0000)
        .astype(np.uint32)
        .view(np.float32)
        .astype(np.float64)
    )


@pytest.mark.parametrize("cut", [False, True])
def test_a_log_in_bfloat16_is_the_same_log(cut: bool, reruns: tuple[Curve, ...]) -> None:
    for run, other in itertools.pairwise(reruns):
        assert dependence(run, with_loss(run, as_bfloat16(run.loss, cut=cut))) == (
            "equal",
            "equal as printed",
        )
        assert dependence(run, with_loss(other, as_bfloat16(other.loss, cut=cut))) is None


@pytest.mark.parametrize("decimals", [7, 4, 3, 2])
@pytest.mark.parametrize("every", [1, 10, 50])
def test_honest_runs_are_no_copies_however_they_are_printed(
    decimals: int, every: int, reruns: tuple[Curve, ...]
) -> None:
    some = [
        curve_from_arrays(run.steps[::every], run.loss[::every].round(decimals)) for run in reruns
    ]
    for first, second in itertools.combinations(some, 2):
        assert dependence(first, second) is None
        assert resemblance(first, second) is None


@pytest.mark.parametrize("weight", [0.6, 0.9, 0.99])
def test_an_average_of_a_run_is_a_copy_of_it_and_of_no_other_run(
    weight: float, reruns: tuple[Curve, ...]
) -> None:
    for run, other in itertools.pairwise(reruns):
        for first, second in ((run, ema(run, weight)), (ema(run, weight), run)):
            assert (dependence(first, second) or ("",))[0] == "copy"
        assert dependence(other, ema(run, weight)) is None
        assert resemblance(other, ema(run, weight)) is None
