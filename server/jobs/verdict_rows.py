"""The verdicts of a job: the judge's documents, and a summary of each for a list."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.document_types import PathPointDocument, VerdictDocument
from parity.judging.evaluations.document import EVALUATION_SCHEMA
from parity.judging.gap.chances import chances_of
from parity.judging.verdict.path import path_of
from parity.judging.verdict.verdict import Verdict as JudgeVerdict
from parity.report.answer import answer_words, lead_of_names
from parity.report.next_steps import owner_steps
from parity.report.view import view_of, views_of
from parity.report.words import lead_of, with_words
from server.database.states import RECORD_DAMAGED
from server.database.tables import Job, Verdict, new_id
from server.database.verdict_digest import (
    columns_digest,
    document_digest,
    has_its_columns,
    is_intact,
)
from server.jobs.fingerprint import job_spec
from server.records import from_attributes
from training.modelled_gemm_time import gemm_time
from training.rules import OTHERS_TRAINERS

_log = logging.getLogger(__name__)


@frozen
class VerdictSummary:
    """A verdict in a list of jobs: its lead, what decided it, gap, interval and margin in nats, and
    the gap as a share of the loss.
    """

    candidate: str
    verdict: Literal["pass", "fail", "inconclusive"]
    lead: str
    code: str | None
    gap_nats: float | None
    ci_low: float | None
    ci_high: float | None
    gap_rel: float | None
    margin_nats: float | None


def verdict_documents(job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    return [row.read_document() for row in verdict_rows(job)]


def shown_documents(session: Session, job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as a page shows one of them: with its path, where that was computed,
    the chances of one more pair, and the modelled GEMM time.
    """
    paths: dict[str, str | None] = {}
    if job.verdicts:
        rows = session.execute(
            select(Verdict.candidate, Verdict.path).where(Verdict.job_id == job.id)
        )
        paths = {row.candidate: row.path for row in rows}
    documents = verdict_documents(job)
    times = gemm_times(job) if documents else {}
    return [
        shown(document, json.loads(paths.get(name) or "null"), times.get(name), owned_job(job))
        for document in documents
        for name in (document["candidate"]["name"],)
    ]


def owned_job(job: Job) -> str | None:
    """The id of a job of external runs, whose owner may state what they did not record."""
    return job.id if job.engine == "external" else None


def shown(
    document: VerdictDocument,
    path: list[PathPointDocument] | None,
    modelled: float | None = None,
    owned: str | None = None,
) -> VerdictDocument:
    """A document with what is shown with it and is no part of the verdict: its path, and its
    modelled GEMM time, where they are known, and the steps for the owner of the job `owned`.
    """
    shown_document: VerdictDocument = document if path is None else {**document, "path": path}
    if owned is not None:
        steps = owner_steps(document, owned)
        shown_document = {**shown_document, "owner_steps": steps}
    if document["schema"] != EVALUATION_SCHEMA:  # of evaluations nothing is forecast
        shown_document = {
            **shown_document,
            "chances": chances_of(document),
            "gemm_time": modelled,
        }
    worded: VerdictDocument = with_words(shown_document)
    return worded


def gemm_times(job: Job) -> Mapping[str, float]:
    """The modelled GEMM time of each candidate as a share of the baseline's; none where the model
    or a recipe is not known.
    """
    if job.engine in OTHERS_TRAINERS or job.has_evaluations:
        return {}
    try:
        spec = job_spec(job)
        base = gemm_time(spec, spec.baseline)
        return {arm.name: gemm_time(spec, arm) / base for arm in spec.candidates}
    except ValueError:  # a recipe without a rate, or a specification that this version cannot read
        return {}


def path_or_none(verdict: JudgeVerdict) -> list[PathPointDocument] | None:
    """The path of a verdict; None where computing it fails, which is logged."""
    try:
        return path_of(verdict)
    except Exception:  # noqa: BLE001
        _log.exception("the path of the verdict on %s could not be computed", verdict.candidate)
        return None


