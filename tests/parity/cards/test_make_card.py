"""A card says what was judged, by what, and what it rests on."""

from dataclasses import replace

import pytest

from parity.cards.statements import statements_of
from parity.judging.bundles.read_bundle import case_in
from parity.judging.bundles.write_bundle import bundle_bytes, evidence_sha256
from parity.judging.policy import Policy
from tests.parity.cards.cases import CASES, STATES, card_of, case, run


@pytest.mark.parametrize("name", CASES)
def test_a_bundle_gives_the_card_of_the_case_that_it_was_made_of(name):
    made = CASES[name]()
    read = case_in(bundle_bytes(made, made.documents()))
    assert card_of(read) == card_of(made)
    assert card_of(made).state == STATES[name]


def test_the_recipe_is_told_from_what_an_arm_did():
    changed = "nvfp4 then bf16 from step 1,400"
    runs = [run(1, 0.0, changed), run(2, 0.0, changed)]
    (candidate,) = card_of(case({}, candidates={"nvfp4": runs})).candidates
    assert (candidate.arm.recipe, candidate.arm.effective_recipe) == ("nvfp4", changed)


def test_facts_of_the_runs_are_on_the_card_and_the_name_of_a_machine_is_not():
    card = card_of(CASES["pass"]())
    assert card.commits == {"code_revision": "4f2a9d17c0de"}
    assert card.versions == {"version.jax": "0.10.2"}
    assert card.devices == {"device_class": "gpu:sm100"}
    assert "node-7" not in str(card)


def test_values_of_several_runs_are_all_there():
    base = [run(1), run(2, code_revision="ffff")]
    assert card_of(case({"mxfp8": 0.0}, baseline=base)).commits == {
        "code_revision": "4f2a9d17c0de | ffff"
    }


def test_what_the_service_trained_is_no_statement():
    trained = case(
        {},
        baseline=[run(1, engine="emulated")],
        candidates={"mxfp8": [run(1, 0.0, "mxfp8", engine="emulated")]},
    )
    assert {one.fact for one in statements_of(trained, None)} == {"schedule"}
    assert {one.fact for one in statements_of(CASES["pass"](), None)} == {
        "planned_steps",
        "schedule",
        "recipe",
    }


def test_a_statement_of_an_owner_names_who_made_it():
    note = "stated later: recipe of mxfp8: mxfp8, by jane, 2026-11-29T10:00:00Z"
    runs = [replace(run(1, 0.0, "mxfp8"), notes=(note,))]
    stated = statements_of(case({}, candidates={"mxfp8": runs}), None)
    assert [(one.arm, one.value, one.by) for one in stated if one.fact == "recipe"] == [
        ("mxfp8", "mxfp8", "jane, 2026-11-29T10:00:00Z"),
        ("fp8", "fp8", None),
    ]


def test_the_digest_names_curves_policy_and_statements_and_no_file_names():
    digest = evidence_sha256(case({"mxfp8": 0.0}))
    renamed = [replace(run(seed), label="other.csv", notes=("read",)) for seed in (1, 2)]
    assert evidence_sha256(case({"mxfp8": 0.0}, baseline=renamed)) == digest
    noted = [replace(run(seed), notes=("stated later: x",)) for seed in (1, 2)]
    for changes in (
        {"policy": Policy(margin="2%", schedule="decayed")},
        {"planned_steps": 1499},
        {"baseline": [run(1), run(3)]},
        {"baseline": noted},
        {"baseline": [run(1), run(2, threads="4")]},
    ):
        assert evidence_sha256(case({"mxfp8": 0.0}, **changes)) != digest


def test_the_order_of_columns_does_not_change_the_digest():
    def with_columns(*names):
        made = run(1)
        return replace(made, columns={name: made.loss + len(name) for name in names})

    first, second = (
        case({"mxfp8": 0.0}, baseline=[with_columns(*names)])
        for names in (("tokens", "grad_norm"), ("grad_norm", "tokens"))
    )
    assert evidence_sha256(first) == evidence_sha256(second)
    assert evidence_sha256(case_in(bundle_bytes(first, first.documents()))) == evidence_sha256(
        second
    )


def test_tokens_are_those_at_the_end_of_the_window():
    def counted(seed, recipe):
        made = run(seed, 0.0, recipe)
        return replace(made, columns={"tokens": made.steps * 1024.0})

    judged = case({}, baseline=[counted(1, "fp8")], candidates={"mxfp8": [counted(1, "mxfp8")]})
    (candidate,) = card_of(judged).candidates
    assert candidate.tokens == 1024.0 * candidate.last_step
