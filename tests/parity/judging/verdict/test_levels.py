"""At which level does each end of an interval decide, with several looks, candidates and runs?

A pass is decided at the widened level, a fail and a veto at the policy's own. A constant gap moves
an interval and does not change its width, so each case is measured once without a gap and then
judged with gaps that put one end just inside and just outside.
"""

import dataclasses
from collections.abc import Callable

import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve
from parity.judging.gap.interval import Interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
PLAN, MARGIN, NOMINAL, STEP = 500, 0.03, 0.95, 1e-6

FIVE_LOOKS_ERROR = 2.0 * float(student.sf(4.39, 4.0))
# Looks, candidates, and what a pass needs of the run term and of the error within pairs.
SHARED = [
    (1, 1, 0.95, 0.95),
    (1, 12, 1.0 - 0.05 / 12, 1.0 - 0.05 / 12),
    (5, 12, 1.0 - FIVE_LOOKS_ERROR / 12, 1.0 - 0.05 / 12),
]
shared = pytest.mark.parametrize(("looks", "candidates", "level", "within"), SHARED)


def policy(looks: int = 1, **keys: object) -> Policy:
    return Policy(margin=f"{MARGIN} nats", schedule="decayed", looks=looks, **keys)


def shifted(runs: list[Curve], gap: float) -> list[Curve]:
    return [dataclasses.replace(run, loss=run.loss + gap) for run in runs]


def arms(make_run: MakeRun, runs: int, seeds: int = 1) -> tuple[list[Curve], list[Curve]]:
    """As many runs an arm, of one seed or of one seed each."""
    base, cand = (
        [
            dataclasses.replace(
                make_run(
                    PLAN,
                    seed=first + number,
                    batch_seed=number % seeds,
                    offset_sd=0.002,
                ),
                seed=number % seeds,
                replicate=number // seeds,
            )
            for number in range(runs)
        ]
        for first in (1, 11)
    )
    return base, cand


def verdict(
    base: list[Curve], cand: list[Curve], looks: int, candidates: int, **keys: object
) -> Verdict:
    return judge(
        base,
        {"c": cand},
        policy(looks, **keys),
        planned_steps=PLAN,
        multiplicity=Multiplicity(looks=looks, candidates=candidates),
    )[0]


def interval_of(base: list[Curve], cand: list[Curve]) -> Interval:
    return verdict(base, cand, 1, 1).measurements.statistics.interval


RUNS = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)]


@shared
@pytest.mark.parametrize(("runs", "seeds"), RUNS)
def test_a_curve_passes_at_the_widened_level(
    runs: int,
    seeds: int,
    looks: int,
    candidates: int,
    level: float,
    within: float,
    make_run: MakeRun,
) -> None:
    base, cand = arms(make_run, runs, seeds)
    hi = interval_of(base, cand).bounds(level, within)[1]
    inside, outside = MARGIN - hi - STEP, MARGIN - hi + STEP
    kept = verdict(base, shifted(cand, inside), looks, candidates)
    assert (kept.verdict, kept.codes[0]) == ("pass", "WITHIN_MARGIN")
    beyond = verdict(base, shifted(cand, outside), looks, candidates)
    assert (beyond.verdict, beyond.codes[0]) == ("inconclusive", "CI_STRADDLES_MARGIN")


@shared
@pytest.mark.parametrize(("runs", "seeds"), RUNS)
def test_a_curve_fails_at_the_level_of_the_policy(
    runs: int,
    seeds: int,
    looks: int,
    candidates: int,
    level: float,
    within: float,
    make_run: MakeRun,
) -> None:
    base, cand = arms(make_run, runs, seeds)
    lo = interval_of(base, cand).bounds(NOMINAL)[0]
    failed = verdict(base, shifted(cand, MARGIN - lo + STEP), looks, candidates)
    assert (failed.verdict, failed.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")
    open_ = verdict(base, shifted(cand, MARGIN - lo - STEP), looks, candidates)
    assert "GAP_EXCEEDS_MARGIN" not in open_.codes


@shared
def test_a_curve_is_better_at_the_level_of_the_policy(
    looks: int, candidates: int, level: float, within: float, make_run: MakeRun
) -> None:
    """A margin that is small against the noise, so that the interval's end decides."""
    base, cand = arms(make_run, 1)
    hi = interval_of(base, cand).bounds(NOMINAL)[1]
    small = Policy(margin="0.001 nats", schedule="decayed", looks=looks)
    for beyond, better in ((-STEP, True), (STEP, False)):
        runs = shifted(cand, beyond - hi)
        made = judge(
            base,
            {"c": runs},
            small,
            planned_steps=PLAN,
            multiplicity=Multiplicity(looks=looks, candidates=candidates),
        )[0]
        assert ("BETTER_THAN_BASELINE" in made.codes) == better


@shared
def test_a_two_sided_pass_needs_both_ends_at_the_widened_level(
    looks: int, candidates: int, level: float, within: float, make_run: MakeRun
) -> None:
    base, cand = arms(make_run, 1)
    lo = interval_of(base, cand).bounds(level, within)[0]
    for inside, code in ((STEP, "WITHIN_MARGIN"), (-STEP, "CI_STRADDLES_MARGIN")):
        (made,) = judge(
            base,
            {"c": shifted(cand, -0.05 - lo + inside)},
            Policy(margin="0.05 nats", schedule="decayed", looks=looks, two_sided=True),
            planned_steps=PLAN,
            multiplicity=Multiplicity(looks=looks, candidates=candidates),
        )
        assert made.codes[0] == code


def test_candidates_that_are_judged_together_share_the_error(make_run: MakeRun) -> None:
    base, cand = arms(make_run, 1)
    hi = interval_of(base, cand).bounds(1.0 - 0.05 / 3)[1]
    for inside, code in ((STEP, "WITHIN_MARGIN"), (-STEP, "CI_STRADDLES_MARGIN")):
        runs = shifted(cand, MARGIN - hi - inside)
        named = {f"c{number}": runs for number in range(3)}
        made = judge(base, named, policy(), planned_steps=PLAN)
        assert {one.codes[0] for one in made} == {code}


@pytest.mark.parametrize("candidates", [1, 12])
def test_one_of_two_runs_is_above_the_margin_at_the_level_of_the_policy(
    candidates: int, make_run: MakeRun
) -> None:
    """The other run is as much below, so that the mean of both would pass."""
    base, cand = arms(make_run, 2, 2)
    measured = verdict(base, cand, 1, candidates).measurements
    limits = []
    for own in range(2):
        alone = verdict(base, [*shifted([cand[own]], 0.2), cand[1 - own]], 1, candidates)
        worst = alone.measurements.worst_run
        assert worst.label == cand[own].label
        limits.append(0.2 - worst.gap + worst.limit)  # what this run may be moved by
    assert not measured.worst_run.is_above
    for own, limit in enumerate(limits):
        for beyond, is_above in ((STEP, True), (-STEP, False)):
            moved = [*shifted([cand[own]], limit + beyond), *shifted([cand[1 - own]], -limit)]
            made = verdict(base, moved, 1, candidates)
            assert ("RUN_ABOVE_MARGIN" in made.codes) == is_above
            assert made.verdict != "pass" or not is_above
