"""Step times are compared only of runs that trained under the same conditions; every other pair
gets its reason.
"""

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.secondary.conditions import NotComparable, common_conditions

START = 1.7e9


def run(
    begin: float = 0.0, end: float = 1000.0, tokens: float | None = None, **context: str
) -> Curve:
    """A run that trained from one moment to another, seconds after the start."""
    columns: dict[str, np.ndarray] = {"unix_seconds": START + np.linspace(begin, end, 500)}
    if tokens is not None:
        columns["tokens"] = tokens * np.arange(500)
    return curve_from_arrays(
        np.arange(500), np.ones(500), columns=columns, context={"device_class": "h100", **context}
    )


def reason(baseline: list[Curve], candidate: list[Curve]) -> str:
    conditions = common_conditions(baseline, candidate)
    return conditions.reason if isinstance(conditions, NotComparable) else ""


def test_runs_side_by_side_are_compared_over_their_common_time() -> None:
    assert common_conditions([run()], [run(100, 900)]) == (START + 100, START + 900)
    assert common_conditions(
        [run(engine="maxtext", host="a")], [run(400, 1400, engine="maxtext", host="a")]
    ) == (START + 400, START + 1000)


def test_runs_in_turns_are_compared() -> None:
    in_turns = [run(0, 100), run(200, 300)], [run(100, 200), run(300, 400)]
    assert common_conditions(*in_turns) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        ([run()], [run(1000, 2000)], "different times"),
        ([run()], [run(501, 1501)], "different times"),
        ([run()], [run(86_400, 87_400)], "different times"),
        ([run(0, 100), run(100, 200)], [run(200, 300), run(300, 400)], "different times"),
        ([run(0, 100), run(200, 300)], [run(260, 360)], "different times"),
        (
            [run(device_class="h100")],
            [run(device_class="b200")],
            "different device classes (b200, h100)",
        ),
        ([run(device_class="")], [run()], "device class of the runs is not recorded"),
        ([run(host="a")], [run(host="b")], "different machines (a, b)"),
        ([run(engine="emulated")], [run(engine="emulated")], "engine emulated"),
        ([run(tokens=1000.0)], [run(tokens=500.0)], "different numbers of tokens"),
        (
            [curve_from_arrays(np.arange(5), np.ones(5), context={"device_class": "h100"})],
            [run()],
            "when the runs trained is not recorded",
        ),
        ([curve_from_arrays(np.arange(5), np.ones(5))], [run()], "device class"),
    ],
)
def test_what_is_not_compared(baseline: list[Curve], candidate: list[Curve], words: str) -> None:
    assert words in reason(baseline, candidate)
    assert words in reason(candidate, baseline) or "numbers of tokens" in words


def test_honest_twins_are_compared() -> None:
    assert reason([run()], [run(499, 1499)]) == ""
    # the spread of the runs holds the machines'
    assert reason([run(host="a"), run(host="b")], [run(host="b"), run(host="a")]) == ""
    assert reason([run(tokens=1000.0)], [run(tokens=1000.0)]) == ""
    assert reason([run(tokens=1000.0)], [run()]) == ""
