"""`parity verify CARD`: what recomputation says of a card, printed."""

from pathlib import Path
from typing import TypedDict

from parity.cards.card import Card
from parity.cards.card_file import read_card
from parity.cards.card_markdown import card_markdown, yaml_of_markdown
from parity.cards.check_card import CardCheck, Result, check_alone, check_card, other_judge
from parity.cli.cards.evidence import card_of_evidence
from parity.cli.compare.comparisons import ComparisonRequest
from parity.cli.terminal.output import print_json, print_lines
from parity.cli.terminal.shared_options import Server
from parity.comparing.policy_file import read_yaml_text
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.decision import State
from parity.version import JUDGE_VERSION

CARD_SUFFIXES = (".yaml", ".yml", ".md")
_CODES = {
    "verified": "pass",
    "differs": "fail",
    "not verified": "inconclusive",
    "other judge": "other judge",
}


class CardCheckDocument(TypedDict):
    """What `verify CARD --json` prints: the result, the card's state and headline, a line for each
    field that differs or could not be verified, and the names of those that agree.
    """

    card: str
    result: Result
    state: State
    headline: str
    made_by_judge: str
    this_judge: str
    differences: list[str]
    not_verified: list[str]
    verified: list[str]


def verify_card(path: str, request: ComparisonRequest, server: Server, *, as_json: bool) -> int:
    """Verify the card in a file by the evidence that `request` names, print what was found, and
    return the exit code. Raises CardError and what `card_of_evidence` raises.
    """
    card, changed = _read(path)
    check = _check(card, request, server)
    if changed:
        check = CardCheck(
            result="differs",
            differences=(*changed, *check.differences),
            unverified=check.unverified,
            verified=check.verified,
        )
    if as_json:
        print_json(_document(path, card, check))
    else:
        print_lines(_lines(path, card, check))
    return EXIT_CODES[_CODES[check.result]]


def _read(path: str) -> tuple[Card, tuple[str, ...]]:
    """The card in a file, and a line where its Markdown is not the one of the card."""
    text = read_yaml_text(path).replace("\r\n", "\n")
    if Path(path).suffix != ".md":
        return read_card(text, path), ()
    card = read_card(yaml_of_markdown(text, path), path)
    if text.strip() == card_markdown(card).strip():
        return card, ()
    return card, ("Markdown: the text is not the one of the card folded into it",)


def _check(card: Card, request: ComparisonRequest, server: Server) -> CardCheck:
    if not request.runs:
        return check_alone(card)
    found = card_of_evidence(request, server)
    if found.card is None:
        return CardCheck(result="differs", differences=found.differences)
    if found.is_rejudged and card.judge != JUDGE_VERSION:
        return other_judge(card)
    return check_card(card, found.card, is_rejudged=found.is_rejudged)


def _lines(path: str, card: Card, check: CardCheck) -> list[str]:
    """The result, then each field that differs, and each that could not be verified."""
    agreed = f"{len(check.verified)} fields agree"
    heads = {
        "verified": f"verified: {path}: {agreed} with the evidence (to 1e-9)",
        "differs": f"differs: {path} is not what its evidence gives",
        "not verified": f"not verified: {path} does not contradict itself; no more is known",
        "other judge": f"not judged again: {path} is of judge {card.judge}, this is {JUDGE_VERSION}"
        + (f"; {agreed} with what the bundle records" if check.verified else ""),
    }
    return [
        heads[check.result],
        *(f"  {line}" for line in check.differences),
        *(f"  not verified: {line}" for line in check.unverified),
        card.headline,
    ]


def _document(path: str, card: Card, check: CardCheck) -> CardCheckDocument:
    return {
        "card": path,
        "result": check.result,
        "state": card.state,
        "headline": card.headline,
        "made_by_judge": card.judge,
        "this_judge": JUDGE_VERSION,
        "differences": list(check.differences),
        "not_verified": list(check.unverified),
        "verified": list(check.verified),
    }
