"""A job as one answer: the worst of its candidates' verdicts, as everywhere
(`parity.report.answer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from parity.frozen import frozen
from parity.judging.decision import worst
from parity.judging.live.rules import Forecast
from parity.report.candidates import ANSWER_ORDER, BEST_FIRST, decisiveness
from parity.report.forecast import PROBABLE, live_lead
from parity.report.view import NO_GAP_CODES
from parity.report.words import code_in_brief
from parity.wording import count
from server.database.states import JOB_OPEN, JUDGING_AGAIN
from server.database.tables import EVALUATIONS, Job
from server.documents.job_lists.summaries import JobSummary
from server.jobs.forecasts import latest
from server.jobs.verdict_rows import VerdictSummary
from server.pages.lists.gap_figures import NO_GAP, ShownGap, drawn_gap, verdict_gap


@frozen
class JobAnswer:
    """What a row says of one job.

    `state` is its verdict, or "live", "queued", "unfinished" or "ended". `tally` counts the
    verdicts of several candidates. `progress` is the share of the steps that a job in training has
    done. `belonging` says what belongs to it: "2 analyses".
    """

    job: JobSummary
    state: str
    lead: str
    about: str
    tally: Sequence[tuple[str, int]] = ()
    gap: ShownGap = NO_GAP
    why: str = ""
    progress: float | None = None
    belonging: str = ""

    @property
    def is_verdict(self) -> bool:
        """Whether the job has an answer."""
        return self.state in BEST_FIRST


def answer_of(
    job: JobSummary, forecasts: Mapping[str, Forecast], belonging: Mapping[str, int]
) -> JobAnswer:
    """The answer of a job; `forecasts` are the newest of its candidates by name, `belonging` counts
    what belongs to it.
    """
    open_ended = JobAnswer(
        job=job,
        state="ended",
        lead="Ended; it has no verdict of its own.",
        about=_about(job),
        belonging=_belonging_words(belonging),
    )
    if job.verdicts:
        return _judged(job, open_ended)
    if job.status in JOB_OPEN:
        return _live(job, open_ended, forecasts)
    if job.status == "cancelled":
        return replace(open_ended, state="unfinished", lead="Cancelled.")
    if job.status == "failed":
        return replace(
            open_ended,
            state="unfinished",
            lead=f"Did not finish: {job.code}." if job.code else "Did not finish.",
        )
    return open_ended


def deciding_verdict(verdicts: Sequence[VerdictSummary]) -> VerdictSummary:
    """The verdict of the candidate that decides the state of all."""
    state = worst(verdict.verdict for verdict in verdicts)
    return max((one for one in verdicts if one.verdict == state), key=_decisiveness)


def _judged(job: JobSummary, answer: JobAnswer) -> JobAnswer:
    states = [verdict.verdict for verdict in job.verdicts]
    deciding = deciding_verdict(job.verdicts)
    state = deciding.verdict
    several = len(states) > 1
    return replace(
        answer,
        state=state,
        lead=job.lead or deciding.lead,
        tally=[(listed, states.count(listed)) for listed in ANSWER_ORDER if listed in states]
        if several
        else (),
        gap=verdict_gap(deciding),
        why=code_in_brief(deciding.code or "") or "",
    )


def _live(job: JobSummary, answer: JobAnswer, forecasts: Mapping[str, Forecast]) -> JobAnswer:
    """A job in training: the forecast of the candidate that will most likely be the safest, else
    how far it is.
    """
    if job.status == "queued":
        return replace(
            answer,
            state="queued",
            lead="Waiting for its trainer." if job.engine == "external" else "Queued.",
        )
    training = replace(
        answer, state="live", lead="Training; no forecast yet.", progress=job.share_done
    )
    if job.code == JUDGING_AGAIN:
        return replace(training, lead="Trained; the judge could not finish yet.")
    if not forecasts:
        return training
    name, live = min(forecasts.items(), key=lambda item: _outlook(item[1]))
    gap = drawn_gap("live", ((live.low + live.high) / 2.0, live.low, live.high), live.margin)
    return replace(training, lead=live_lead(name, live), gap=gap, why="forecast, no verdict")


def _decisiveness(verdict: VerdictSummary) -> float:
    mean, lo, hi = verdict.gap_nats, verdict.ci_low, verdict.ci_high
    if mean is None or lo is None or hi is None or verdict.code in NO_GAP_CODES:
        return decisiveness(verdict.verdict, None, verdict.margin_nats)
    return decisiveness(verdict.verdict, (mean, lo, hi), verdict.margin_nats)


def _outlook(live: Forecast) -> tuple[int, float]:
    if live.passes >= PROBABLE:
        return 0, live.high
    return 2 if live.fails >= PROBABLE else 1, live.high


def _about(job: JobSummary) -> str:
    who = job.candidates[0] if len(job.candidates) == 1 else count(len(job.candidates), "candidate")
    kind = ", held-out losses" if job.engine == EVALUATIONS else ""
    return f"{who} against {job.baseline}{kind}"


def _belonging_words(belonging: Mapping[str, int]) -> str:
    parts = [("analysis", "analysis", "analyses"), ("healing", "healing", "healings")]
    return ", ".join(
        count(belonging[kind], one, many) for kind, one, many in parts if kind in belonging
    )


def forecasts_of(
    session: Session, jobs: Sequence[JobSummary]
) -> Mapping[str, Mapping[str, Forecast]]:
    """The newest forecasts of the jobs that train, by candidate."""
    training = [job.id for job in jobs if job.status == "running"]
    if not training:
        return {}
    rows = session.scalars(
        select(Job).options(load_only(Job.early_stop)).where(Job.id.in_(training))
    )
    stored = {row.id: row for row in rows}
    found = {
        job.id: {name: latest(stored[job.id], name) for name in job.candidates}
        for job in jobs
        if job.id in stored
    }
    return {
        job_id: {name: live for name, live in newest.items() if live is not None}
        for job_id, newest in found.items()
    }
