"""What recomputation says of a card, field by field: the same, another value, or nothing, because
the evidence at hand does not have it.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from parity.cards.card import Card, CardCandidate
from parity.cards.card_file import plain
from parity.cards.golden_card import GoldenCard
from parity.frozen import frozen
from parity.judging.bundles.evidence import RELATIVE_TOLERANCE
from parity.judging.decision import worst
from parity.typed_json import shown
from parity.version import JUDGE_VERSION

Result = Literal["verified", "differs", "not verified", "other judge"]
_HEX = re.compile("[0-9a-f]{64}")
_ABSOLUTE_TOLERANCE = 1e-12  # nats, of a gap of zero
_MAX_DIFFERENCES = 100
_NO_RECORD = "on no record"


@frozen
class CardCheck:
    """What was found: a line for each field that differs, and one for each that could not be
    verified, with the reason. `verified` has the names of the fields that agree.
    """

    result: Result
    differences: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()


def check_alone(card: Card) -> CardCheck:
    """What a card without evidence shows: whether it contradicts itself."""
    differences = tuple(_contradictions(card))
    return CardCheck(
        result="differs" if differences else "not verified",
        differences=differences,
        unverified=(
            "every field: no evidence was given; expected the card's bundle, job or files",
        ),
    )


def check_card(card: Card, recomputed: Card, *, is_rejudged: bool) -> CardCheck:
    """A card compared with the one that its evidence gives. `is_rejudged`: this judge, which wrote
    the card, judged that evidence; else the evidence has only what another judge recorded.
    """
    stated, expected = _leaves(card), _leaves(recomputed)
    return _compared(
        stated,
        expected,
        [*_contradictions(card)],
        lambda name: _beyond_evidence(name, card, recomputed, stated, expected),
        agreed="verified" if is_rejudged else "other judge",
    )


def check_golden_card(card: GoldenCard, recomputed: GoldenCard) -> CardCheck:
    """A card of a golden check compared with the one that its run and goldens give."""
    stated, expected = (dict(_flat(plain(one), "")) for one in (card, recomputed))
    return _compared(
        stated,
        expected,
        [*_golden_contradictions(card)],
        lambda name: _NO_RECORD if name == "parity" else "",
        agreed="verified",
    )


def check_golden_alone(card: GoldenCard) -> CardCheck:
    """What a card of a golden check shows without its run and goldens."""
    differences = tuple(_golden_contradictions(card))
    return CardCheck(
        result="differs" if differences else "not verified",
        differences=differences,
        unverified=("every field: no evidence was given; expected the run and its goldens",),
    )


def _golden_contradictions(card: GoldenCard) -> Iterator[str]:
    if not card.headline.startswith(f"{card.answer.upper()}: "):
        yield f"headline: {shown(card.headline)} in the card, expected {card.answer.upper()} first"


def _compared(
    stated: Mapping[str, Any],
    expected: Mapping[str, Any],
    contradictions: list[str],
    beyond_evidence: Callable[[str], str],
    *,
    agreed: Result,
) -> CardCheck:
    """The values of a card by their places compared with those that were recomputed."""
    differences, unverified, verified = contradictions, list[str](), list[str]()
    for name in [*stated, *(name for name in expected if name not in stated)]:
        if reason := beyond_evidence(name):
            unverified.append(f"{name}: {reason}")
        elif name.endswith(".by") and (name not in expected or name not in stated):
            continue  # of a statement that differs itself
        elif name not in expected:
            differences.append(f"{name}: {shown(stated[name])} in the card, not in the evidence")
        elif name not in stated:
            differences.append(f"{name}: not in the card, {shown(expected[name])} in the evidence")
        elif not _equal(stated[name], expected[name]):
            differences.append(
                f"{name}: {shown(stated[name])} in the card, {shown(expected[name])} recomputed"
            )
        else:
            verified.append(name)
    return CardCheck(
        result="differs" if differences else agreed,
        differences=tuple(differences[:_MAX_DIFFERENCES]),
        unverified=tuple(unverified),
        verified=tuple(verified),
    )


def other_judge(card: Card) -> CardCheck:
    """What can be said where another judge wrote the card, and only files are at hand."""
    differences = tuple(_contradictions(card))
    why = (
        f"every field: judge {shown(card.judge)} made the verdicts, this is judge {JUDGE_VERSION}; "
        "install the parity version that has that judge"
    )
    return CardCheck(
        result="differs" if differences else "other judge",
        differences=differences,
        unverified=(why,),
    )


def _beyond_evidence(
    name: str, card: Card, recomputed: Card, stated: Mapping[str, Any], expected: Mapping[str, Any]
) -> str:
    """Why the evidence says nothing of a field; "" where it does."""
    if name == "parity":
        return _NO_RECORD
    if name in ("job", "failed_by") and recomputed.job is None:
        if card.job is None:
            return ""
        return "only the server knows it; give the id of the job"
    if name.startswith("sign_offs") and (name not in expected or name not in stated):
        where = "the evidence" if name in stated else "the card"
        return f"not in {where}, and a sign-off may begin or end after a card was written"
    if name.endswith(".by") and name in stated and name in expected:
        written, recorded = stated[name], expected[name]
        if written != recorded and recorded is None:
            return "the evidence names nobody"
    return ""


def _leaves(card: Card) -> dict[str, Any]:
    """Every value of a card by its place, candidates and statements by their names."""
    fields = plain(card)
    fields["candidates"] = _by_name(fields["candidates"], lambda one: one["arm"]["name"])
    statements = _by_name(
        fields.pop("statements"),
        lambda one: f"{one['fact']} of {one['arm']}" if one["arm"] else one["fact"],
    )
    for name, one in statements.items():
        fields[f"statements.{name}"] = one["value"]
        fields[f"statements.{name}.by"] = one["by"]
    sign_offs = _by_name(fields.pop("sign_offs"), lambda one: one["candidate"])
    for name, one in sign_offs.items():
        fields[f"sign_offs.{name}"] = f"by {one['who']} until {one['expires_at']}: {one['reason']}"
    return dict(_flat(fields, ""))


def _by_name(items: Sequence[dict[str, Any]], name_of: Any) -> dict[str, Any]:
    """Items by their names; a name that several have gets a number."""
    named: dict[str, Any] = {}
    for item in items:
        name = ascii(name_of(item))[1:-1]
        number = sum(key == name or key.startswith(f"{name} (") for key in named)
        named[f"{name} ({number + 1})" if number else name] = item
    return named


def _flat(value: object, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{place}.{key}" if place else str(key))
    else:
        yield place, value


def _equal(stated: object, expected: object) -> bool:
    if isinstance(stated, float) and isinstance(expected, float):
        if math.isnan(stated) or math.isnan(expected):
            return math.isnan(stated) and math.isnan(expected)
        return math.isclose(
            stated, expected, rel_tol=RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE
        )
    return stated == expected


def _contradictions(card: Card) -> Iterator[str]:
    """Lines on what a card says in two ways."""
    if not card.candidates:
        yield "candidates: none in the card, expected at least one"
        return
    state = worst(candidate.verdict for candidate in card.candidates)
    state = "fail" if card.failed_by is not None else state
    if card.state != state:
        yield f"state: {card.state} in the card, {state} by the verdicts of its candidates"
    if not card.headline.startswith(f"{state.upper()}: "):
        yield f"headline: {shown(card.headline)} in the card, expected {state.upper()} first"
    if not _HEX.fullmatch(card.evidence_sha256):
        yield f"evidence_sha256: {shown(card.evidence_sha256)} in the card, expected 64 hex digits"
    for candidate in card.candidates:
        yield from _of_candidate(candidate)


def _of_candidate(candidate: CardCandidate) -> Iterator[str]:
    gap, margin, name = candidate.gap, candidate.margin, ascii(candidate.arm.name)[1:-1]
    if not candidate.codes:
        yield f"candidates.{name}.codes: none in the card, expected at least one"
    if gap is None or margin is None:
        return
    interval = gap.deciding
    # NaN is below no margin
    if candidate.verdict == "pass" and not interval.hi <= margin.nats:
        yield (
            f"candidates.{name}: a pass whose interval ends at {interval.hi:g}, not below the "
            f"margin {margin.nats:g}"
        )
    if candidate.codes[:1] == ["GAP_EXCEEDS_MARGIN"] and not interval.lo >= margin.nats:
        yield (
            f"candidates.{name}: GAP_EXCEEDS_MARGIN, but the interval begins at {interval.lo:g}, "
            f"not above the margin {margin.nats:g}"
        )
