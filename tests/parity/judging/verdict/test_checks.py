from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict
from parity.report.formats.markdown import render_markdown
from parity.report.view import view_of
from parity.report.words import words

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def equipped(run: Curve, norm: float = 1.0, validation: float = 0.0, seconds: float = 1.0) -> Curve:
    """The run with gradient norms, validation losses every 50 steps and step times."""
    rng = np.random.default_rng(int(1000 * (norm + seconds)))
    columns = {
        "grad_norm": norm * np.exp(rng.normal(0, 0.1, len(run.steps))),
        "validation_loss": np.where(run.steps % 50 == 0, run.loss + validation, np.nan),
        "step_seconds": seconds * np.exp(rng.normal(0, 0.01, len(run.steps))),
        "unix_seconds": 1.7e9 + np.arange(len(run.steps)),
    }
    return curve_from_arrays(run.steps, run.loss, columns=columns, context={"device_class": "h100"})


@pytest.mark.parametrize(
    ("check", "changes", "code", "state"),
    [
        ("grad_norm", {"norm": 1.0}, "WITHIN_MARGIN", "pass"),
        ("grad_norm", {"norm": 1.3}, "GRAD_NORM_FAILS", "fail"),
        ("grad_norm", {"norm": 1.1}, "GRAD_NORM_OPEN", "inconclusive"),
        ("validation_loss", {"validation": 0.0}, "WITHIN_MARGIN", "pass"),
        ("validation_loss", {"validation": 0.1}, "VALIDATION_LOSS_FAILS", "fail"),
        ("validation_loss", {"validation": 0.027}, "VALIDATION_LOSS_OPEN", "inconclusive"),
        ("net_speedup", {"seconds": 0.6}, "WITHIN_MARGIN", "pass"),
        ("net_speedup", {"seconds": 1.9}, "NET_SPEEDUP_FAILS", "fail"),
        ("net_speedup", {"seconds": 1.0}, "NET_SPEEDUP_OPEN", "inconclusive"),
    ],
)
def test_a_gate_decides_only_where_the_policy_names_it(
    check: str,
    changes: dict[str, float],
    code: str,
    state: str,
    make_run: MakeRun,
    judge_pair: JudgePair,
) -> None:
    base, cand = equipped(make_run()), equipped(make_run(seed=2), **changes)
    gated = judge_pair(
        base,
        cand,
        policy_from_mapping({"schedule": "decayed", "margin": "1%", "checks": ["loss", check]}),
    )
    assert (gated.codes[0], gated.verdict) == (code, state)
    assert words(view_of(gated.document())).verdict == state
    advised = judge_pair(
        base,
        cand,
        policy_from_mapping({"schedule": "decayed", "margin": "1%", "validation": "advise"}),
    )
    assert advised.verdict == "pass"
    roles = {each["name"]: each["role"] for each in gated.document()["checks"]}
    assert roles.pop(check) == "decides"
    assert set(roles.values()) == {"advises"}


def test_a_validation_gap_above_the_margin_blocks_a_pass_unless_the_policy_only_wants_advice(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = equipped(make_run()), equipped(make_run(seed=2), validation=0.1)
    verdict = judge_pair(base, cand)
    assert (verdict.verdict, verdict.codes[:2]) == (
        "inconclusive",
        ("VALIDATION_LOSS_WORSE", "WITHIN_MARGIN"),
    )
    assert judge_pair(base, equipped(make_run(seed=2))).verdict == "pass"


def spiking(run: Curve, starts: range) -> Curve:
    loss = run.loss.copy()
    for start in starts:
        loss[start] += 1.0
    return curve_from_arrays(run.steps, loss)


@pytest.mark.parametrize(
    ("baseline", "candidate", "code"),
    [
        (range(0), range(0), "WITHIN_MARGIN"),
        (range(0), range(50, 1500, 400), "WITHIN_MARGIN"),
        (range(0), range(50, 1500, 250), "SPIKES_OPEN"),
        (range(0), range(50, 1500, 100), "SPIKES_FAILS"),
        (range(70, 1500, 100), range(50, 1500, 100), "WITHIN_MARGIN"),
        (range(50, 1500, 100), range(0), "WITHIN_MARGIN"),
    ],
)
def test_spikes_over_the_whole_run_decide_where_the_policy_names_them(
    baseline: range, candidate: range, code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = spiking(make_run(), baseline), spiking(make_run(seed=2), candidate)
    verdict = judge_pair(
        base,
        cand,
        policy_from_mapping({"schedule": "decayed", "margin": "1%", "checks": ["loss", "spikes"]}),
    )
    assert verdict.codes[0] == code
    counts = verdict.document()["run_spikes"]
    assert (counts["baseline"], counts["candidate"]) == (len(baseline), len(candidate))
    assert judge_pair(base, cand).verdict == "pass"


def test_spikes_that_could_not_be_counted_leave_the_verdict_open(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = policy_from_mapping(
        {"schedule": "decayed", "margin": "1%", "checks": ["loss", "spikes"], "min_points": 20}
    )
    short = [
        curve_from_arrays(run.steps[::15], run.loss[::15]) for run in (make_run(), make_run(seed=2))
    ]
    verdict = judge_pair(short[0], short[1], policy, planned_steps=2000)
    assert verdict.codes[0] == "SPIKES_OPEN"
    assert "fewer than 200 common steps" in words(view_of(verdict.document())).interval


@pytest.mark.parametrize("check", ["grad_norm", "validation_loss", "net_speedup", "accuracy"])
def test_a_check_that_was_not_measured_leaves_the_verdict_open(
    check: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1%", "checks": ["loss", check]})
    verdict = judge_pair(make_run(), make_run(seed=2), policy)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", f"{check.upper()}_OPEN")


def test_gates_never_save_a_fail(make_run: MakeRun, judge_pair: JudgePair) -> None:
    policy = policy_from_mapping(
        {"schedule": "decayed", "margin": "1%", "checks": ["loss", "net_speedup"]}
    )
    verdict = judge_pair(
        equipped(make_run()), equipped(make_run(seed=2, gap=0.1), seconds=0.1), policy
    )
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")


def at_other_times(run: Curve) -> Curve:
    """The run as if it had been trained a day later."""
    columns = {**run.columns, "unix_seconds": run.columns["unix_seconds"] + 86_400.0}
    return curve_from_arrays(run.steps, run.loss, columns=columns, context=run.context)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (at_other_times, "different times"),
        (lambda run: curve_from_arrays(run.steps, run.loss, columns=run.columns), "device class"),
        (
            lambda run: curve_from_arrays(
                run.steps,
                run.loss,
                columns=run.columns,
                context={**run.context, "engine": "emulated"},
            ),
            "emulated",
        ),
        (
            lambda run: curve_from_arrays(run.steps, run.loss, context=run.context),
            "not recorded by all runs",
        ),
    ],
)
def test_a_speedup_that_cannot_be_compared_leaves_the_gate_open(
    change: Callable[[Curve], Curve], words: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = equipped(make_run()), change(equipped(make_run(seed=2), seconds=0.1))
    policy = policy_from_mapping(
        {
            "schedule": "decayed",
            "margin": "1%",
            "checks": ["loss", "net_speedup"],
            "may_differ": ["engine"],
        }
        | {"baseline_run_noise": "0.09%", "candidate_run_noise": "0.09%"}
    )
    verdict = judge_pair(base, cand, policy)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "NET_SPEEDUP_OPEN")
    assert words in verdict.decision.deciding.sentence
    document = verdict.document()
    assert (document["throughput"], document["net_speedup"]) == (None, None)
    assert "as fast" not in render_markdown([document])
