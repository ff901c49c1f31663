"""Numbers in place of runs: one loss an arm, as published tables have them."""

import re

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.gap import PRINTED_STEP

_NONFINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([-+]?\d{1,3}))?")


def number_curve(text: str, label: str, step: int = 1) -> Curve:
    """A run of one evaluation, printed to the last digit of a number as it was typed."""
    return curve_from_arrays(
        [step], [float(text)], columns={PRINTED_STEP: [printed_step_of(text)]}, label=label
    )


def printed_step_of(text: str) -> float:
    """The last digit's place of a number as it was typed: 0.001 for "2.240" and for "2240e-3"."""
    match = _NUMBER.fullmatch(text)
    decimals = len((match[1] or match[2] or "") if match else "")
    exponent = int(match[3] or 0) if match else 0
    return float(10.0 ** (exponent - decimals))


def is_typed_number(text: str) -> bool:
    """Whether a text is a number as one types it, NaN or infinity."""
    return bool(_NUMBER.fullmatch(text) or _NONFINITE.fullmatch(text))
