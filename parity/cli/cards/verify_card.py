"""`parity verify CARD`: what recomputation says of a card, printed."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from parity.cards.card import Card
from parity.cards.card_file import AnyCard, read_card, readable_text
from parity.cards.card_markdown import card_markdown, yaml_of_markdown
from parity.cards.check_card import (
    CardCheck,
    Result,
    check_alone,
    check_card,
    check_golden_alone,
    check_golden_card,
    other_judge,
)
from parity.cards.golden_card import GoldenCard, make_golden_card
from parity.cli.cards.evidence import card_of_evidence
from parity.cli.compare.comparisons import ComparisonRequest
from parity.cli.golden.files import run_and_goldens
from parity.cli.golden.on_server import is_kept
from parity.cli.inputs.columns import stated_columns
from parity.cli.terminal.options import refuse
from parity.cli.terminal.output import print_json, print_lines
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.policy_file import read_yaml_text
from parity.gate.exit_codes import EXIT_CODES
from parity.golden.answers import Answer
from parity.golden.check import check_golden, check_restart, read_goldens
from parity.judging.decision import State
from parity.readers.columns.names import listed
from parity.version import JUDGE_VERSION

_SUFFIXES = (".yaml", ".yml", ".json", ".md")
_CODES = {
    "verified": "pass",
    "differs": "fail",
    "not verified": "inconclusive",
    "other judge": "other judge",
}
_OPTIONS = {
    "family": "--family",
    "loss_unit": "--loss-unit",
    "pairing": "--pairing",
    "planned_steps": "--planned-steps",
    "recipe": "--recipe",
    "rounding": "--rounding",
    "schedule": "--schedule",
    "start": "--start",
}
"""The options of `parity compare` that state a fact."""
_COLUMN_OPTIONS = ("column", "pattern")
_NEEDS_RUNS = "is not used without evidence; add the runs that it applies to, or remove it"
_CARD_HAS_ALL = (
    "is not used with the card of a golden check, which has all that was stated; remove it"
)


class CardCheckDocument(TypedDict):
    """What `verify CARD --json` prints: the result, the card's state and headline, a line for each
    field that differs or could not be verified, and the names of those that agree.

    A golden check has an answer in place of the state, and no judge made it.
    """

    card: str
    result: Result
    state: State | Answer
    headline: str
    made_by_judge: str | None
    this_judge: str
    differences: list[str]
    not_verified: list[str]
    verified: list[str]


def is_card(path: str) -> bool:
    """Whether a file is a card by its name."""
    return Path(path).suffix.lower() in _SUFFIXES


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


def _read(path: str) -> tuple[AnyCard, tuple[str, ...]]:
    """The card in a file, and a line where its Markdown is not the one of the card."""
    text = readable_text(read_yaml_text(path), path)
    if Path(path).suffix.lower() != ".md":
        return read_card(text, path), ()
    card = read_card(yaml_of_markdown(text, path), path)
    if text.strip() == card_markdown(card).strip():
        return card, ()
    return card, ("Markdown: the text is not the one of the card folded into it",)


def _check(card: AnyCard, request: ComparisonRequest, server: Server) -> CardCheck:
    if isinstance(card, GoldenCard):
        return _check_golden(card, request)
    if not request.runs:
        refuse(request.given(), _NEEDS_RUNS)
        return check_alone(card)
    found = card_of_evidence(request, server, judge=card.judge)
    if found.card is None:
        return CardCheck(result="differs", differences=found.differences)
    if found.is_rejudged and card.judge != JUDGE_VERSION:
        return other_judge(card)
    if len(request.runs) > 1 and (misnamed := _misnamed(card, found.card)):
        return CardCheck(result="differs", differences=(misnamed,))
    return check_card(
        card,
        found.card,
        is_rejudged=found.is_rejudged,
        is_live=found.is_live,
        ended=found.ended,
    )


def _misnamed(card: Card, recomputed: Card) -> str:
    """Why the fields of a card are not compared with those of files whose runs have other names; ""
    where they have the same.
    """
    of_card, of_files = (
        [one.baseline.name, *(candidate.arm.name for candidate in one.candidates)]
        for one in (card, recomputed)
    )
    if sorted(of_card) == sorted(of_files):
        return ""
    return (
        f"the card is of the runs {listed(of_card)}, the files are called {listed(of_files)}; name "
        f"each file as its run, such as {shlex.quote(f'{of_card[0]}=FILE')}"
    )


def _check_golden(card: GoldenCard, request: ComparisonRequest) -> CardCheck:
    """A golden check made again, with what the card says was stated."""
    files = request.runs
    options = request.given()
    if not files:
        refuse(options, _NEEDS_RUNS)
        return check_golden_alone(card)
    refuse({name: options[name] for name in options if name not in _COLUMN_OPTIONS}, _CARD_HAS_ALL)
    is_restart = len(files) == 1 and card.changed == "resume"
    run, goldens = (files[0], []) if is_restart else run_and_goldens(files)
    if kept := next(filter(is_kept, goldens), None):
        raise UsageError(f"{kept}: a server's golden; expected the file that the card is of")
    columns = stated_columns(request.stated.column, request.stated.pattern).of_run("run", run)
    facts = replace(card.stated(), columns=columns)
    if is_restart:
        again = check_restart(run, facts)
    else:
        again = check_golden(
            read_goldens(goldens), run, facts, changed=card.changed, fork=card.fork
        )
    return check_golden_card(card, make_golden_card(again))


def _judge(card: AnyCard) -> str | None:
    return None if isinstance(card, GoldenCard) else card.judge


def _lines(path: str, card: AnyCard, check: CardCheck) -> list[str]:
    """The result, then each field that differs, and each that could not be verified."""
    agreed = f"{len(check.verified)} fields agree"
    heads = {
        "verified": f"verified: {path}: {agreed} with the evidence (to 1e-9)",
        "differs": f"differs: {path} is not what its evidence gives",
        "not verified": f"not verified: {path}: {agreed} with the evidence, which cannot decide"
        if check.verified
        else f"not verified: {path} does not contradict itself; no more is known",
        "other judge": f"not judged again: {path} is of judge {_judge(card)}, this is "
        f"{JUDGE_VERSION}" + (f"; {agreed} with what the bundle records" if check.verified else ""),
    }
    return [
        heads[check.result],
        *(f"  {line}" for line in check.differences),
        *(f"  not verified: {line}" for line in check.unverified),
        *_unstated(card, check),
        card.headline if check.result == "verified" else f"what the card claims: {card.headline}",
    ]


def _unstated(card: AnyCard, check: CardCheck) -> list[str]:
    """A line with the options that state what the card states and the evidence does not."""
    if isinstance(card, GoldenCard):
        return []
    options = []
    for statement in card.statements:
        arm = f" of {statement.arm}" if statement.arm else ""
        where = f"statements.{statement.fact}{arm}: "
        if not any(line.startswith(where) and "not in" in line for line in check.differences):
            continue
        option = _OPTIONS.get(statement.fact)
        if option is not None:
            arm = f"{statement.arm}=" if statement.arm else ""
            options += [option, f"{arm}{statement.value}"]
    return [f"  the card rests on statements; add {shlex.join(options)}"] if options else []


def _document(path: str, card: AnyCard, check: CardCheck) -> CardCheckDocument:
    return {
        "card": path,
        "result": check.result,
        "state": card.answer if isinstance(card, GoldenCard) else card.state,
        "headline": card.headline,
        "made_by_judge": _judge(card),
        "this_judge": JUDGE_VERSION,
        "differences": list(check.differences),
        "not_verified": list(check.unverified),
        "verified": list(check.verified),
    }
