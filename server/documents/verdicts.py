"""The verdicts of a job: the judge's documents, and a summary of each for a list."""

from __future__ import annotations

import json
from typing import Any, Literal

from sqlalchemy import Row

from parity.judging.document_types import VerdictDocument
from server.database.tables import Job, Verdict
from server.records import frozen, of


@frozen
class VerdictSummary:
    """A verdict in a list of jobs: what decided it, gap, interval and margin in nats, and the gap as a share of the loss."""

    candidate: str
    verdict: Literal["pass", "fail", "inconclusive"]
    code: str | None
    gap_nats: float | None
    ci_low: float | None
    ci_high: float | None
    gap_rel: float | None
    margin_nats: float | None


def verdict_documents(job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    rows = sorted(job.verdicts, key=lambda row: position[row.candidate])
    return [json.loads(row.document) for row in rows]


def verdict_summary(row: Verdict | Row[*tuple[Any, ...]]) -> VerdictSummary:
    """The summary of a verdict, from its row or columns of it; numbers that were not measured, or are not finite, are None."""
    return of(VerdictSummary, row, verdict=row.outcome, gap_nats=row.gap, margin_nats=row.margin)