def verdict_rows(job: Job) -> list[Verdict]:
    """The verdicts of a job in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    return sorted(job.verdicts, key=lambda row: position[row.candidate])


def verdict_summary(
    row: Verdict | Row[*tuple[Any, ...]], document: str | None = None
) -> VerdictSummary:
    """The summary of a verdict, from its row or columns of it; numbers that were not measured, or
    are not finite, are None.

    The lead of a row that has none is computed from the document: that of the row, if it is not
    given. A row that is not as it was written says so, and nothing else.
    """
    if not has_its_columns(row):
        return VerdictSummary(
            candidate=row.candidate,
            verdict="inconclusive",
            lead="The recorded verdict is damaged; `python -m server.check` says what helps.",
            code=RECORD_DAMAGED,
            gap_nats=None,
            ci_low=None,
            ci_high=None,
            gap_rel=None,
            margin_nats=None,
        )
    lead = row.lead
    if lead is None:
        lead = lead_of(view_of(json.loads(document or row.document)))
    return from_attributes(
        VerdictSummary,
        row,
        verdict=row.outcome,
        lead=lead,
        gap_nats=row.gap,
        margin_nats=row.margin,
    )


def lead_or_none(document: Mapping[str, Any]) -> str | None:
    """The lead of a verdict; None where it cannot be told, which is logged."""
    try:
        return lead_of(view_of(document))
    except Exception:  # noqa: BLE001
        _log.exception(
            "the lead of the verdict on %s could not be told", document["candidate"]["name"]
        )
        return None


def job_lead(documents: Sequence[Mapping[str, Any]]) -> str | None:
    """The lead of these verdicts; None without any, and where making it fails, which is logged."""
    if not documents:
        return None
    try:
        return answer_words(views_of(documents)).lead
    except Exception:  # noqa: BLE001
        _log.exception("the lead of %s verdicts could not be told", len(documents))
        return None


def shown_lead(lead: str | None, verdicts: Sequence[VerdictSummary]) -> str:
    """The lead of a job by the summaries of its verdicts, at least one: that of a damaged verdict
    if there is one, else the job's own. A job of several candidates from before leads were kept
    names them with their states.
    """
    damaged = next((verdict for verdict in verdicts if verdict.code == RECORD_DAMAGED), None)
    if damaged is not None:
        return damaged.lead
    if len(verdicts) == 1:
        return verdicts[0].lead
    if lead is not None:
        return lead
    names: dict[str, list[str]] = {}
    for verdict in verdicts:
        names.setdefault(verdict.verdict, []).append(verdict.candidate)
    return lead_of_names(names)


def has_its_lead(job: Job) -> bool:
    """Whether the lead that lists show is the one that the verdicts give. A job from before leads
    were kept has none, and of damaged verdicts it is not asked.
    """
    if job.lead is None or not all(is_intact(verdict) for verdict in job.verdicts):
        return True
    return job.lead == job_lead(verdict_documents(job))


def new_verdict_row(job_id: str, document: Mapping[str, Any], text: str, now: float) -> Verdict:
    """The row of a new verdict, with the columns that lists read."""
    gap, margin = document.get("gap") or {}, document.get("margin") or {}
    if document["schema"] == EVALUATION_SCHEMA:
        gap = gap["judged"] or {}
    interval = gap.get("deciding") or gap
    row = Verdict(
        id=new_id("v"),
        job_id=job_id,
        candidate=document["candidate"]["name"],
        outcome=document["verdict"],
        document=text,
        lead=lead_or_none(document),
        code=document["codes"][0],
        gap=_finite(gap.get("mean")),
        ci_low=_finite(interval.get("lo")),
        ci_high=_finite(interval.get("hi")),
        gap_rel=_finite(gap.get("rel")),
        margin=_finite(margin.get("nats")),
        document_sha256=document_digest(text),
        created_at=now,
    )
    row.columns_sha256 = columns_digest(row)
    return row


def _finite(number: float | str | None) -> float | None:
    """A number as lists show it; None if it was not measured or is not finite."""
    if number is not None and math.isfinite(float(number)):
        return float(number)
    return None
