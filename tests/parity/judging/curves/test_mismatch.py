import numpy as np
import pytest

from parity.judging.curves.alignment import align
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import pair_correlation
from parity.judging.curves.mismatch import Mismatch, find_mismatch


def between(base: Curve, cand: Curve, rounding_step: float = 0.0) -> Mismatch:
    aligned = align([base], [cand])
    r_pair = (
        pair_correlation(aligned.baseline[0], aligned.candidate[0])
        if len(aligned.steps) > 20
        else None
    )
    return find_mismatch([base], [cand], aligned, r_pair, rounding_step)


def renumbered(run: Curve, steps: np.ndarray) -> Curve:
    return curve_from_arrays(steps, run.loss)


def test_a_pair_that_fits_has_no_mismatch(reruns: tuple[Curve, ...]) -> None:
    assert between(*reruns[:2]) == Mismatch()


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_shifted_steps(shift: int, reruns: tuple[Curve, ...]) -> None:
    base, cand = (renumbered(run, run.steps + 2) for run in reruns[:2])
    assert between(base, renumbered(cand, cand.steps + shift)).shift == shift
    thin = [curve_from_arrays(run.steps[::5], run.loss[::5]) for run in (base, cand)]
    assert between(thin[0], renumbered(thin[1], thin[1].steps + shift)).shift == shift


@pytest.mark.parametrize("factor", [2, 512, 1000, 524_288])
def test_steps_in_another_unit(factor: int, reruns: tuple[Curve, ...]) -> None:
    base, cand = reruns[:2]
    assert between(base, renumbered(cand, cand.steps * factor)).factor == factor
    assert between(renumbered(base, base.steps * factor), cand).factor == pytest.approx(
        1.0 / factor
    )


@pytest.mark.parametrize("ratio", [1 / np.log(2), np.log(2), 4.0, 0.25])
def test_losses_in_another_unit(ratio: float, reruns: tuple[Curve, ...]) -> None:
    base, cand = reruns[:2]
    assert between(base, curve_from_arrays(cand.steps, ratio * cand.loss)).ratio == pytest.approx(
        ratio, rel=0.01
    )


@pytest.mark.parametrize("ratio", [1.02, 0.9, 1.15])
def test_a_candidate_that_is_only_worse_is_no_unit(ratio: float, reruns: tuple[Curve, ...]) -> None:
    base, cand = reruns[:2]
    assert between(base, curve_from_arrays(cand.steps, ratio * cand.loss)).ratio is None
    diverged = np.where(cand.steps > 300, 1.4427, 1.0) * cand.loss
    assert between(base, curve_from_arrays(cand.steps, diverged)).ratio is None


def test_rounding_that_hides_the_batches(reruns: tuple[Curve, ...]) -> None:
    base, cand = (curve_from_arrays(run.steps, run.loss.round(0)) for run in reruns[:2])
    assert between(base, cand, 1.0).rounding_hides
    assert not between(reruns[0], reruns[1], 1e-3).rounding_hides
