"""Recorded learning rates: runs with other schedules are not compared, and a schedule that was cut
is not complete.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.learning_rates import cut_schedule, differing_rates
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict

N = 4000
P = np.arange(N) / (N - 1)
WARM = np.minimum(1.0, np.arange(1, N + 1) / 80)
PEAK = 3e-4
Rates = np.ndarray
MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def cosine(floor: float) -> Rates:
    return PEAK * WARM * (floor + (1 - floor) * (1 + np.cos(np.pi * P)) / 2)


def linear(floor: float) -> Rates:
    return PEAK * WARM * (1 - (1 - floor) * P)


def stable_then(share: float, floor: float, shape: str = "linear") -> Rates:
    x = np.clip((P - (1 - share)) / share, 0, 1)
    down = {"linear": 1 - x, "sqrt": 1 - np.sqrt(x), "cosine": (1 + np.cos(np.pi * x)) / 2}[shape]
    return PEAK * WARM * (floor + (1 - floor) * down)


SCHEDULES = {
    "constant": PEAK * WARM,
    "cosine to 0": cosine(0.0),
    "cosine to 1 %": cosine(0.01),
    "cosine to 10 %": cosine(0.1),
    "cosine to 30 %": cosine(0.3),
    "linear to 0": linear(0.0),
    "linear to 1 %": linear(0.01),
    "decay over 10 %": stable_then(0.1, 0.0),
    "decay over 20 %": stable_then(0.2, 0.0),
    "decay over 10 % to 10 %": stable_then(0.1, 0.1),
    "decay over 20 % to 10 %": stable_then(0.2, 0.1),
    "root decay over 10 %": stable_then(0.1, 0.0, "sqrt"),
    "cosine decay over 20 %": stable_then(0.2, 0.0, "cosine"),
    "inverse square root": PEAK
    * np.minimum(np.arange(1, N + 1) / 80, np.sqrt(80 / np.arange(1, N + 1))),
    "steps": PEAK * np.where(P < 0.6, 1.0, np.where(P < 0.9, 0.1, 0.01)),
}
LOGGED: dict[str, Callable[[Rates], Rates]] = {
    "exact": lambda rates: rates,
    "float32": lambda rates: rates.astype(np.float32).astype(np.float64),
    "three digits": lambda rates: np.array([float(f"{rate:.2e}") for rate in rates]),
    "five decimals": lambda rates: rates.round(5),
    "every 40 steps": lambda rates: np.where(np.arange(len(rates)) % 40 == 0, rates, np.nan),
    "one step late": lambda rates: np.append(0.0, rates[:-1]),
}


def run_with(rates: Rates, label: str = "run") -> Curve:
    return curve_from_arrays(
        np.arange(len(rates)), np.ones(len(rates)), columns={"learning_rate": rates}, label=label
    )


@pytest.mark.parametrize("how", LOGGED)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_complete_schedule_is_complete_however_it_is_logged(name: str, how: str) -> None:
    assert cut_schedule(run_with(LOGGED[how](SCHEDULES[name]))) is None


@pytest.mark.parametrize("how", LOGGED)
@pytest.mark.parametrize("share", [0.5, 0.65, 0.8, 0.9])
@pytest.mark.parametrize(
    "name", ["cosine to 0", "cosine to 1 %", "cosine to 10 %", "linear to 0", "linear to 1 %"]
)
def test_a_schedule_over_the_whole_run_that_was_cut(name: str, share: float, how: str) -> None:
    if (name, share, how) == ("cosine to 0", 0.9, "five decimals"):
        return  # its rate is less than one unit of the last digit there
    assert cut_schedule(run_with(LOGGED[how](SCHEDULES[name][: int(share * N)]))) is not None


@pytest.mark.parametrize(
    "how", ["exact", "float32", "three digits", "five decimals", "one step late"]
)
@pytest.mark.parametrize(
    ("name", "decay"),
    [(name, 0.1 if "over 10" in name else 0.2) for name in SCHEDULES if "decay" in name],
)
def test_a_decay_that_was_cut_half_way(name: str, decay: float, how: str) -> None:
    assert (
        cut_schedule(run_with(LOGGED[how](SCHEDULES[name][: int((1 - decay / 2) * N)]))) is not None
    )


def test_a_run_that_ends_in_its_warm_up() -> None:
    assert cut_schedule(run_with(PEAK * np.arange(1, 500) / 1000)) == "rises"


@pytest.mark.parametrize(
    "rates",
    [
        np.zeros(N),
        np.full(N, np.nan),
        -np.ones(N),
        np.full(N, np.inf),
        np.full(N, 5e-324),
        np.full(N, 1e308),
        np.ones(5),
        np.empty(0),
    ],
)
def test_rates_that_say_nothing(rates: Rates) -> None:
    assert cut_schedule(run_with(rates)) is None
    assert differing_rates([run_with(rates), run_with(rates)]) is None


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_schedule_is_one_however_each_run_logs_it(name: str) -> None:
    runs = {how: run_with(logged(SCHEDULES[name]), how) for how, logged in LOGGED.items()}
    for one, other in itertools.product(LOGGED, repeat=2):
        three_values_of_which_one_is_lost = name == "steps" and (one == "five decimals") != (
            other == "five decimals"
        )
        assert (
            differing_rates([runs[one], runs[other]]) is not None
        ) == three_values_of_which_one_is_lost, (one, other)


def test_two_schedules_differ() -> None:
    for one, other in itertools.combinations(SCHEDULES, 2):
        assert (
            differing_rates([run_with(SCHEDULES[one]), run_with(SCHEDULES[other])]) is not None
        ), (one, other)


@pytest.mark.parametrize("factor", [1.05, 0.9, 1.01])
@pytest.mark.parametrize("how", ["exact", "float32", "every 40 steps", "three digits"])
@pytest.mark.parametrize("name", ["constant", "cosine to 10 %"])
def test_another_peak_differs(name: str, how: str, factor: float) -> None:
    first, second = (
        run_with(LOGGED[how](rates)) for rates in (SCHEDULES[name], factor * SCHEDULES[name])
    )
    worst = differing_rates([first, second])
    assert worst is not None
    assert worst.rate / worst.reference == pytest.approx(factor, rel=0.02)


def test_rates_at_other_steps_are_compared() -> None:
    """One run logs its rate at even steps, the other at odd ones."""
    steps = np.arange(N)
    even, odd = (
        np.where(steps % 2 == parity, SCHEDULES["cosine to 0"], np.nan) for parity in (0, 1)
    )
    assert differing_rates([run_with(even), run_with(odd)]) is None
    assert differing_rates([run_with(even), run_with(1.05 * odd)]) is not None


def judged(
    judge_pair: JudgePair,
    make_run: MakeRun,
    base: Rates | None,
    cand: Rates | None,
    **options: object,
) -> Verdict:
    length = len(base) if base is not None else len(cand) if cand is not None else N
    columns = [{} if rates is None else {"learning_rate": rates} for rates in (base, cand)]
    return judge_pair(
        make_run(length, columns=columns[0]),
        make_run(length, seed=2, columns=columns[1]),
        **options,
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_honest_runs_of_a_complete_schedule_pass(
    name: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Without a statement, where the rate decayed to 20 % of its peak; else the gap is known as of
    a point.
    """
    rates = SCHEDULES[name]
    unstated = policy_from_mapping({"margin": "1%"})
    code = (
        "AS_OF"
        if name in ("constant", "cosine to 30 %", "inverse square root")
        else "WITHIN_MARGIN"
    )
    for options in ({"planned_steps": N}, {"assume_complete": True}):
        assert (
            judged(judge_pair, make_run, rates, rates, policy=unstated, **options).codes[0] == code
        )


