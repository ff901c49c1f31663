"""What averages can add to a falling loss, on a straight line."""

import numpy as np
import pytest

from parity.judging.curves.averaging_bias import smoothing_bias
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.window import make_window


def run(loss: object, steps: object = None, **extra: object) -> Curve:
    values = np.asarray(loss, dtype=float)
    at = np.arange(len(values)) if steps is None else steps
    return curve_from_arrays(at, values, **extra)


@pytest.mark.parametrize(("ratio", "lag"), [(0.5, 2.0), (0.4, 2.5), (0.2, 5.0), (0.9, 0.5 / 0.81)])
def test_an_average_lags_by_what_its_noise_leaves_open(ratio: float, lag: float) -> None:
    """On a straight line it is too high by its lag times the slope; four times that counts."""
    line = 10.0 - 0.001 * np.arange(2000)
    wavy = run(line + np.resize([1e-9, -1e-9], 2000))
    bias = smoothing_bias(wavy, np.arange(1900, 2000), ratio, make_window(2000, 0, 0.2, "declared"))
    assert bias.mean() == pytest.approx(4.0 * lag * 0.001, rel=1e-3)
