"""What recomputation says of a card, field by field: the same, another value, or nothing, because
the evidence at hand does not have it.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from parity.cards.card import Card, CardCandidate, CardSignOff
from parity.cards.card_file import plain
from parity.cards.golden_card import GoldenCard
from parity.cards.make_card import under_standing_fail
from parity.cards.statements import is_author
from parity.frozen import frozen
from parity.judging.bundles.compare_documents import RELATIVE_TOLERANCE
from parity.judging.bundles.server_record import JOB_ID
from parity.judging.decision import worst
from parity.typed_json import shown
from parity.version import JUDGE_VERSION, VERSION

Place = tuple[str, ...]
"""Where a value stands in a card."""
Leaves = Mapping[Place, Any]
Result = Literal["verified", "differs", "not verified", "other judge"]
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,2}(?:(?:a|b|rc)[0-9]{1,4})?")
_HEX = re.compile("[0-9a-f]{64}")
_RECORDED = frozenset({("job",), ("failed_by",)})
_STATE_PLACES = frozenset({("state",), ("headline",)})
_ABSOLUTE_TOLERANCE = 1e-12  # nats, of a gap of zero
_MAX_DIFFERENCES = 100
_NO_RECORD = "the evidence does not say which version wrote the card"
_ON_SERVER = "only the server knows it; give the id of the job"
_AS_RECORDED = "as the server stated when the bundle was made; give the id of the job for today's"
_STATED = ("random", "container", "hardware", "data")


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


def check_card(
    card: Card,
    recomputed: Card,
    *,
    is_rejudged: bool,
    is_live: bool = False,
    ended: Sequence[CardSignOff] = (),
) -> CardCheck:
    """A card compared with the one that its evidence gives. `is_rejudged`: this judge, which wrote
    the card, judged that evidence; else the evidence has only what another judge recorded.
    `is_live`: the server itself said what it knows of the job; else a bundle records it, or
    nothing does. `ended` are the sign-offs that the evidence records as no longer valid.

    It is not verified where its state, or a sign-off on it, rests on what only the server knows.
    """
    is_recorded = recomputed.job is not None and card.failed_by == recomputed.failed_by
    if not is_live:
        recomputed = under_standing_fail(recomputed, card.failed_by)
    stated, expected = _leaves(card), _leaves(recomputed)
    on_server = card.job is not None and not is_live
    passed = worst(one.verdict for one in recomputed.candidates) == "pass"
    is_state_open = on_server and not is_recorded and passed
    ended_places = {
        place
        for place, value in stated.items()
        if place[0] == "sign_offs" and value in [plain(one) for one in ended]
    }

    def beyond_evidence(place: Place) -> str:
        is_equal = place in stated and place in expected and _equal(stated[place], expected[place])
        if place in _STATE_PLACES and is_state_open and is_equal:
            return f"an earlier fail of the question would count; {_ON_SERVER}"
        if place[0] == "sign_offs" and not is_equal:
            return _sign_off_reason(place in stated, place in ended_places, on_server)
        if place in _RECORDED:
            return _job_reason(place[0], card, recomputed, is_live=is_live)
        return _beyond_evidence(place, stated, expected)

    agreed: Result = "verified" if is_rejudged else "other judge"
    has_open_sign_off = any(
        place[0] == "sign_offs" and stated[place] != expected.get(place) for place in stated
    )
    if is_rejudged and (is_state_open or has_open_sign_off):
        agreed = "not verified"
    return _compared(stated, expected, [*_contradictions(card)], beyond_evidence, agreed=agreed)


def check_golden_card(card: GoldenCard, recomputed: GoldenCard) -> CardCheck:
    """A card of a golden check compared with the one that its run and goldens give."""
    stated, expected = (dict(_flat(plain(one), ())) for one in (card, recomputed))
    return _compared(
        stated,
        expected,
        [*_golden_contradictions(card)],
        lambda place: _beyond_golden_check(place, stated, expected),
        agreed="verified",
    )


def _beyond_golden_check(place: Place, stated: Leaves, expected: Leaves) -> str:
    """Why a run and its goldens say nothing of a field; "" where they do. A golden has the recipe;
    a restart, which has no golden, shows what changed and where.
    """
    if place == ("parity",):
        return _NO_RECORD
    is_restart = not expected["goldens",]
    statements = {*_STATED, *(("recipe",) if is_restart else ("changed", "fork"))}
    value = stated.get(place)
    if place[0] in statements and value not in (None, []) and value == expected.get(place):
        return "as the card states it; the check was made again with it"
    return ""


def check_golden_alone(card: GoldenCard) -> CardCheck:
    """What a card of a golden check shows without its run and goldens."""
    differences = tuple(_golden_contradictions(card))
    return CardCheck(
        result="differs" if differences else "not verified",
        differences=differences,
        unverified=("every field: no evidence was given; expected the run and its goldens",),
    )


def _golden_contradictions(card: GoldenCard) -> Iterator[str]:
    yield from _of_version("parity", card.parity)
    if not card.headline.startswith(f"{card.answer.upper()}: "):
        yield f"headline: {shown(card.headline)} in the card, expected {card.answer.upper()} first"


def _compared(
    stated: Leaves,
    expected: Leaves,
    contradictions: list[str],
    beyond_evidence: Callable[[Place], str],
    *,
    agreed: Result,
) -> CardCheck:
    """The values of a card by their places compared with those that were recomputed."""
    differences, unverified, verified = contradictions, list[str](), list[str]()
    for place in [*stated, *(place for place in expected if place not in stated)]:
        name, is_in_both = _name(place), place in stated and place in expected
        if _is_author(place) and not is_in_both:
            continue  # of a statement that is missing itself
        if reason := beyond_evidence(place):
            unverified.append(f"{name}: {reason}")
        elif place not in expected:
            differences.append(f"{name}: {shown(stated[place])} in the card, not in the evidence")
        elif place not in stated:
            differences.append(f"{name}: not in the card, {shown(expected[place])} in the evidence")
        elif not _equal(stated[place], expected[place]):
            found = "in the evidence" if place in _RECORDED else "recomputed"
            differences.append(
                f"{name}: {shown(stated[place])} in the card, {shown(expected[place])} {found}"
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


def _job_reason(field: str, card: Card, recomputed: Card, *, is_live: bool) -> str:
    """Why the evidence says nothing of a card's job, or of the one whose fail stands against it;
    "" where it does.
    """
    if card.job is None:
        return "" if recomputed.job is None else "the card is of the runs, and names no job"
    if is_live:
        return ""
    if recomputed.job is None:
        return _ON_SERVER
    if card.job == recomputed.job and (field == "job" or card.failed_by == recomputed.failed_by):
        return _AS_RECORDED
    return _ON_SERVER if field == "failed_by" and card.failed_by is not None else ""


def _beyond_evidence(place: Place, stated: Leaves, expected: Leaves) -> str:
    """Why the evidence says nothing of a field; "" where it does."""
    if place == ("parity",):
        return _NO_RECORD
    is_in_both = place in stated and place in expected
    if _is_author(place) and is_in_both and expected[place] is None and stated[place] is not None:
        return "the evidence names nobody" if is_author(stated[place]) else ""
    return ""


def _sign_off_reason(is_stated: bool, has_ended: bool, on_server: bool) -> str:
    """Why the evidence says nothing of a sign-off that it does not have as the card has it; ""
    where it does.
    """
    if not is_stated:
        return "not in the card, and a sign-off may begin after a card was written"
    if has_ended:
        return "the evidence records it as no longer valid"
    return _ON_SERVER if on_server else ""


def _is_author(place: Place) -> bool:
    return place[0] == "statements" and place[-1] == "by"


def _leaves(card: Card) -> Leaves:
    """Every value of a card by its place, candidates, statements and sign-offs by their names."""
    fields = plain(card)
    named = {
        "candidates": [(one["arm"]["name"], one) for one in fields.pop("candidates")],
        "statements": [
            (
                f"{one['fact']} of {one['arm']}" if one["arm"] else one["fact"],
                {"": (one["fact"], one["arm"], one["value"]), "by": one["by"]},
            )
            for one in fields.pop("statements")
        ],
        "sign_offs": [(one["candidate"], {"": one}) for one in fields.pop("sign_offs")],
    }
    leaves = dict(_flat(fields, ()))
    for part, items in named.items():
        seen: dict[str, int] = {}
        for name, one in items:
            seen[name] = seen.get(name, 0) + 1
            leaves |= _flat(one, (part, name, str(seen[name])))
    return leaves


def _flat(value: object, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, dict) and not (place and place[-1] == ""):
        for key, item in value.items():
            yield from _flat(item, (*place, str(key)))
    else:
        yield place, value


def _name(place: Place) -> str:
    """A place as it is printed: "candidates.nvfp4.gap.mean"; the second item of one name has its
    number.
    """
    parts = list(place)
    if len(parts) > 2 and parts[0] in ("candidates", "statements", "sign_offs"):
        number = parts.pop(2)
        parts[1] += f" ({number})" if number != "1" else ""
    return ascii(".".join(part for part in parts if part))[1:-1]


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
    state = "fail" if state == "pass" and card.failed_by is not None else state
    if card.state != state:
        yield f"state: {card.state} in the card, {state} by the verdicts of its candidates"
    if not card.headline.startswith(f"{state.upper()}: "):
        yield f"headline: {shown(card.headline)} in the card, expected {state.upper()} first"
    if not _HEX.fullmatch(card.evidence_sha256):
        yield f"evidence_sha256: {shown(card.evidence_sha256)} in the card, expected 64 hex digits"
    yield from _of_version("parity", card.parity)
    yield from _of_version("judge", card.judge)
    for name, job in (("job", card.job), ("failed_by", card.failed_by)):
        if job is not None and not JOB_ID.fullmatch(job):
            yield f"{name}: {shown(job)} in the card, expected the id of a job"
    if card.failed_by is not None and card.job is None:
        yield f"failed_by: {shown(card.failed_by)} in the card, which is of no job"
    for candidate in card.candidates:
        yield from _candidate_contradictions(candidate)
    yield from _sign_off_contradictions(card)


def _of_version(name: str, version: str) -> Iterator[str]:
    if not _VERSION.fullmatch(version):
        yield f"{name}: {shown(version)} in the card, expected a version such as {VERSION}"


def _sign_off_contradictions(card: Card) -> Iterator[str]:
    """Only an inconclusive verdict can be accepted, and once at a time."""
    verdicts = {candidate.arm.name: candidate.verdict for candidate in card.candidates}
    for name, number in Counter(one.candidate for one in card.sign_offs).items():
        place = f"sign_offs.{ascii(name)[1:-1]}"
        if (verdict := verdicts.get(name)) != "inconclusive":
            found = f"is a {verdict}" if verdict else "is not on the card"
            yield f"{place}: its candidate {found}; expected an inconclusive one"
        if number > 1:
            yield f"{place}: {number} in the card, expected one"


def _candidate_contradictions(candidate: CardCandidate) -> Iterator[str]:
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