def test_a_cut_cosine_does_not_pass_whatever_is_stated(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    rates = SCHEDULES["cosine to 0"][: int(0.65 * N)]
    assumed = judged(judge_pair, make_run, rates, rates, assume_complete=True)
    assert (assumed.verdict, assumed.codes[0]) == ("inconclusive", "AS_OF")
    declared = judged(judge_pair, make_run, rates, rates, planned_steps=len(rates))
    assert (declared.verdict, declared.codes[0]) == ("inconclusive", "AS_OF")


def test_other_rates_are_another_experiment(make_run: MakeRun, judge_pair: JudgePair) -> None:
    base, cand = SCHEDULES["cosine to 10 %"], SCHEDULES["cosine to 0"]
    verdict = judged(judge_pair, make_run, base, cand)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "LEARNING_RATES_DIFFER")
    allowed = policy_from_mapping(
        {"schedule": "decayed", "margin": "1%", "may_differ": ["learning_rate"]}
    )
    assert judged(judge_pair, make_run, base, cand, policy=allowed).verdict == "pass"


def test_a_replicate_with_other_rates_counts_too(make_run: MakeRun, judge_pair: JudgePair) -> None:
    rates = SCHEDULES["constant"]
    runs = [
        make_run(N, seed=seed, columns={"learning_rate": factor * rates})
        for seed, factor in ((1, 1.0), (2, 1.0), (3, 1.2))
    ]
    assert judge_pair(runs[0], runs[1:]).codes[0] == "LEARNING_RATES_DIFFER"


