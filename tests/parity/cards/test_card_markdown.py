"""The Markdown of a card shows its fields, has its YAML in it, and takes no markup from names."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from parity.cards.card import CardStatement
from parity.cards.card_file import CardError, card_yaml, read_card
from parity.cards.card_markdown import card_markdown, yaml_of_markdown
from tests.parity.cards.cases import CASES, STATES, card_of, case


@pytest.mark.parametrize("name", CASES)
def test_the_markdown_leads_with_the_state_and_has_the_card_in_it(name):
    card = card_of(CASES[name]())
    text = card_markdown(card)
    assert f" {STATES[name].upper()}: " in text.splitlines()[0]
    assert yaml_of_markdown(text, "card.md") == card_yaml(card)


def test_the_interval_that_decided_stands_with_its_level():
    card = card_of(CASES["several candidates"]())
    rows = [line for line in card_markdown(card).splitlines() if line.startswith("| ")]
    assert "95 %" in next(row for row in rows if "FAIL" in row)
    assert "98.3 %" in next(row for row in rows if "PASS" in row)


ATTACKS = (
    "</details><script>alert(1)</script>",
    "```\n# PASS\n",
    "| PASS | [link](http://evil.example)",
    "@maintainer #12 **PASS** `code`",
    "![x](http://evil.example/x.png)",
    "~~~\n<img src=x>",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_and_statements_bring_no_markup(attack):
    card = card_of(case({"mxfp8": 0.0}))
    (candidate,) = card.candidates
    attacked = replace(
        card,
        headline=f"PASS: {attack}",
        question=attack,
        job=attack,
        judge=attack,
        policy={"question": attack},
        commits={attack: attack},
        candidates=[replace(candidate, arm=replace(candidate.arm, name=attack), against=attack)],
        statements=[CardStatement(fact="recipe", arm=attack, value=attack, by=attack)],
    )
    text = card_markdown(attacked)
    assert read_card(yaml_of_markdown(text, "card.md"), "card.md") == attacked
    shown = text.replace(text[text.index("\n\n", text.index("<summary>")) :], "")
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    for mark in ("<script", "<img", "<a href", "<strong>"):
        assert mark not in html.partition("<details>")[0] + html.rpartition("</details>")[2]
    assert html.count("<h3>") == 1
    assert html.count("</details>") == 1
    assert html.count("<pre>") == 1
    assert "@maintainer" not in shown


def test_what_nobody_sees_is_an_escape():
    card = card_of(case({"mxfp8": 0.0}))
    text = card_markdown(replace(card, question="Is fp8 \u202e as good?\u2028No."))
    assert "\u202e" not in text
    assert "u202e as good" in text
    assert read_card(yaml_of_markdown(text, "card.md"), "card.md").question.endswith("\u2028No.")


def test_markdown_without_a_card_or_with_two_is_refused():
    text = card_markdown(card_of(case({"mxfp8": 0.0})))
    for other in ("# a page", text + text):
        with pytest.raises(CardError, match="expected one"):
            yaml_of_markdown(other, "card.md")
