"""The live forecast of a candidate's final gap over REST."""

from collections.abc import Sequence

import numpy as np
from fastapi import APIRouter

from parity.frozen import frozen
from parity.judging.live.forecast_words import NOTHING_YET, sentence
from parity.judging.live.pair_sums import BLOCKS, PairProgress
from parity.judging.live.rules import State
from server.api.curves.gap import Candidate, pair_of
from server.database.lookups import find_job
from server.database.states import JOB_ENDED
from server.jobs import forecasts
from server.jobs.evaluations import check_has_runs
from server.records import from_attributes
from server.web.context import InContext
from server.web.requests.entity_tags import UNCHANGED, Tags

router = APIRouter(prefix="/api/v1", tags=["curves"])
_PAST = ("step", "state", "gap", "gap_half_width", "low", "high", "passes", "fails")
NEVER = (
    "There is no forecast: the job ended before both arms had trained a tenth of the planned "
    "steps, or before forecasts were recorded."
)


@frozen
class ForecastDocument:
    """The forecast of the final gap at the planned `end` step, nats: the ends of the 90 % and of
    the 50 % interval, and its middle.
    """

    end: int
    low: float
    low_half: float
    gap: float
    high_half: float
    high: float


@frozen
class LiveDocument:
    """The gap so far and the forecast of the final gap, in nats; `sentence` is the last one in
    words. It is never a verdict.

    `step` and `gap` are the mean gap in up to 80 parts of the plan. `past_…` are those so far: the
    gap with the half-width of its interval, the 90 % forecast of the final gap, and the probability
    that the judge passes or fails it. `half_width` is that of the interval that the verdict will
    have.
    """

    candidate: str
    baseline: str
    state: State | None
    sentence: str
    planned_steps: int | None
    margin_nats: float | None
    half_width: float | None
    step: list[int]
    gap: list[float]
    past_step: list[int]
    past_state: list[State]
    past_gap: list[float]
    past_gap_half_width: list[float | None]
    past_low: list[float]
    past_high: list[float]
    past_passes: list[float]
    past_fails: list[float]
    forecast: ForecastDocument | None


@router.get("/jobs/{job_id}/live", responses=UNCHANGED)
def live_forecast(
    job_id: str, context: InContext, tags: Tags, candidate: Candidate = None
) -> LiveDocument:
    """What will the final gap be? The forecast while the job trains, with its chances to pass and
    to fail. Never a verdict.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "forecast")
        tags.check(job, "live", candidate)
        baseline, chosen = pair_of(job, candidate)
        made, pairs = forecasts.forecasts(job, chosen.name), forecasts.pairs_of(job, chosen)
        planned, ended = job.planned_steps, job.status in JOB_ENDED
    last = made[-1] if made else None
    steps, gaps = observed(pairs)
    end = ((pairs[0].origin or 0) if pairs else 0) + (planned or 0) - 1
    nothing = NEVER if ended else NOTHING_YET
    return LiveDocument(
        candidate=chosen.name,
        baseline=baseline.name,
        state=last.state if last else None,
        sentence=sentence(last) if last else nothing,
        planned_steps=planned,
        margin_nats=last.margin if last else None,
        half_width=last.half_width if last else None,
        step=steps,
        gap=gaps,
        forecast=from_attributes(ForecastDocument, last, end=end) if last else None,
        **{f"past_{name}": [getattr(forecast, name) for forecast in made] for name in _PAST},
    )


def observed(pairs: Sequence[PairProgress]) -> tuple[list[int], list[float]]:
    """The middle step and the mean gap of each part of the plan, over the pairs that have it."""
    steps, gaps = [], []
    for block in range(BLOCKS):
        seen = [
            pair.gaps[block] / pair.counts[block]
            for pair in pairs
            if block < len(pair.counts) and pair.counts[block]
        ]
        if seen:
            steps.append((pairs[0].last_step_of(block) + 1 + pairs[0].last_step_of(block + 1)) // 2)
            gaps.append(float(np.mean(seen)))
    return steps, gaps
