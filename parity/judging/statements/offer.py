"""An offer: what could be stated for nothing, and what the judge made of the pair with it."""

from parity.canonical_json import json_value
from parity.frozen import frozen
from parity.judging.decision import INCONCLUSIVE, State
from parity.judging.document_types import OfferDocument
from parity.judging.statements.statement_words import PossibleStatement, as_options, for_owner
from parity.wording import interval_words

Ends = tuple[float, float]  # of an interval, nats
NARROWER = 0.9  # of the interval's width: what changes less is not worth a question


@frozen
class Offer:
    """Statements with the question whose yes they are, and what they would make of the verdict: its
    state, the deciding code, and the ends of its interval in nats.
    """

    question: str
    statements: tuple[PossibleStatement, ...]
    verdict: State
    code: str
    lo: float | None
    hi: float | None


def is_narrower(tried: Ends | None, judged: Ends | None) -> bool:
    """Whether an interval is so much narrower with a statement that the question is worth it."""
    if tried is None or judged is None:
        return False
    return tried[1] - tried[0] < NARROWER * (judged[1] - judged[0])


def offer_words(offer: Offer, *, job: bool) -> str:
    """An offer as a sentence, in options of the command line or for the owner of a job."""
    how = for_owner(offer.statements) if job else f"add `{as_options(offer.statements)}`"
    return f"{offer.question} Then {how}: {promise_words(json_value(offer), job=job)}"


def promise_words(offer: OfferDocument, *, job: bool = False) -> str:
    """What an offer would make of the verdict."""
    if offer["verdict"] != INCONCLUSIVE:
        rests = job and any(one["key"] == "schedule" for one in offer["statements"])
        gate = ", which a gate takes where the learning rate is recorded" if rests else ""
        return f"this would be a {offer['verdict']}{gate}."
    if offer["lo"] is None or offer["hi"] is None:
        return "this would stay inconclusive."
    ends = interval_words(offer["lo"], offer["hi"])
    return f"this would stay inconclusive, with an interval of {ends}."
