"""What a card is made of and verified by: a job on a server, an evidence bundle, or files."""

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from parity.cards.card import Card, CardSignOff
from parity.cards.make_card import ServerFacts, ended_sign_offs, make_card
from parity.cli.compare.comparisons import ComparisonRequest, comparison_requests
from parity.cli.compare.read_comparison import CurveComparison, read_comparison
from parity.cli.terminal.options import refuse
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.wrong_calls import UsageError
from parity.frozen import frozen
from parity.judging.bundles.read_bundle import EvidenceError, read_bundle
from parity.judging.bundles.server_record import JOB_ID
from parity.judging.bundles.verification import verify
from parity.judging.case import AnyDocument
from parity.judging.curves.curve import CurveError
from parity.version import JUDGE_VERSION

_ONE_COMPARISON = "a card holds one comparison"
_HAS_ALL = (
    "whose policy and statements are fixed; remove it, or give the runs that it applies to in "
    "place of the"
)
BUNDLE_HAS_ALL = f"is not used with a bundle, {_HAS_ALL} bundle"
_JOB_HAS_ALL = f"is not used with a job, {_HAS_ALL} job"


@frozen
class CardOfEvidence:
    """The card that evidence gives, None where a bundle contradicts itself; `is_rejudged`: this
    judge has judged it. `is_live`: a server said what it knows of the job. `differences` are those
    of a bundle from what it records. `ended` are the sign-offs that it records as expired, revoked
    or void.
    """

    card: Card | None
    is_rejudged: bool
    is_live: bool = False
    differences: tuple[str, ...] = ()
    ended: tuple[CardSignOff, ...] = ()


def card_of_evidence(
    request: ComparisonRequest, server: Server, by: str | None = None, judge: str | None = None
) -> CardOfEvidence:
    """The card of a job, a bundle, or the comparison that files and options name. `judge` is the
    one whose verdicts are asked for: where that is this one it judges a bundle of any other, else
    a bundle has those that it records. Raises UsageError, EvidenceError, and what reading files
    and asking a server raise.
    """
    if len(request.runs) == 1:
        (one,) = request.runs
        if JOB_ID.fullmatch(one) and not Path(one).exists():
            refuse(request.given(), _JOB_HAS_ALL)
            return _job_card(one, server, by, judge)
        if zipfile.is_zipfile(one):
            refuse(request.given(), BUNDLE_HAS_ALL)
            return _bundle_card(one, by, judge)
        if one.endswith(".zip"):
            problem = "not a zip file" if Path(one).is_file() else "no such file"
            raise UsageError(f"{one}: {problem}; expected a bundle of `parity compare --bundle`")
    requests = comparison_requests(request)
    if len(requests) != 1:
        names = " or ".join(f"{request.runs[0]}:{name}" for name in requests)
        raise UsageError(f"{_ONE_COMPARISON}; choose one: {names}")
    found = read_comparison(next(iter(requests.values())))
    if isinstance(found, CurveComparison):
        card = make_card(found.case, found.case.documents(), by)
        return CardOfEvidence(card=card, is_rejudged=True)
    if len(found) != 1:
        raise UsageError(f"{_ONE_COMPARISON}; choose one size with --where")
    ((case, documents),) = found
    return CardOfEvidence(card=make_card(case, documents, by), is_rejudged=True)


def _job_card(job_id: str, server: Server, by: str | None, judge: str | None) -> CardOfEvidence:
    """The card of a job from its evidence, which is downloaded, and what the server knows of it."""
    from parity.client.rest import Client  # noqa: PLC0415

    with Client(server.server, server.token) as client:
        document = client.job(job_id)
        bundle = client.evidence(job_id)
    facts = ServerFacts(
        job=job_id,
        failed_by=document.get("failed_by"),
        sign_offs=document.get("sign_offs", ()),
    )
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder, f"{job_id}-evidence.zip")
        path.write_bytes(bundle)
        return _bundle_card(str(path), by, judge, facts)


def _bundle_card(
    path: str, by: str | None, judge: str | None, facts: ServerFacts | None = None
) -> CardOfEvidence:
    verification = verify(path)
    if verification.differences:
        return CardOfEvidence(
            card=None,
            is_rejudged=verification.same_judge,
            differences=verification.differences,
        )
    bundle = read_bundle(path)
    is_live = facts is not None
    if facts is None:
        facts = ServerFacts(
            job=bundle.job.id if bundle.job else None,
            failed_by=bundle.job.failed_by if bundle.job else None,
            sign_offs=bundle.sign_offs,
        )
    documents: Sequence[AnyDocument] = bundle.documents
    is_rejudged = verification.same_judge or judge == JUDGE_VERSION
    if is_rejudged:
        documents = bundle.case.documents()
    try:
        card = make_card(bundle.case, documents, by, facts)
    except (LookupError, TypeError, ValueError, AttributeError, CurveError) as error:
        raise EvidenceError(
            f"{path}: judge {verification.made_by} recorded verdicts that judge {JUDGE_VERSION} "
            f"cannot read ({type(error).__name__}); judge its runs again"
        ) from None
    return CardOfEvidence(
        card=card,
        is_rejudged=is_rejudged,
        is_live=is_live,
        ended=ended_sign_offs(facts),
    )