def test_the_arms_whose_rates_differ_are_named(make_run: MakeRun, judge_pair: JudgePair) -> None:
    for factors, sentence in (
        ((1.0, 0.5), "at step 1 cand has 0.0005 and base 0.001"),
        ((0.5, 1.0), "at step 1 cand has 0.001 and base 0.0005"),
    ):
        rates = (factor * np.full(N, 1e-3) for factor in factors)
        verdict = judged(judge_pair, make_run, *rates, baseline_name="base")
        assert verdict.document()["reasons"][0]["sentence"] == (
            f"The learning rates differ: {sentence}. They differ at {N - 1:,} of {N - 1:,} logged "
            "steps."
        )


def test_of_runs_of_one_arm_the_ones_that_differ_are_named(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    def arm(*factors: float) -> list[Curve]:
        return [
            make_run(N, seed=seed, columns={"learning_rate": factor * np.full(N, 1e-3)})
            for seed, factor in enumerate(factors, 1)
        ]

    for base, cand, words in (
        (arm(1.0, 1.0), arm(1.0, 1.2), "run 2 of cand has 0.0012 and run 1 of base 0.001"),
        (arm(1.0, 1.2), arm(1.0, 1.0), "run 2 of base has 0.0012 and its run 1 0.001"),
    ):
        verdict = judge_pair(base, cand, baseline_name="base")
        said = verdict.document()["reasons"][0]["sentence"]
        assert f"at step 1 {words}. " in said


@pytest.mark.parametrize("arm", [0, 1])
def test_rates_of_one_arm_are_a_warning(arm: int, make_run: MakeRun, judge_pair: JudgePair) -> None:
    base, cand = (SCHEDULES["cosine to 0"] if number == arm else None for number in (0, 1))
    verdict = judged(judge_pair, make_run, base, cand)
    assert verdict.verdict == "pass"
    assert "LEARNING_RATE_IN_ONE_ARM" in verdict.codes


def test_real_reruns_under_a_cut_and_under_a_complete_schedule(
    reruns: tuple[Curve, ...], judge_pair: JudgePair
) -> None:
    """All ordered pairs of real reruns, as if trained on 65 % of a cosine, or on a whole one."""
    for name, share, code in (
        ("cosine to 0", 0.65, "AS_OF"),
        ("cosine to 0", 1.0, "WITHIN_MARGIN"),
    ):
        for base, cand in itertools.permutations(reruns[:4], 2):
            rates = SCHEDULES[name][: int(share * N)]
            logged = np.interp(
                np.linspace(0, 1, len(base.steps)), np.linspace(0, 1, len(rates)), rates
            )
            pair = [
                curve_from_arrays(
                    run.steps, run.loss, columns={"learning_rate": logged}, rounding="nearest"
                )
                for run in (base, cand)
            ]
            assert judge_pair(*pair, assume_complete=True).codes[0] == code
