"""The verdicts of a job: the judge's documents, and a summary of each for a list."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from parity.judging.document_types import VerdictDocument
from server.curves.buckets import Number
from server.database.tables import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSummary:
    """A verdict in a list of jobs."""

    candidate: str
    verdict: Literal["pass", "fail", "inconclusive"]
    gap_nats: Number | None
    ci_low: Number | None
    ci_high: Number | None
    margin_nats: Number | None


def verdict_documents(job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    rows = sorted(job.verdicts, key=lambda row: position[row.candidate])
    return [json.loads(row.document) for row in rows]


def verdict_summary(document: VerdictDocument) -> VerdictSummary:
    """The summary of a verdict document; the numbers are None if the judge measured no gap or margin."""
    gap, margin = document.get("gap"), document.get("margin")
    low, high = (gap["lo"], gap["hi"]) if gap else (None, None)
    return VerdictSummary(
        candidate=document["candidate"]["name"],
        verdict=document["verdict"],
        gap_nats=gap["mean"] if gap else None,
        ci_low=low,
        ci_high=high,
        margin_nats=margin["nats"] if margin else None,
    )
