"""Numbers in documents: non-finite ones as strings, arrays rounded for charts."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Number = float | Literal["nan", "inf", "-inf"]


def number(value: float) -> Number:
    """A float for JSON; non-finite values become the strings nan, inf and -inf."""
    if np.isfinite(value):
        return float(value)
    return kind_of(value)


def kind_of(value: float) -> Literal["nan", "inf", "-inf"]:
    """The word for a value that is not finite."""
    if np.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def rounded(
    values: NDArray[np.float64], known: NDArray[np.bool_] | None = None, *, digits: int = 7
) -> list[float | None]:
    """Values (n,) for JSON to some significant digits, null where not `known` or not finite (the
    mean of huge values).

    A chart cannot show more digits, and the response is half as long.
    """
    finite = np.isfinite(values)
    known = finite if known is None else known & finite
    numbers = np.where(known, values, 0.0)
    decade = np.floor(np.log10(np.maximum(np.abs(numbers), 1e-290)))
    scale = 10.0 ** np.clip(digits - 1 - decade, -300, 300)
    scaled = numbers * scale
    numbers = np.where(np.isfinite(scaled), np.round(scaled) / scale, numbers)
    return [
        value if is_known else None
        for value, is_known in zip(numbers.tolist(), known.tolist(), strict=True)
    ]
