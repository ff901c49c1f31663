"""The gaps of all candidates of a job on the same bins: what one chart shows, from the recorded curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from sqlalchemy.orm import Session

from parity.judging.live.gap_chart import step_edges
from parity.report.gap_bins import on_edges
from server.cache import Cache
from server.curves.buckets import rounded
from server.database.tables import Arm, Job
from server.gaps.inputs import Extents
from server.gaps.pairs import CandidateGap, Range, candidate_gaps, common_range

_MARKS = 100  # steps with a mark that are listed per candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDocument:
    """What a chart of a candidate's gap shows beside the bins."""

    candidate: str
    nonfinite_baseline: list[int]
    nonfinite_candidate: list[int]
    nonfinite_count: int
    spikes_baseline: list[int]
    spikes_candidate: list[int]
    margin_nats: float | None
    level_nats: float | None
    window: Annotated[list[int], Field(min_length=2, max_length=2)] | None
    common_steps: int
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateGapDocument(PairDocument):
    """The gap of one candidate on the common bins: mean and half the width of its interval, nats, null where both arms have no step."""

    mean: list[float | None]
    half_width: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsDocument:
    """The gaps of candidates of a job on the same bins, for one chart; a bin ends before the next one begins.

    `confidence` is that of the interval that decides, which looks and candidates share. `nonfinite_…` and `spikes_…` list the first
    100 steps of each candidate. Values have six digits.
    """

    baseline: str
    planned_steps: int
    first_step: list[int]
    last_step: list[int]
    candidates: list[CandidateGapDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartedGap:
    """The gap of one candidate, and the number of common steps in each bin."""

    gap: CandidateGapDocument
    n: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChart:
    """The gaps of candidates of a job on the same bins, also those in which none of them has a step."""

    first_step: list[int]
    last_step: list[int]
    gaps: list[ChartedGap]


_DOCUMENT = TypeAdapter(GapsDocument)


def gap_chart(cache: Cache, session: Session, job: Job, arms: Sequence[Arm], wanted: Range, recorded: Extents) -> GapChart:
    """The gaps of these candidates in a range of steps; without a bin where no candidate has a common step with the baseline."""
    common = common_range(session, job, recorded, wanted)
    if common is None:
        return GapChart(first_step=[], last_step=[], gaps=[])
    first = step_edges(*common, wanted.bins, log=wanted.log)
    made = candidate_gaps(cache, session, job, arms, dataclasses.replace(wanted, edges=first))
    return GapChart(
        first_step=first.tolist(),
        last_step=[*(first[1:] - 1).tolist(), common[1]],
        gaps=[_on_bins(gap, first) for gap in made],
    )


def gaps_json(job: Job, chart: GapChart, arms: Sequence[Arm]) -> bytes:
    """The JSON of a `GapsDocument` of these candidates, with the bins in which any of them has a step."""
    by_name = {one.gap.candidate: one for one in chart.gaps}
    chosen = [by_name[arm.name] for arm in arms if arm.name in by_name]
    held = [i for i in range(len(chart.first_step)) if any(one.n[i] for one in chosen)]
    document = GapsDocument(
        baseline=job.arms[0].name,
        planned_steps=job.spec["schedule"]["steps"],
        first_step=[chart.first_step[i] for i in held],
        last_step=[chart.last_step[i] for i in held],
        candidates=[
            dataclasses.replace(one.gap, mean=[one.gap.mean[i] for i in held], half_width=[one.gap.half_width[i] for i in held])
            for one in chosen
        ],
    )
    return _DOCUMENT.dump_json(document)


def _on_bins(gap: CandidateGap, first: NDArray[np.int64]) -> ChartedGap:
    mean, half_width, n = on_edges(gap.binned, first)
    document = CandidateGapDocument(
        **pair_fields(gap, int(np.sum(n)), _MARKS),
        mean=rounded(mean, digits=6),
        half_width=rounded(half_width, digits=4),
    )
    return ChartedGap(gap=document, n=n.tolist())


def pair_fields(gap: CandidateGap, common_steps: int, marks: int) -> dict[str, Any]:
    """The fields of `PairDocument`, with at most `marks` steps of each kind of mark."""
    binned = gap.binned
    return {
        "candidate": gap.candidate,
        "nonfinite_baseline": binned.nonfinite_baseline[:marks].tolist(),
        "nonfinite_candidate": binned.nonfinite_candidate[:marks].tolist(),
        "nonfinite_count": len(binned.nonfinite_baseline) + len(binned.nonfinite_candidate),
        "spikes_baseline": gap.spikes[0][:marks],
        "spikes_candidate": gap.spikes[1][:marks],
        "margin_nats": binned.margin_nats,
        "level_nats": binned.level,
        "window": [*binned.window],
        "common_steps": common_steps,
        "confidence": gap.confidence,
    }
