"""A card is read as it was written, however its YAML is laid out, and nothing else is read."""

import math
from dataclasses import replace

import pytest
import yaml

from parity.cards.card import Card
from parity.cards.card_file import CardError, card_yaml, plain, read_card
from parity.cards.check_card import check_card
from parity.comparing.statements import InputError
from tests.parity.cards.cases import CASES, card_of, case


@pytest.mark.parametrize("name", CASES)
def test_a_card_is_read_as_it_was_written(name):
    card = card_of(CASES[name]())
    assert read_card(card_yaml(card), "card.yaml") == card


def _resaved(card):
    """The same card by another writer: other key order, comments, every value in quotes, and the
    line ends of Windows.
    """
    text = yaml.safe_dump(plain(card), sort_keys=True, default_style='"', width=40)
    return ("# saved by another tool\n" + text).replace("\n", "\r\n")


def _in_flow_style(card):
    return yaml.safe_dump(plain(card), default_flow_style=True)


@pytest.mark.parametrize("resaved", [_resaved, _in_flow_style])
@pytest.mark.parametrize("name", CASES)
def test_a_card_that_another_tool_saved_is_the_same(name, resaved):
    card = card_of(CASES[name]())
    read = read_card(resaved(card).replace('!!null "null"', "null"), "card.yaml")
    assert check_card(read, card, is_rejudged=True).result == "verified"


@pytest.mark.parametrize(
    "commit", ["1234567", "0123", "12e4567", "2026-01-02", "true", "0x1f", "1_000"]
)
def test_a_commit_that_looks_like_a_number_stays_text(commit):
    card = replace(card_of(case({"mxfp8": 0.0})), commits={"code_revision": commit})
    text = card_yaml(card)
    assert read_card(text, "card.yaml") == card
    assert read_card(text.replace(f"'{commit}'", commit), "card.yaml") == card


def test_numbers_that_are_not_finite_are_read():
    card = card_of(case({"nvfp4": 0.05}))
    text = card_yaml(card)
    for written in (".inf", '".inf"', "inf"):
        changed = text.replace(str(card.candidates[0].gap.mean), written, 1)
        read = read_card(changed, "card.yaml")
        assert isinstance(read, Card)
        assert math.isinf(read.candidates[0].gap.mean)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("state: fail", "state: failed", "state is 'failed'"),
        ("state: fail", "state: fail\nnote: a hint", "note is no field"),
        ("planned_steps: 1500", "planned_step: 1500", "planned_step is no field"),
        ("planned_steps: 1500", "planned_steps: many", "planned_steps is 'many'"),
        ("one_sided: true", "one_sided: 1", "one_sided is '1'"),
        ("against: fp8\n", "", "against: fp8"),
        ("schema: parity.card/1", "schema: parity.card/2", "schema is 'parity.card/2'"),
        ("seeds:\n  - 1\n  - 2\n", "seeds: none\n", "seeds is 'none'"),
        ("sign_offs: []", "sign_offs: {}", "sign_offs is {}"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_its_place(old, new, place):
    text = card_yaml(card_of(case({"nvfp4": 0.05})))
    assert old in text
    with pytest.raises(CardError) as refused:
        read_card(text.replace(old, new, 1), "card.yaml")
    if new:
        assert place in str(refused.value)
    else:
        assert "against is missing" in str(refused.value)


@pytest.mark.parametrize("text", ["", "a: 1", "[1, 2]", "just text"])
def test_other_yaml_is_no_card(text):
    with pytest.raises(CardError, match="no card"):
        read_card(text, "card.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "schema: [",
        "schema: parity.card/1\nschema: parity.card/1",
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "\n".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]"
            for i in range(6)
        ),
    ],
)
def test_broken_yaml_keys_that_stand_twice_and_many_aliases_are_refused(text):
    with pytest.raises(InputError):
        read_card(text, "card.yaml")


def test_a_tag_makes_no_object():
    with pytest.raises((CardError, InputError)):
        read_card("schema: !!python/object/apply:os.system [true]", "card.yaml")
