"""The next step of each code of a policy's check is carried out on a case that raises it: the check
no longer fails, or is no longer open.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.judging.codes import BY_CODE
from parity.judging.precedence import CHECKS
from parity.judging.secondary.accuracy import TaskResult
from tests.parity.judging.precedence.pair import (
    STEPS,
    Pair,
    run,
    with_column,
    with_facts,
    with_loss,
)
from tests.parity.judging.verdict.test_next_step_of_each_code import judged

Edit = Callable[[Pair], None]


def _columns(name: str, base: Any, cand: Any) -> Edit:
    """A column of each arm, as a function of the steps; None leaves it out."""

    def record(pair: Pair) -> None:
        for which, values in (("base", base), ("cand", cand)):
            if values is not None:
                setattr(
                    pair,
                    which,
                    [
                        with_column(one, name, values(number))
                        for number, one in _numbered(pair, which)
                    ],
                )

    return record


def _numbered(pair: Pair, which: str) -> list[tuple[int, Any]]:
    return list(enumerate(getattr(pair, which), 1 if which == "base" else 100))


def _norm(level: float) -> Callable[[int], Callable[[np.ndarray], np.ndarray]]:
    def of_run(number: int) -> Callable[[np.ndarray], np.ndarray]:
        noise = np.random.default_rng(number).normal(0.0, 0.1, STEPS)
        return lambda at: level * np.exp(noise[: len(at)])

    return of_run


def _validation(worse: float) -> Callable[[int], Callable[[np.ndarray], np.ndarray]]:
    def of_run(number: int) -> Callable[[np.ndarray], np.ndarray]:
        noise = np.random.default_rng(number).normal(0.0, 0.002, STEPS)
        return lambda at: np.where(at % 20, np.nan, 2.8 + worse + noise[: len(at)])

    return of_run


def _spikes(which: str, *places: int) -> Edit:
    def spike(pair: Pair) -> None:
        def edit(loss: np.ndarray) -> np.ndarray:
            loss[[*places]] += 1.0
            return loss

        setattr(pair, which, [with_loss(one, edit) for one in getattr(pair, which)])

    return spike


def _seconds(base: float, cand: float, *, together: bool = True) -> Edit:
    """Step times of both arms on one device class, at the same time or on two days."""

    def record(pair: Pair) -> None:
        for which, seconds, day in (("base", base, 0.0), ("cand", cand, 0.0 if together else 1.0)):
            runs = [with_facts(one, device_class="h100") for one in getattr(pair, which)]
            runs = [with_column(one, "step_seconds", _times(seconds)) for one in runs]
            setattr(pair, which, [with_column(one, "unix_seconds", _clock(day)) for one in runs])

    return record


def _clock(day: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda at: 1.7e9 + 86_400.0 * day + at


def _times(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
    noise = np.random.default_rng(round(100 * seconds)).normal(0.0, 0.01, STEPS)
    return lambda at: seconds * np.exp(noise[: len(at)])


def _accuracy(base: int, cand: int, items: int = 4_000) -> Edit:
    def give(pair: Pair) -> None:
        pair.options["evaluations"] = {
            name: {"arc_easy": TaskResult(correct=correct, items=items, choices=4)}
            for name, correct in zip(pair.names, (base, cand), strict=True)
        }

    return give


def _runs(number: int) -> Edit:
    """More runs of both arms, equipped as the first are."""

    def add(pair: Pair) -> None:
        for which, first in (("base", 20), ("cand", 40)):
            arm = getattr(pair, which)
            more = [
                dataclasses.replace(
                    run(first + place),
                    replicate=place,
                    context=arm[0].context,
                    columns=arm[0].columns,
                )
                for place in range(1, number + 1)
            ]
            setattr(pair, which, [*arm, *more])

    return add


def _baseline_spikes_too(pair: Pair) -> None:
    """A rerun of both arms in which the baseline spikes as often as the candidate did."""
    _runs(1)(pair)
    first, rerun = pair.base

    def edit(loss: np.ndarray) -> np.ndarray:
        loss[[150, 250, 350, 450]] += 1.0
        return loss

    pair.base = [first, dataclasses.replace(with_loss(rerun, edit), replicate=1)]
    pair.base, pair.cand = (
        [dataclasses.replace(one, seed_stated=True) for one in arm]
        for arm in (pair.base, pair.cand)
    )


def _nothing(_pair: Pair) -> None:
    """Nothing is recorded."""


@dataclasses.dataclass(frozen=True)
class Case:
    """How a check comes to its code, words of the next step, and how that is done."""

    made: Edit
    says: str
    done: Edit


CASES: dict[str, list[Case]] = {
    "GRAD_NORM_FAILS": [
        Case(
            _columns("grad_norm", _norm(1.0), _norm(1.3)),
            "gradients by layer",
            _columns("grad_norm", None, _norm(1.0)),
        )
    ],
    "GRAD_NORM_OPEN": [
        Case(_nothing, "Record grad_norm", _columns("grad_norm", _norm(1.0), _norm(1.0)))
    ],
    "SPIKES_FAILS": [
        Case(
            _spikes("cand", *range(50, 790, 60)),
            "spikes",
            lambda pair: setattr(pair, "cand", Pair().cand),
        )
    ],
    "SPIKES_OPEN": [
        Case(
            _spikes("cand", 100, 200, 300, 400, 500),
            "another run of both arms",
            _baseline_spikes_too,
        )
    ],
    "VALIDATION_LOSS_FAILS": [
        Case(
            _columns("validation_loss", _validation(0.0), _validation(0.1)),
            "diverge",
            _columns("validation_loss", None, _validation(0.0)),
        )
    ],
    "VALIDATION_LOSS_OPEN": [
        Case(
            _nothing,
            "Evaluate all runs",
            _columns("validation_loss", _validation(0.0), _validation(0.0)),
        ),
        Case(
            _columns("validation_loss", _validation(0.0), _validation(0.02)),
            "add runs",
            _runs(4),
        ),
    ],
    "ACCURACY_FAILS": [
        Case(_accuracy(3_000, 2_400), "Evaluate another run", _accuracy(15_000, 15_000, 20_000))
    ],
    "ACCURACY_OPEN": [
        Case(_nothing, "Give both arms' results", _accuracy(15_000, 15_000, 20_000)),
        Case(_accuracy(75, 74, 100), "evaluate more items", _accuracy(15_000, 15_000, 20_000)),
    ],
    "NET_SPEEDUP_FAILS": [Case(_seconds(1.0, 1.9), "quantize fewer layers", _seconds(1.0, 0.6))],
    "NET_SPEEDUP_OPEN": [
        Case(_nothing, "record step_seconds", _seconds(1.0, 0.6)),
        Case(_seconds(1.0, 0.6, together=False), "at the same time", _seconds(1.0, 0.6)),
    ],
}
LISTED = [(code, place) for code, cases in CASES.items() for place in range(len(cases))]


def test_each_code_of_a_check_has_a_case() -> None:
    assert {entry.code for pair in CHECKS.values() for entry in pair} == CASES.keys()


@pytest.mark.parametrize(("code", "place"), LISTED)
def test_the_next_step_settles_the_check(code: str, place: int) -> None:
    case, pair = CASES[code][place], Pair()
    pair.policy["checks"] = ["loss", code.rsplit("_", 1)[0].lower()]
    case.made(pair)
    verdict = judged(pair)
    assert verdict.codes[0] == code
    assert case.says in " ".join(verdict.advice.sentences)
    case.done(pair)
    after = judged(pair)
    assert after.verdict == "pass", after.decision.deciding.sentence
    if (step := BY_CODE[code].next_step) is not None:
        assert step not in after.advice.sentences
