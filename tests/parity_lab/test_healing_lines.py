"""An answer in lines says what it names, what it does not know, and what to do next."""

from dataclasses import replace

import pytest

from parity_lab.healing import HealingSetup, Look, shares_to_keep
from parity_lab.healing_answer import healing_answer, net_speedup
from parity_lab.healing_lines import healing_lines, lead
from tests.parity_lab.test_healing import SETUP, look

PLAN = {
    "candidate": "nvfp4",
    "baseline": "fp8",
    "recipe": "bf16",
    "gemms": "all",
    "gap": {"verdict": "fail", "gap": 0.02, "low": 0.018, "high": 0.022},
    "margin": 0.010,
    "steps": list(SETUP.steps),
    "run_steps": SETUP.run_steps,
    "speedup": None,
}


def lines(
    looks: list[Look], setup: HealingSetup = SETUP, stated: float | None = None, **plan: object
) -> list[str]:
    """The lines of an answer without a proposal."""
    answer = healing_answer(setup, looks)
    document = {"plan": {**PLAN, **plan}, "answer": answer, "proposal": None}
    return [*healing_lines(document, stated)]


def test_a_named_switch_has_its_gap_and_share_of_the_margin():
    said = lines([look(1400, 0.001), look(1600, 0.0044), look(1800, 0.03)])
    assert said[0] == (
        "nvfp4 may be used to step 1,600 of 2,000 (80 %), then bf16: it ends 0.0044 nats above "
        "fp8, 44 % of the margin"
    )
    assert "the switch at step 1,800 fails; no checkpoint between the two was kept" in said
    forward = lead({**PLAN, "gemms": "forward"}, healing_answer(SETUP, [look(1800, -0.001)]))
    assert "then bf16 in the forward products: it ends 0.0010 nats below fp8" in forward


def test_no_switch_that_passes_names_the_checkpoints_to_keep():
    said = lines([look(1400, 0.03), look(1000, 0.02)])
    assert said[0] == ("bf16 from step 1,000 (50 %), the earliest kept one, does not heal nvfp4")
    assert any("keep_checkpoints: [250, 500, 750]" in line for line in said)


def test_an_open_answer_says_why_in_the_words_of_the_judge():
    open_look = replace(look(1000, 0.0095), sentence="The interval holds the margin.")
    said = lines([look(1400, 0.03), open_look])
    assert said[0].startswith("inconclusive: ")
    assert "why the switch at step 1,000 is open: The interval holds the margin." in said
    (estimate,) = [line for line in said if line.startswith("estimate: ")]
    assert "the switch at step 1,000 (50 %)" in estimate


def test_a_search_that_was_stopped_names_what_it_did_not_look_at():
    dear = replace(SETUP, most_steps=SETUP.least_steps)
    said = lines([look(1400, 0.001)], dear)
    assert "stopped: the largest cost was reached before the switches at 1,600, 1,800" in said


def test_a_broken_law_is_said():
    said = lines([look(1000, 0.030), look(1400, 0.020)])
    assert any("step 1,000 has a larger gap than the later one at 1,400" in line for line in said)


@pytest.mark.parametrize(
    ("measured", "stated", "words"),
    [
        (None, None, "--speedup X"),
        (None, 1.5, "1.36 x the baseline"),
        (1.25, None, "1.19 x the baseline"),
        (1.25, 1.5, "1.36 x the baseline"),
    ],
)
def test_the_speed_is_net_of_the_healed_share(measured, stated, words):
    looks = [look(1600, 0.001), look(1800, 0.03)]
    (speed,) = [
        line for line in lines(looks, SETUP, stated, speedup=measured) if line.startswith("speed")
    ]
    assert words in speed
    assert net_speedup(0.8, 1.5) == pytest.approx(1 / (0.8 / 1.5 + 0.2))
    assert net_speedup(1.0, 1.5) == pytest.approx(1.5)


def test_shares_to_keep_stand_around_the_switch_that_is_expected_to_pass():
    assert shares_to_keep(None, None, None) == [0.5, 0.7, 0.8, 0.9]
    shares = shares_to_keep(0.02, 0.002, 0.010)
    assert shares == [0.6, 0.7, 0.8, 0.9]
    assert shares[2] ** 4 * 0.02 == pytest.approx(0.008, rel=0.1)
    assert all(0 < share < 1 for gap in (0.0101, 1.0) for share in shares_to_keep(gap, 0.0, 0.01))
