"""Sign-offs in reports: a person's acceptance stands next to the verdict, in words that nobody
takes for a pass of the judge.
"""

from collections.abc import Mapping

from parity.judging.verdict.sign_offs import SignOffDocument

Accepted = Mapping[str, SignOffDocument]
"""The sign-off that holds, by candidate."""
NOT_A_PASS = "Accepted, not a pass"  # noqa: S105


def accepted_words(sign_off: SignOffDocument) -> str:
    """Who accepted which verdict, until when and why, in one line."""
    until = sign_off["expires_at"][:16].replace("T", " ")
    reason = " ".join(sign_off["reason"].split())
    return (
        f"{sign_off['who']} signed off the inconclusive verdict on {sign_off['candidate']} until "
        f"{until} UTC: {reason}"
    )


def accepted_lead(candidate: str, expires_at: str) -> str:
    """The lead of an accepted verdict: nobody is told to wait for a decision that a person has
    made.
    """
    return f"{candidate} is open, but accepted: you may use it until {expires_at[:10]}."


def lapsed_words(sign_off: SignOffDocument) -> str:
    """Why a sign-off no longer counts, in one line."""
    why = {
        "expired": f"expired on {sign_off['expires_at'][:16].replace('T', ' ')} UTC",
        "revoked": f"was revoked by {sign_off['revoked_by']}: "
        f"{' '.join((sign_off['revoke_reason'] or '').split())}",
    }.get(sign_off["state"], "was for another verdict or another policy")
    return f"the sign-off of {sign_off['candidate']} by {sign_off['who']} does not count: it {why}"
