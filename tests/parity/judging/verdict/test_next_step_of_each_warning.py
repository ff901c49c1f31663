"""What to do about each warning next to a verdict on training losses is carried out on a case that
has it: the warning is gone, or what it refers to is there, and the verdict is no worse.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.codes import BY_CODE
from parity.judging.precedence import WARNINGS
from parity.judging.verdict.verdict import Verdict
from parity.report.facts import facts
from parity.report.view import training_view
from tests.parity.conftest import synthetic
from tests.parity.judging.precedence.changes import CHANGES
from tests.parity.judging.precedence.pair import (
    MARGIN,
    STEPS,
    Pair,
    kept,
    run,
    smoothed,
    with_column,
    with_facts,
    with_loss,
)
from tests.parity.judging.verdict.test_borrowed_noise import FAMILY, QUIET, table
from tests.parity.judging.verdict.test_next_step_of_each_code import judged

Edit = Callable[[Pair], None]
WORST_FIRST = ("fail", "inconclusive", "pass")


def _honest_runs(pair: Pair) -> None:
    honest = Pair()
    pair.base, pair.cand, pair.options = honest.base, honest.cand, honest.options


def _policy(**policy: object) -> Edit:
    return lambda pair: pair.policy.update(policy)


def _both(edit: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def apply(pair: Pair) -> None:
        pair.base = [with_loss(curve, edit) for curve in pair.base]
        pair.cand = [with_loss(curve, edit) for curve in pair.cand]

    return apply


def _replicates(number: int, *, apart: float = 0.0) -> Edit:
    """More runs of both arms, as the first ones are, or further apart by a number of nats."""

    def add(pair: Pair) -> None:
        for arm, first in ((pair.base, 20), (pair.cand, 40)):
            for place in range(1, number + 1):
                rerun = run(first + place)
                moved = rerun.loss + apart * (-1) ** place
                arm.append(
                    dataclasses.replace(rerun, loss=moved, replicate=place, context=arm[0].context)
                )

    return add


def _families(family: str) -> Edit:
    """Both arms borrow from quiet reruns at their loss."""

    def name(pair: Pair) -> None:
        pair.options["noise_table"] = table(QUIET, level=2.8)
        pair.options["families"] = dict.fromkeys(pair.names, family)

    return name


def _without_families(pair: Pair) -> None:
    pair.options = Pair().options


def _copy(pair: Pair) -> None:
    copied = with_loss(pair.base[0], lambda loss: loss + 0.01)
    pair.base = [*pair.base, dataclasses.replace(copied, replicate=1, label="copy")]


def _twice(pair: Pair) -> None:
    pair.base = [*pair.base, dataclasses.replace(pair.base[0], replicate=1, label="again")]


def _fork(pair: Pair) -> None:
    other, half = run(31), STEPS // 2
    loss = np.concatenate([pair.base[0].loss[:half], other.loss[half:]])
    pair.base = [*pair.base, dataclasses.replace(other, loss=loss, replicate=1)]


def _spike(pair: Pair) -> None:
    def spiked(loss: np.ndarray) -> np.ndarray:
        loss[905] += 1.0
        return loss

    pair.cand = [with_loss(curve, spiked) for curve in pair.cand]


def _better(pair: Pair) -> None:
    pair.cand = [with_loss(curve, lambda loss: loss - 0.7 * MARGIN) for curve in pair.cand]


def _rising_late(pair: Pair) -> None:
    """Within the margin over the judged window, not over a shorter one."""

    def later(loss: np.ndarray) -> np.ndarray:
        loss[900:] += 0.75 * MARGIN
        return loss

    pair.cand = [with_loss(curve, later) for curve in pair.cand]


def _noisy_runs(pair: Pair) -> None:
    _families(FAMILY)(pair)
    _replicates(6, apart=0.01)(pair)


def _validation(*arms: str) -> Edit:
    def evaluate(pair: Pair) -> None:
        for which in arms:
            runs = [
                with_column(curve, "validation_loss", lambda at: np.where(at % 50, np.nan, 2.8))
                for curve in getattr(pair, which)
            ]
            setattr(pair, which, runs)

    return evaluate


def _engine(*arms: str) -> Edit:
    def record(pair: Pair) -> None:
        for which in arms:
            runs = [with_facts(curve, engine="maxtext") for curve in getattr(pair, which)]
            setattr(pair, which, runs)

    return record


def _rates(*arms: str) -> Edit:
    def record(pair: Pair) -> None:
        for which in arms:
            runs = [
                with_column(
                    curve,
                    "learning_rate",
                    lambda at: 1e-3 * (0.505 + 0.495 * np.cos(np.pi * (at + 1) / STEPS)),
                )
                for curve in getattr(pair, which)
            ]
            setattr(pair, which, runs)

    return record


def _without_steps(pair: Pair) -> None:
    keep = np.setdiff1d(np.arange(STEPS), np.arange(810, 990, 45))
    pair.base = [kept(curve, keep) for curve in pair.base]
    pair.cand = [kept(curve, keep) for curve in pair.cand]


def _other_batches(pair: Pair) -> None:
    CHANGES["equal data on record"](pair)
    CHANGES["candidate read other batches"](pair)


def _noisy(pair: Pair) -> None:
    pair.cand = [synthetic(STEPS, seed=2, pair_sd=0.08)]


def _seeds(pair: Pair) -> None:
    """Two seeds of the baseline, of which the candidate has the first."""
    pair.base = [_of_seed(1, 0), _of_seed(3, 1)]
    pair.cand = [_of_seed(2, 0)]


def _of_seed(number: int, seed: int):
    return dataclasses.replace(run(number, 61 + seed), seed=seed, seed_stated=True)


def _missing_seed(pair: Pair) -> None:
    pair.cand = [*pair.cand, _of_seed(4, 1)]


def _control(batch_seed: int) -> Edit:
    def give(pair: Pair) -> None:
        pair.options["controls"] = [run(9, batch_seed)]

    return give


def _short_rerun(steps: int) -> Edit:
    def give(pair: Pair) -> None:
        pair.options["short_reruns"] = {pair.names[0]: [kept(run(7), slice(0, steps))]}

    return give


def _late_log(pair: Pair) -> None:
    pair.cand = [kept(curve, slice(STEPS // 10, None)) for curve in pair.cand]


def _plan(pair: Pair) -> None:
    pair.options = {"planned_steps": STEPS}


def _gone(code: str, verdict: Verdict) -> bool:
    return code not in verdict.codes


def _spikes_decide(_code: str, verdict: Verdict) -> bool:
    return any(check["name"] == "spikes" and check["role"] == "decides" for check in verdict.checks)


def _windows_are_shown(_code: str, verdict: Verdict) -> bool:
    shown = dict(facts(training_view(verdict.document())))["other windows"]
    return shown.count("nats") == len(verdict.measurements.statistics.sensitivity) > 1


@dataclasses.dataclass(frozen=True)
class Case:
    """How a warning comes about, words of what to do, and how it is done; `reached` says whether
    that was of use.
    """

    made: Edit
    says: str
    done: Edit
    reached: Callable[[str, Verdict], bool] = _gone


CASES: dict[str, Case] = {
    "RUN_NOISE_ASSUMED": Case(lambda _pair: None, "Add replicates or controls", _replicates(2)),
    "RUN_NOISE_BORROWED": Case(_families(FAMILY), "Replicates replace it", _without_families),
    "RUN_NOISE_CONTRADICTED": Case(
        _noisy_runs,
        "Do not borrow",
        _without_families,
    ),
    "FAMILY_UNUSED": Case(_families("no such family"), "name no family", _without_families),
    "REPLICATES_IDENTICAL": Case(_copy, "the trainer wrote", _honest_runs),
    "REPLICATES_EQUAL": Case(_twice, "with another seed", _honest_runs),
    "REPLICATES_DEPENDENT": Case(_fork, "from step 0", _honest_runs),
    "NONFINITE_DROPPED": Case(
        CHANGES["candidate has NaN at 0.5 % of its steps"], "steps with NaN", _honest_runs
    ),
    "SPIKES_MASKED": Case(
        _spike,
        "makes them decide",
        _policy(checks=["loss", "spikes"]),
        _spikes_decide,
    ),
    "VALIDATION_NOT_COMPARED": Case(_validation("base"), "the same steps", _validation("cand")),
    "CONTEXT_IN_ONE_ARM": Case(_engine("base"), "both arms", _engine("cand")),
    "STEPS_MISSING": Case(_without_steps, "the missing steps", _honest_runs),
    "POLICY_UNUSUAL": Case(_policy(confidence=0.9), "Check the policy", _policy(confidence=0.95)),
    "BETTER_THAN_NOISE": Case(_better, "not swapped", _honest_runs),
    "PAIRING_UNPROVEN": Case(_other_batches, "the data digests", _honest_runs),
    "PAIRING_WEAK": Case(_noisy, "the same batches", _honest_runs),
    "WINDOW_SENSITIVE": Case(
        _rising_late, "over the other windows", lambda _pair: None, _windows_are_shown
    ),
    "ROUNDED": Case(_both(lambda loss: loss.round(3)), "more digits", _honest_runs),
    "SMOOTHED": Case(
        _both(lambda loss: smoothed(loss, 3)), "without a moving average", _honest_runs
    ),
    "RUNS_UNPAIRED": Case(_seeds, "Train the missing runs", _missing_seed),
    "CONTROLS_LEFT_OUT": Case(_control(5), "same spec", _control(0)),
    "SHORT_RERUNS_LEFT_OUT": Case(_short_rerun(200), "between 40 and 95 %", _short_rerun(600)),
    "BEYOND_PLAN": Case(CHANGES["plan of 94 % of the runs"], "planned length", _plan),
    "LOG_STARTS_LATE": Case(_late_log, "from the first step", _honest_runs),
    "AS_OF": Case(
        _policy(as_of="accept", schedule="unstated"),
        "--schedule decayed",
        _policy(schedule="decayed"),
    ),
    "SCHEDULE_STATED": Case(lambda _pair: None, "Log the learning rate", _rates("base", "cand")),
    "LEARNING_RATE_IN_ONE_ARM": Case(_rates("base"), "both arms", _rates("cand")),
}


def test_each_warning_has_a_case() -> None:
    assert {entry.code for entry, _ in WARNINGS} == CASES.keys()


@pytest.mark.parametrize("code", CASES)
def test_what_it_says_takes_the_warning_away(code: str) -> None:
    case, pair, entry = CASES[code], Pair(), BY_CODE[code]
    case.made(pair)
    verdict = judged(pair)
    assert code in verdict.codes
    assert case.says in (entry.what_to_do or "")
    if entry.next_step is not None:
        assert case.says in " ".join(verdict.advice.sentences)
    case.done(pair)
    after = judged(pair)
    assert case.reached(code, after), after.codes
    assert WORST_FIRST.index(after.verdict) >= WORST_FIRST.index(verdict.verdict)
