"""The card of a golden check is made again from the run and its golden, or differs by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parity.cards.card_file import CardError, card_yaml, read_card
from parity.cards.card_markdown import card_markdown, yaml_of_markdown
from parity.cards.check_card import check_golden_alone, check_golden_card
from parity.cards.golden_card import GoldenCard, make_golden_card
from parity.golden.check import RunFacts, check_golden
from parity.golden.golden_file import golden_of
from parity.judging.curves.curve import Curve, curve_from_arrays

STEPS = np.arange(1, 101)


def run(level: float = 0.0, norm: float = 1.0, moved: float = 1e-6) -> Curve:
    batch, own = np.random.default_rng(1), np.random.default_rng(2)
    loss = 2.0 + 8.0 * np.exp(-STEPS / 30) + batch.normal(0, 0.02, 100)
    return curve_from_arrays(
        STEPS,
        np.round(loss + own.normal(0, moved, 100) + level * (STEPS - 1) / 100, 6),
        label="new",
        columns={"grad_norm": np.full(100, norm)},
    )


def card(level: float = 0.0, norm: float = 1.0, **facts: object) -> GoldenCard:
    golden = golden_of(run(moved=0.0), "old", "bf16")
    return make_golden_card(check_golden([golden], run(level, norm), RunFacts(**facts)))


@pytest.mark.parametrize(
    ("level", "answer", "code"), [(0.0, "numerics only", 0), (0.2, "worse", 1)]
)
def test_a_card_agrees_with_the_check_that_is_made_again(level, answer, code):
    made = card(level)
    assert (made.answer, made.exit_code) == (answer, code)
    assert made.headline.startswith(f"{answer.upper()}: ")
    assert check_golden_card(made, card(level)).result == "verified"
    assert check_golden_alone(made).result == "not verified"


@pytest.mark.parametrize("level", [0.0, 0.2])
def test_a_card_is_read_as_it_was_written(level):
    made = card(level, random=("dropout",), container="26.06")
    assert read_card(card_yaml(made), "card.yaml") == made
    text = card_markdown(made)
    assert read_card(yaml_of_markdown(text, "card.md"), "card.md") == made
    assert "says nothing about another precision" in text


def test_a_field_of_the_other_card_is_refused():
    with pytest.raises(CardError, match="judge is no field"):
        read_card(card_yaml(card()) + "judge: 0.8.0\n", "card.yaml")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"answer": "numerics only", "headline": "NUMERICS ONLY: the same"}, "answer"),
        ({"headline": "NUMERICS ONLY: the same"}, "headline"),
        ({"run_sha256": "0" * 64}, "run_sha256"),
        ({"goldens_sha256": ["0" * 64]}, "goldens_sha256"),
        ({"steps": 1000}, "steps"),
        ({"random": ["dropout"]}, "random"),
        ({"measured": {"gap_pct": 0.01}}, "measured.gap_pct"),
        ({"parity": "0.1.0, certified"}, "parity"),
        ({"scope": "Good for FP8, too."}, "scope"),
    ],
)
def test_a_planted_change_is_found_and_named(change, field):
    made = card(0.2)
    check = check_golden_card(replace(made, **change), made)
    assert check.result == "differs"
    assert field in {line.partition(": ")[0] for line in check.differences}


def test_a_gradient_norm_that_the_loss_does_not_show_is_another_run():
    assert card().run_sha256 != card(norm=1.001).run_sha256
    assert card().goldens_sha256 == card(norm=1.001).goldens_sha256
