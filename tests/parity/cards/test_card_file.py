"""A card is read as it was written, however its YAML is laid out, and nothing else is read."""

import json
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
    read = read_card(resaved(card), "card.yaml")
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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("schema: !!python/object/apply:os.system [true]", "python"),
        ("schema: parity.card/1\nstate: !fail pass", "!fail"),
        ("%STATE fail\n---\nschema: parity.card/1", "%STATE"),
    ],
)
def test_a_tag_and_a_directive_are_refused(text, word):
    with pytest.raises(CardError, match=word):
        read_card(text, "card.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("planned_steps: 1500", "planned_steps: 15\u09e6\u09e6"),
        ("planned_steps: 1500", "planned_steps: 1_500"),
        ("planned_steps: 1500", "planned_steps: 01500"),
        ("planned_steps: 1500", "planned_steps: 0x5dc"),
        ("planned_steps: 1500", "planned_steps: '1500 '"),
        ("level: 0.95", "level: 0.9\u09eb"),
        ("level: 0.95", "level: 0.9_5"),
        ("level: 0.95", "level: 00.95"),
        ("level: 0.95", "level: '0.95 '"),
    ],
)
def test_a_number_that_another_reader_takes_for_another_is_refused(old, new):
    text = card_yaml(card_of(case({"mxfp8": 0.0})))
    assert old in text
    with pytest.raises(CardError, match="number"):
        read_card(text.replace(old, new, 1), "card.yaml")


@pytest.mark.parametrize("new", ["95.0e-2", "9.5E-1", "'0.95'", "0.950"])
def test_a_number_in_another_usual_form_is_the_same(new):
    card = card_of(case({"mxfp8": 0.0}))
    text = card_yaml(card)
    assert read_card(text.replace("level: 0.95", f"level: {new}", 1), "card.yaml") == card


@pytest.mark.parametrize("unseen", ["\u2028", "\u2029", "\x85", "\u202e", "\u2066", "\r", "\x0b"])
def test_a_character_that_nobody_sees_is_refused_in_a_comment_and_in_text(unseen):
    text = card_yaml(card_of(case({"nvfp4": 0.05})))
    for changed in (f"# state: pass{unseen}{text}", text.replace("fp8", f"fp{unseen}8", 1)):
        with pytest.raises(CardError, match=f"U\\+{ord(unseen):04X}"):
            read_card(changed, "card.yaml")


def test_a_byte_order_mark_and_comments_are_free():
    card = card_of(case({"nvfp4": 0.05}))
    text = "\ufeff# state: pass, says \u00e9ve\r\n" + card_yaml(card).replace("\n", " # so\r\n")
    assert read_card(text, "card.yaml") == card


@pytest.mark.parametrize("name", ["null", "Null", "~", "", "true", "1e3", "\u2028", "\U0001f600"])
def test_a_name_that_looks_like_no_value_stays_text(name):
    card = card_of(case({"mxfp8": 0.0}))
    first = card.candidates[0]
    named = replace(
        card,
        candidates=[replace(first, arm=replace(first.arm, name=name))],
        statements=[replace(one, arm=name, by=name) for one in card.statements],
        commits={name: name},
    )
    assert read_card(card_yaml(named), "card.yaml") == named
    assert read_card(json.dumps(plain(named)), "card.json") == named


def test_a_null_in_quotes_is_no_null():
    text = card_yaml(card_of(case({"mxfp8": 0.0})))
    with pytest.raises(CardError, match="planned_steps is 'null'"):
        read_card(text.replace("planned_steps: 1500", "planned_steps: 'null'"), "card.yaml")
    with pytest.raises(CardError, match="question is None"):
        read_card(text.replace("question: Does", "question: # Does"), "card.yaml")


def test_json_is_as_strict():
    card = card_of(case({"mxfp8": 0.0}))
    text = json.dumps(plain(card))
    assert read_card(text, "card.JSON") == card
    for changed in (
        text[:-1],
        "[" * 100_000,
        text.replace('"state": "pass"', '"state": "fail", "state": "pass"'),
        text.replace('"planned_steps": 1500', '"planned_steps": 1500.5'),
        text.replace('"planned_steps": 1500', '"planned_steps": true'),
    ):
        assert changed != text
        with pytest.raises(CardError):
            read_card(changed, "card.json")
