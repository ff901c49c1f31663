"""What is offered to be stated does what it promises, and what the record contradicts is never
offered.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.statements.offer import Offer
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_run
from tests.parity.conftest import DATA, synthetic
from tests.parity.judging.precedence.changes import CHANGES
from tests.parity.judging.precedence.pair import Pair, run

STEPS = 2000
COSINE = 0.1 + 0.9 * 0.5 * (1.0 + np.cos(np.pi * np.arange(STEPS) / STEPS))
WSD = np.minimum(1.0, np.maximum(0.02, (STEPS - np.arange(STEPS)) / (0.2 * STEPS)))


def _run(seed: int, rate: np.ndarray | None = None, steps: int = STEPS, **about: Any) -> Curve:
    """A run of `steps` steps, with the first of its learning rates on record."""
    run = synthetic(STEPS, seed=seed)
    columns = {} if rate is None else {"learning_rate": rate[:steps]}
    made = curve_from_arrays(
        run.steps[:steps], run.loss[:steps], columns=columns, label=run.label, rounding="nearest"
    )
    return dataclasses.replace(made, **about)


def _pair(
    rate: np.ndarray | None = None,
    steps: int = STEPS,
    *,
    planned: int | None = None,
    names: tuple[str, str] = ("base", "cand"),
    policy: dict[str, Any] | None = None,
    recipes: tuple[str | None, str | None] = (None, None),
    **about: Any,
) -> Verdict:
    (verdict,) = judge(
        [_run(1, rate, steps, recipe=recipes[0], **about)],
        {names[1]: [_run(2, rate, steps, recipe=recipes[1], **about)]},
        policy_from_mapping({"margin": "1%", **(policy or {})}),
        planned_steps=planned,
        baseline_name=names[0],
    )
    return verdict


def _offered(verdict: Verdict) -> list[tuple[str, str | None, str]]:
    """All that is offered of a verdict, as (what, of which arm, value)."""
    return [
        (one.key, one.arm, one.value) for offer in verdict.advice.offers for one in offer.statements
    ]


PLAN = ("planned_steps", None, "2000")
DECAYED = ("schedule", None, "decayed")


def test_the_example_names_the_plan_that_makes_it_a_pass() -> None:
    runs = {
        name: dataclasses.replace(read_run(str(DATA.parents[1] / f"examples/curves/{name}.csv")))
        for name in ("fp8", "mxfp8")
    }

    def judged(planned: int | None) -> Verdict:
        policy = policy_from_mapping({"profile": "nvfp4"})
        base, cand = runs["fp8"], {"mxfp8": [runs["mxfp8"]]}
        (verdict,) = judge([base], cand, policy, baseline_name="fp8", planned_steps=planned)
        return verdict

    unstated = judged(None)
    (offer,) = unstated.advice.offers
    assert [(one.key, one.value) for one in offer.statements] == [("planned_steps", "1500")]
    assert "`--planned-steps 1500`" in unstated.advice.sentences[0]
    assert (offer.verdict, offer.code) == ("pass", "WITHIN_MARGIN")
    assert (judged(1500).verdict, judged(1500).codes[0]) == (offer.verdict, offer.code)


@pytest.mark.parametrize("rate", [COSINE, WSD], ids=["cosine", "stable, then decay"])
def test_the_plan_is_offered_where_the_rates_end_and_not_where_the_run_was_cut(
    rate: np.ndarray,
) -> None:
    """Cut at 60 % of its schedule, before the decay of the second: no statement would be true."""
    finished, cut = _pair(rate), _pair(rate, 1200)
    assert _offered(finished) == [PLAN]
    assert _pair(rate, planned=STEPS).verdict == finished.advice.offers[0].verdict == "pass"
    assert cut.codes[0] == "AS_OF"
    assert _offered(cut) == []


def test_a_late_cut_with_a_rate_that_still_falls_is_offered_nothing() -> None:
    """At 82 % a cosine is below a fifth of its peak, as a finished schedule is."""
    assert COSINE[1639] < 0.2
    assert _offered(_pair(COSINE, 1640)) == []


@pytest.mark.parametrize(("stated", "offered"), [("2000", [PLAN]), ("4000", [])])
def test_a_plan_that_a_source_states_is_not_contradicted(stated: str, offered: list[Any]) -> None:
    """Two runs with two plans in their configs: neither counts, and none is asked for."""
    runs = [_run(seed, COSINE, context={"planned_steps": stated}) for seed in (1, 2)]
    policy = policy_from_mapping({"margin": "1%", "may_differ": ["planned_steps"]})
    (verdict,) = judge([runs[0]], {"cand": [runs[1]]}, policy)
    assert _offered(verdict) == offered


def test_without_rates_the_decay_is_offered_and_not_where_the_loss_falls_as_before() -> None:
    """The second loss bends as at a constant rate, in a log long enough to show it."""
    finished = _pair()
    assert _offered(finished) == [DECAYED]
    stated = _pair(policy={"schedule": "decayed"})
    assert (stated.verdict, stated.codes[0]) == ("pass", finished.advice.offers[0].code)
    falling = {seed: synthetic(STEPS, seed=seed, batch_sd=0.01, pair_sd=0.002) for seed in (1, 2)}
    (verdict,) = judge([falling[1]], {"cand": [falling[2]]}, policy_from_mapping({"margin": "1%"}))
    assert verdict.codes[0] == "AS_OF"
    assert _offered(verdict) == []


def test_a_run_that_has_not_reached_its_plan_is_offered_nothing() -> None:
    """Its honest twin is at its plan, and had no rates logged."""
    assert _offered(_pair(planned=3000)) == []
    assert _offered(_pair(planned=STEPS)) == [DECAYED]


def test_at_the_end_of_a_plan_with_rates_nobody_is_told_to_train_on() -> None:
    """A linear decay that was planned to end at 15 % of its peak: stated, it passes. One that ends
    at 60 % has nothing to state.
    """
    low, high = (np.linspace(1.0, end, STEPS) for end in (0.15, 0.6))
    ends_low, ends_high = _pair(low, planned=STEPS), _pair(high, planned=STEPS)
    assert _offered(ends_low) == [DECAYED]
    assert _pair(low, planned=STEPS, policy={"schedule": "decayed"}).verdict == "pass"
    assert _offered(ends_high) == []
    (sentence,) = [one for one in ends_high.advice.sentences if "as_of: accept" in one]
    assert "61 % of its peak" in sentence
    assert "train on" not in " ".join(ends_high.advice.sentences).lower()


def test_a_recipe_is_asked_for_by_an_arms_name_unless_another_one_is_on_record() -> None:
    """Without it the noise of stochastic rounding is assumed, which a margin of 0.45 % does not
    bear.
    """
    policy = {"margin": "0.45%", "schedule": "decayed"}

    def judged(**about: Any) -> Verdict:
        about = {"rounding": None, **about}
        return _pair(planned=STEPS, names=("fp8", "mxfp8"), policy=policy, **about)

    unstated = judged()
    assert unstated.codes[0] == "CI_STRADDLES_MARGIN"
    assert _offered(unstated) == [("recipe", "fp8", "fp8"), ("recipe", "mxfp8", "mxfp8")]
    assert unstated.advice.offers[0].verdict == judged(recipes=("fp8", "mxfp8")).verdict == "pass"
    assert _offered(judged(recipes=("other:mine", "other:mine"))) == [
        ("rounding", "fp8", "nearest"),
        ("rounding", "mxfp8", "nearest"),
    ]
    recorded = judged(context={"recorded_recipe": "nvfp4"})
    assert "recipe" not in {what for what, _, _ in _offered(recorded)}


def test_rounding_to_nearest_is_not_suggested_of_four_bits_nor_against_the_record() -> None:
    policy = {"margin": "0.45%", "schedule": "decayed"}

    def judged(name: str, **about: Any) -> list[Any]:
        about = {"rounding": None, **about}
        return _offered(_pair(planned=STEPS, names=("base", name), policy=policy, **about))

    assert judged("mine") == [("rounding", "base", "nearest"), ("rounding", "mine", "nearest")]
    assert ("rounding", "my nvfp4", "nearest") not in judged("my nvfp4")
    assert judged("mine", rounding="stochastic") == []


def test_two_statements_are_offered_together_where_neither_suffices() -> None:
    policy = {"margin": "0.45%"}
    verdict = _pair(COSINE, names=("a", "b"), policy=policy, rounding=None)
    (offer,) = verdict.advice.offers
    assert {one.key for one in offer.statements} == {"planned_steps", "rounding"}
    alone = _pair(COSINE, names=("a", "b"), policy=policy, rounding=None, planned=STEPS)
    assert alone.verdict == "inconclusive"
    both = _pair(COSINE, names=("a", "b"), policy=policy, planned=STEPS)
    assert both.verdict == offer.verdict == "pass"


def test_what_decides_nothing_says_what_it_does_to_the_interval() -> None:
    policy = {"margin": "0.3%", "schedule": "decayed"}
    verdict = _pair(planned=STEPS, policy=policy, rounding=None)
    (offer,) = verdict.advice.offers
    stated = _pair(planned=STEPS, policy=policy)
    assert (offer.verdict, stated.verdict) == ("inconclusive", "inconclusive")
    assert (offer.lo, offer.hi) == stated.measurements.bounds
    assert "would be a pass" not in " ".join(verdict.advice.sentences)


@pytest.mark.parametrize("worse", [0.0, 0.3])
def test_a_decided_verdict_is_not_argued_with(worse: float) -> None:
    """A pass needs nothing, and a fail stays one whatever could be stated."""
    policy = policy_from_mapping({"margin": "1%", **({} if worse else {"schedule": "decayed"})})
    cand = _run(2, rounding=None)
    cand = dataclasses.replace(cand, loss=cand.loss + worse)
    (verdict,) = judge([_run(1)], {"cand": [cand]}, policy)
    assert verdict.verdict == ("fail" if worse else "pass")
    assert verdict.advice.offers == ()


@pytest.mark.parametrize(("term", "offered"), [(0.0, True), (0.02, False), (0.2, False)])
def test_two_columns_are_called_one_quantity_unless_their_first_losses_differ(
    term: float, offered: bool
) -> None:
    """An auxiliary term in one of them is another quantity, whatever is stated: one of 0.02 nats
    hides as large a gap, below the margin.
    """
    base, cand = (
        _run(seed, COSINE, context={"loss_name": name, "loss_meaning": meaning})
        for seed, name, meaning in (
            (1, "loss", "total loss"),
            (2, "lm_loss", "language-model loss"),
        )
    )
    base = dataclasses.replace(base, loss=base.loss + term)
    policy = policy_from_mapping({"margin": "1%"})
    (verdict,) = judge([base], {"cand": [cand]}, policy, planned_steps=STEPS)
    assert verdict.codes == ("LOSSES_DIFFER",)
    assert (("loss_is", None, "training") in _offered(verdict)) is offered


def test_a_second_loss_in_one_file_is_named_not_called_the_same_quantity() -> None:
    facts = {"loss_name": "loss", "loss_meaning": "training loss"}
    base = _run(1, COSINE, context=facts)
    cand = _run(2, COSINE, context={**facts, "second_losses": "train_loss"})
    policy = policy_from_mapping({"margin": "1%"})
    (verdict,) = judge([base], {"cand": [cand]}, policy, planned_steps=STEPS)
    assert verdict.codes == ("LOSSES_DIFFER",)
    assert ("loss_is", None, "training") not in _offered(verdict)


def _first(offers: tuple[Offer, ...]) -> str:
    return offers[0].statements[0].key


def test_an_order_that_cannot_be_shown_may_be_stated_and_other_batches_may_not() -> None:
    """The batch noise of the first pair is its runs' own; that of the others shows other data, of
    one of them in the last third alone.
    """
    hidden, in_part = Pair(), Pair()
    CHANGES["batches so large that no part shows them"](hidden)
    CHANGES["candidate read other batches in the last third"](in_part)
    other = [synthetic(STEPS, seed=seed, batch_seed=seed) for seed in (1, 2)]

    def judged(runs: list[Curve], **policy: str) -> Verdict:
        stated = policy_from_mapping({"margin": "1%", "schedule": "decayed", **policy})
        (verdict,) = judge([runs[0]], {"cand": [runs[1]]}, stated, assume_complete=True)
        return verdict

    unshown, elsewhere = judged(hidden.runs), judged(in_part.runs)
    assert elsewhere.codes[0] == "ORDER_UNSHOWN"
    assert _offered(elsewhere) == []
    assert unshown.codes[0] == "ORDER_UNSHOWN"
    assert _offered(unshown) == [("pairing", None, "stated")]
    assert (
        judged(hidden.runs, pairing="stated").verdict == unshown.advice.offers[0].verdict == "pass"
    )
    mismatch = judged(other)
    assert mismatch.codes[0] == "DATA_ORDER_MISMATCH"
    assert ("pairing", None, "stated") not in _offered(mismatch)
    assert judged(other, pairing="stated").verdict == "inconclusive"
    unpaired = judged(other, pairing="unpaired")
    if mismatch.advice.offers:
        assert mismatch.advice.offers[0].verdict == unpaired.verdict


def test_seeds_are_offered_in_order_where_both_arms_have_as_many() -> None:
    """With batches that show nothing and two runs in each arm."""
    runs = {
        side: [
            dataclasses.replace(
                synthetic(
                    STEPS, seed=10 * side + number, batch_seed=number, batch_sd=0.02, pair_sd=0.05
                ),
                seed_stated=False,
            )
            for number in (0, 1)
        ]
        for side in (1, 2)
    }
    policy = policy_from_mapping({"margin": "2%", "schedule": "decayed"})
    (verdict,) = judge(runs[1], {"cand": runs[2]}, policy, planned_steps=STEPS)
    assert verdict.codes[0] == "SEEDS_UNSTATED"
    for offer in verdict.advice.offers:
        assert ("seeds", "0,1") in {(one.key, one.value) for one in offer.statements}
    (uneven,) = judge(runs[1], {"cand": runs[2][:1]}, policy, planned_steps=STEPS)
    assert "seeds" not in {what for what, _, _ in _offered(uneven)}


def test_another_kind_of_loss_is_asked_for_where_runs_show_its_noise() -> None:
    """Losses of a hundred, of four runs an arm: stated, they pass."""
    pair = Pair()
    CHANGES["losses of a hundred nats"](pair)
    for arm, first in ((pair.base, 20), (pair.cand, 40)):
        for place in range(1, 4):
            again = run(first + place)
            arm.append(dataclasses.replace(again, loss=40.0 * again.loss, replicate=place))

    def judged() -> Verdict:
        policy = policy_from_mapping(pair.policy)
        (verdict,) = judge(pair.base, {"cand": pair.cand}, policy, planned_steps=1_000)
        return verdict

    open_one = judged()
    assert open_one.codes[0] == "LOSS_NOT_NATS"
    assert _offered(open_one) == [("loss_unit", None, "other")]
    pair.policy["loss_unit"] = "other"
    assert judged().verdict == open_one.advice.offers[0].verdict == "pass"
