"""May a person accept an inconclusive verdict, and does that acceptance still hold?

A sign-off is a person's decision, never the judge's: the verdict stays inconclusive. What can be
accepted is missing evidence about a gap that was measured: a fail is not, nor is an inconclusive
verdict whose runs could not be compared (nothing measured, a copy, other data, other units). It
holds for one verdict document and one policy, named by their SHA-256, so that it does not outlive
either.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from parity.canonical_json import canonical_json
from parity.judging.codes import BY_CODE
from parity.judging.decision import INCONCLUSIVE, CheckName
from parity.judging.document_types import SHOWN_ONLY, VerdictDocument
from parity.judging.policy import POINTS_TO_FAIL
from parity.judging.precedence import FAILING
from parity.wording import count

LEAST_REASON, MOST_DAYS = 10, 90.0  # characters of the reason, and how long a sign-off holds
Validity = Literal["valid", "expired", "revoked", "void"]
# Checks that ask whether the runs can be compared at all.
_NOT_COMPARED: tuple[CheckName, ...] = ("input", "same data order", "finite losses")


class SignOffDocument(TypedDict):
    """A sign-off as the server, the gate and a bundle show it; times are RFC 3339 in UTC.

    `state` by the server's clock: `valid`, `expired`, `revoked`, or `void` where the verdict or the
    policy is another one by now.
    """

    id: str
    candidate: str
    state: Validity
    who: str
    reason: str
    created_at: str
    expires_at: str
    revoked_at: str | None
    revoked_by: str | None
    revoke_reason: str | None
    verdict_sha256: str
    policy_sha256: str


def sha256_of(document: object) -> str:
    """SHA-256 of a document's canonical JSON, equal for a document that was stored, sent and read
    again, also with what is only shown.
    """
    return hashlib.sha256(canonical_json(without_shown(document)).encode()).hexdigest()


def without_shown(document: object) -> object:
    """A document as the judge wrote it, without what was added where it is shown (`SHOWN_ONLY`)."""
    if not isinstance(document, Mapping) or not any(key in document for key in SHOWN_ONLY):
        return document
    return {key: value for key, value in document.items() if key not in SHOWN_ONLY}


def why_not_acceptable(document: VerdictDocument) -> str | None:
    """Why nobody may accept this verdict in place of a pass, as the end of a sentence; None if an
    inconclusive verdict can be accepted.
    """
    if document["verdict"] != INCONCLUSIVE:
        return f"the verdict is {document['verdict']}, and only an inconclusive one can be accepted"
    code = document["codes"][0]
    entry = BY_CODE.get(code)
    if entry is None:
        return f"{code} is a reason of another version of the judge; judge the runs again"
    gap, margin = document["gap"], document["margin"]
    if (
        gap is None
        or margin is None
        or not all(math.isfinite(float(value)) for value in (gap["lo"], gap["hi"], margin["nats"]))
    ):
        return f"no gap was measured against a margin ({code}), so there is nothing to accept"
    if (points := document["window"]["n"]) < POINTS_TO_FAIL:
        return (
            f"the gap rests on {count(points, 'common step')}, and nothing can be said of fewer "
            f"than {POINTS_TO_FAIL}"
        )
    if failing := next((other for other in document["codes"] if other in FAILING), None):
        return (
            f"the gap is too large ({failing}), and what else differs ({code}) may explain it or "
            "not: compare runs without that"
        )
    if entry.check in _NOT_COMPARED:
        return (
            f"the runs cannot be compared ({code}: {entry.means}), so the gap says nothing about "
            "the recipe"
        )
    return None


def accepted(
    documents: Sequence[VerdictDocument],
    policy: Mapping[str, Any],
    sign_offs: Sequence[SignOffDocument],
) -> dict[str, SignOffDocument]:
    """The sign-off that holds for each of these verdicts under this policy, by candidate.

    The server has to call it valid, and both digests have to be right. Candidates without one have
    no entry.
    """
    valid = {
        sign_off["candidate"]: sign_off for sign_off in sign_offs if sign_off["state"] == "valid"
    }
    if not valid:
        return {}
    digest, holding = sha256_of(policy), {}
    for document in documents:
        sign_off = valid.get(document["candidate"]["name"])
        if (
            sign_off is None
            or sign_off["policy_sha256"] != digest
            or sign_off["verdict_sha256"] != sha256_of(document)
        ):
            continue
        if why_not_acceptable(document) is None:
            holding[sign_off["candidate"]] = sign_off
    return holding
