"""The verdicts of a job: the documents that the judge wrote, and one line of each for a list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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


def verdict_documents(job: Job) -> list[Mapping[str, Any]]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    rows = sorted(job.verdicts, key=lambda row: position[row.candidate])
    return [json.loads(row.document) for row in rows]


def verdict_summary(document: Mapping[str, Any]) -> VerdictSummary:
    """One line of a verdict document; the numbers are None where the judge measured no gap or margin."""
    gap = document.get("gap") or {}
    low, high = gap.get("ci95") or (None, None)
    return VerdictSummary(
        candidate=document["candidate"]["name"],
        verdict=document["verdict"],
        gap_nats=gap.get("mean"),
        ci_low=low,
        ci_high=high,
        margin_nats=(document.get("margin") or {}).get("nats"),
    )
