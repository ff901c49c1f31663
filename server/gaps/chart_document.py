"""The gaps of all candidates of a job on the same bins: what one chart shows, from the recorded
curves.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.live.gap_chart import StepRange, step_edges
from parity.report.verdict_gap import gap_in_ranges
from server.concurrency.cache import Cache
from server.database.tables import Arm, Job
from server.gaps.candidate_gaps import CandidateGap, candidate_gaps, common_range
from server.gaps.recorded_extents import Extents
from server.json_numbers import rounded

_MARKS = 100  # steps with a mark that are listed per candidate


@frozen
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


@frozen
class CandidateGapDocument(PairDocument):
    """The gap of one candidate on the common bins: mean and half the width of its interval, nats,
    null where both arms have no step.
    """

    mean: list[float | None]
    half_width: list[float | None]


@frozen
class GapsDocument:
    """The gaps of candidates of a job on the same bins, for one chart; a bin ends before the next
    one begins.

    `confidence` is that of the interval that decides, which looks and candidates share.
    `nonfinite_…` and `spikes_…` list the first 100 steps of each candidate. Values have six digits.
    """

    baseline: str
    planned_steps: int | None
    first_step: list[int]
    last_step: list[int]
    candidates: list[CandidateGapDocument]


def gaps_of(
    cache: Cache,
    session: Session,
    job: Job,
    arms: Sequence[Arm],
    step_range: StepRange,
    recorded: Extents,
) -> GapsDocument:
    """The gaps of these candidates in a range of steps, in the bins in which any of them has a step
    in common with the baseline.
    """
    common = common_range(session, job, recorded, step_range)
    steps, candidates = np.empty((2, 0), np.int64), []
    if common is not None:
        first = step_edges(*common, step_range.bins, log=step_range.log)
        gaps = candidate_gaps(
            cache, session, job, arms, dataclasses.replace(step_range, edges=first)
        )
        binned = [gap_in_ranges(gap.binned, first) for gap in gaps]
        has_runs = np.any([n > 0 for _, _, n in binned], axis=0)
        steps = np.stack([first, np.append(first[1:] - 1, common[1])])[:, has_runs]
        candidates = [
            CandidateGapDocument(
                **pair_fields(gap, int(np.sum(n)), _MARKS),
                mean=rounded(mean[has_runs], digits=6),
                half_width=rounded(half_width[has_runs], digits=4),
            )
            for gap, (mean, half_width, n) in zip(gaps, binned, strict=True)
        ]
    return GapsDocument(
        baseline=job.arms[0].name,
        planned_steps=job.planned_steps,
        first_step=steps[0].tolist(),
        last_step=steps[1].tolist(),
        candidates=candidates,
    )


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
