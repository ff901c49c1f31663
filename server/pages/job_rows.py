"""The rows of the list of jobs: each is one answer, with the gap that it rests on drawn in margins;
repeats of one question share a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from parity.frozen import frozen
from parity.judging.live.rules import Forecast
from parity.report.candidates import BEST_FIRST
from parity.report.forecast import PROBABLE, live_lead
from parity.report.view import NO_GAP_CODES
from parity.report.words import code_in_brief
from parity.wording import MINUS, count, interval_words, nats_decimals, signed
from server.api.lists import JobSummary, belonging_to
from server.database.states import JOB_OPEN, JUDGING_AGAIN
from server.database.tables import Job
from server.jobs.forecasts import latest
from server.jobs.verdict_rows import VerdictSummary

# Gaps in their own margins, as places in percent of a figure's width or height. What lies beyond an
# axis is an arrow at its edge.

_ROW, _SMALL = (-2.0, 4.0), (-1.0, 2.0)
_SMALLS = 6


@frozen
class Figure:
    """A gap on an axis of its own margins: the places of its ends, of its mean (None beyond the
    axis), of zero and of the margin.
    """

    state: str
    words: str
    low: float
    high: float
    mean: float | None
    below: bool
    above: bool
    zero: float
    margin: float


def _figure(
    state: str,
    words: str,
    gap: tuple[float, float, float],
    margin: float,
    axis: tuple[float, float],
) -> Figure:
    def place(value: float) -> float:
        return round(100.0 * (min(max(value, axis[0]), axis[1]) - axis[0]) / (axis[1] - axis[0]), 2)

    mean, low, high = (value / margin for value in gap)
    return Figure(
        state=state,
        words=words,
        low=place(low),
        high=place(high),
        mean=place(mean) if axis[0] <= mean <= axis[1] else None,
        below=low < axis[0],
        above=high > axis[1],
        zero=place(0.0),
        margin=place(1.0),
    )


@frozen
class Gap:
    """A gap as a row tells it, in nats; `figure` and `small` draw it in margins, where it has an
    interval and a margin.
    """

    mean: str = ""
    interval: str = ""
    figure: Figure | None = None
    small: Figure | None = None


NO_GAP = Gap()


def _gap(state: str, gap: tuple[float, float, float], margin: float | None) -> Gap:
    mean, low, high = gap
    places = nats_decimals(margin, low, high)
    told, interval = (
        text.replace("-", MINUS)
        for text in (signed(mean, places), interval_words(low, high, places))
    )
    if not margin:
        return Gap(mean=told, interval=interval)
    words = (
        f"{'forecast ' if state == 'live' else ''}{told}, interval {interval}, margin "
        f"{margin:.{places}f}"
    )
    figure, small = (_figure(state, words, gap, margin, axis) for axis in (_ROW, _SMALL))
    return Gap(mean=told, interval=interval, figure=figure, small=small)


def _gap_of(verdict: VerdictSummary) -> Gap:
    """The gap of a verdict; none where the runs were not compared."""
    if verdict.gap_nats is None or verdict.code in NO_GAP_CODES:
        return NO_GAP
    if verdict.ci_low is None or verdict.ci_high is None:
        return Gap(mean=signed(verdict.gap_nats).replace("-", MINUS))
    return _gap(
        verdict.verdict, (verdict.gap_nats, verdict.ci_low, verdict.ci_high), verdict.margin_nats
    )


# A job as one answer: that of its safest candidate, as everywhere
# (`parity.report.candidates.safest_first`).


@frozen
class Answer:
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
    gap: Gap = NO_GAP
    why: str = ""
    progress: float | None = None
    belonging: str = ""

    @property
    def is_verdict(self) -> bool:
        """Whether the job has an answer."""
        return self.state in BEST_FIRST


def answer_of(
    job: JobSummary, forecasts: Mapping[str, Forecast], belonging: Mapping[str, int]
) -> Answer:
    """The answer of a job; `forecasts` are the newest of its candidates by name, `belonging` counts
    what belongs to it.
    """
    open_ended = Answer(
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


def _judged(job: JobSummary, answer: Answer) -> Answer:
    safest = min(job.verdicts, key=_risk)
    verdicts = [each.verdict for each in job.verdicts]
    return replace(
        answer,
        state=safest.verdict,
        lead=safest.lead,
        tally=[(state, verdicts.count(state)) for state in BEST_FIRST if state in verdicts]
        if len(verdicts) > 1
        else (),
        gap=_gap_of(safest),
        why=code_in_brief(safest.code or "") or "",
    )


def _live(job: JobSummary, answer: Answer, forecasts: Mapping[str, Forecast]) -> Answer:
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
    name, live = min(forecasts.items(), key=lambda each: _outlook(each[1]))
    gap = _gap("live", ((live.low + live.high) / 2.0, live.low, live.high), live.margin)
    return replace(training, lead=live_lead(name, live), gap=gap, why="forecast, no verdict")


def _risk(verdict: VerdictSummary) -> tuple[int, float]:
    is_told = verdict.ci_high is not None and verdict.code not in NO_GAP_CODES
    return BEST_FIRST.index(
        verdict.verdict
    ), verdict.ci_high if is_told and verdict.ci_high is not None else float("inf")


def _outlook(live: Forecast) -> tuple[int, float]:
    if live.passes >= PROBABLE:
        return 0, live.high
    return 2 if live.fails >= PROBABLE else 1, live.high


def _about(job: JobSummary) -> str:
    who = job.candidates[0] if len(job.candidates) == 1 else count(len(job.candidates), "candidate")
    return f"{who} against {job.baseline}"


def _belonging_words(belonging: Mapping[str, int]) -> str:
    parts = [("analysis", "analysis", "analyses")]
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
        job_id: {name: live for name, live in each.items() if live is not None}
        for job_id, each in found.items()
    }


# Rows: repeats of one question fold into one.


@frozen
class Row:
    """A row: its answer, which is that of the newest repeat, and all repeats of the question on
    this page, newest first; of one, none.
    """

    answer: Answer
    repeats: Sequence[Answer] = ()

    @property
    def so_far(self) -> str:
        """How the repeats ended: "5 of 6 pass."."""
        states = [each.state for each in self.repeats]
        state = states[0] if len(set(states)) == 1 else "pass"
        word = "stay undecided" if state == "inconclusive" else state
        return f"{states.count(state)} of {len(states)} {word}."

    @property
    def smalls(self) -> Sequence[tuple[float, Figure]]:
        """The last intervals that can be drawn, oldest first, each with its place in percent of the
        width.
        """
        drawn = [each.gap.small for each in self.repeats if each.gap.small is not None][:_SMALLS][
            ::-1
        ]
        return [
            (round(100.0 * (at + 0.5) / len(drawn), 2), figure) for at, figure in enumerate(drawn)
        ]


def rows_of(session: Session, jobs: Sequence[JobSummary]) -> list[Row]:
    """The rows of a page, in the order of its jobs; a folded one stands where the first of its
    repeats does.

    Only jobs with a verdict fold: what trains, or did not finish, is not hidden. All repeats among
    the jobs of a page share one row of it; those on another page have a row there, which says how
    they ended and nothing of these. So a page never needs the next one, and its cursor stays that
    of its last job.
    """
    forecasts, belonging = (
        forecasts_of(session, jobs),
        belonging_to(session, [job.id for job in jobs]),
    )
    answers = [answer_of(job, forecasts.get(job.id, {}), belonging.get(job.id, {})) for job in jobs]
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.job.group if answer.is_verdict else answer.job.id, []).append(
            answer
        )
    newest_first = (
        sorted(group, key=lambda answer: answer.job.id, reverse=True) for group in groups.values()
    )
    return [Row(answer=group[0], repeats=group if len(group) > 1 else ()) for group in newest_first]
