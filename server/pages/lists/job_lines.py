"""The charts of several jobs on one page: a line for each arm of each job, and why a job has
none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.wording import cut
from server.database.metrics import store
from server.database.states import JOB_OPEN
from server.database.tables import Arm, Job
from server.documents.job_lists.summaries import JobSummary
from server.jobs.applied_statements import tokens_per_step
from server.jobs.job_kinds import kind_of
from server.pages.formats import minute
from server.pages.job.candidate_table import STYLED
from server.pages.lists.answers import deciding_verdict

COLOURS, DASHES = 6, 8  # `--chart-job-…` in parity.css, and DASHES in arms.js
MOST_LINES = 120  # of all jobs together; a job has two at least
_LONGEST_NAME = 32
_LOSS = ("train", JUDGED_LOSS, "Loss, nats")
_COLUMNS = (
    _LOSS,
    ("validation", "loss", "Validation loss, nats"),
    ("train", "grad_norm", "Gradient norm"),
)


@frozen
class JobLine:
    """A line: an arm of a job, with the steps that it has. `against` is the key of the line of the
    arm that a candidate is judged against, None for a baseline.
    """

    job: str
    job_label: str
    arm: str
    label: str
    against: str | None
    colour: int
    dash: int
    steps: int
    verdict: str | None


@frozen
class JobCharts:
    """What the charts need: lines by key, those that are highlighted at first, the longest plan,
    the tokens of a step where all jobs have the same, whether times are recorded, whether a job
    still trains, the columns (kind, name, title), and what a reader has to know.
    """

    lines: Mapping[str, JobLine]
    lit: Sequence[str]
    steps: int
    tokens_per_step: int | None
    has_times: bool
    trains: bool
    columns: Sequence[tuple[str, str, str]]
    remarks: Sequence[str]


def job_charts(session: Session, summaries: Sequence[JobSummary]) -> JobCharts:
    """The charts of these jobs, in their order."""
    options = (selectinload(Job.arms).selectinload(Arm.runs),)
    ids = [summary.id for summary in summaries]
    jobs = {
        job.id: job for job in session.scalars(select(Job).options(*options).where(Job.id.in_(ids)))
    }
    recorded = {
        job_id: {
            (kind, name)
            for kind, names in store.names_by_kind(
                session, [run.id for arm in jobs[job_id].arms for run in arm.runs]
            ).items()
            for name in names
        }
        for job_id in ids
    }
    labels = _labels(summaries)
    charted = [
        summary
        for summary in summaries
        if any((kind, name) in recorded[summary.id] for kind, name, _ in _COLUMNS)
    ]
    most = max(2, MOST_LINES // max(1, len(charted)))
    lines = _lines(charted, jobs, labels, most)
    remarks = [
        _why_no_loss(jobs[job_id], labels[job_id], recorded[job_id])
        for job_id in ids
        if _LOSS[:2] not in recorded[job_id]
    ]
    shortened = [labels[job.id] for job in charted if len(jobs[job.id].arms) > most]
    if shortened:
        remarks.append(
            f"The charts have the first {most} arms of {', '.join(shortened)}; the page of the job "
            "has all."
        )
    tokens = {tokens_per_step(jobs[job.id]) for job in charted}
    return JobCharts(
        lines=lines,
        lit=_lit(charted, lines),
        steps=max((_length(jobs[job.id]) for job in charted), default=0),
        tokens_per_step=tokens.pop() if len(tokens) == 1 else None,
        has_times=any(("train", "step_seconds") in names for names in recorded.values()),
        trains=any(job.status in JOB_OPEN for job in charted),
        columns=[
            (kind, name, title)
            for kind, name, title in _COLUMNS
            if any((kind, name) in names for names in recorded.values())
        ],
        remarks=remarks,
    )


def _labels(jobs: Sequence[JobSummary]) -> Mapping[str, str]:
    """What each job is called: its name, with its time where several have the name, and with its
    number on the page where they have the time too.
    """
    short = {job.id: cut(job.name, _LONGEST_NAME) for job in jobs}
    timed = {job.id: f"{short[job.id]} {minute(job.created_at)}" for job in jobs}
    names, times = Counter(short.values()), Counter(timed.values())
    labels = {}
    for number, job in enumerate(jobs, 1):
        if names[short[job.id]] == 1:
            labels[job.id] = short[job.id]
        elif times[timed[job.id]] == 1:
            labels[job.id] = timed[job.id]
        else:
            labels[job.id] = f"{short[job.id]} #{number}"
    return labels


def _lines(
    charted: Sequence[JobSummary], jobs: Mapping[str, Job], labels: Mapping[str, str], most: int
) -> Mapping[str, JobLine]:
    """The lines by key: the colour is the job's, and no two lines have both its colour and its
    dashes as long as there are enough.
    """
    lines: dict[str, JobLine] = {}
    taken: set[tuple[int, int]] = set()
    for place, summary in enumerate(charted):
        verdicts = {verdict.candidate: verdict.verdict for verdict in summary.verdicts}
        arms = jobs[summary.id].arms[:most]
        keys = {arm.name: f"{place}.{arm.position}" for arm in arms}
        for arm in arms:
            colour = place % COLOURS
            dash = next(
                (
                    (len(lines) + more) % DASHES
                    for more in range(DASHES)
                    if (colour, (len(lines) + more) % DASHES) not in taken
                ),
                len(lines) % DASHES,
            )
            taken.add((colour, dash))
            is_baseline = arm.role == "baseline"
            lines[keys[arm.name]] = JobLine(
                job=summary.id,
                job_label=labels[summary.id],
                arm=arm.name,
                label=f"{labels[summary.id]} · {arm.name}",
                against=None if is_baseline else keys.get(arm.judged_against.name, f"{place}.0"),
                colour=colour,
                dash=dash,
                steps=max((run.steps_done for run in arm.runs), default=0),
                verdict=verdicts.get(arm.name),
            )
    return lines


def _lit(charted: Sequence[JobSummary], lines: Mapping[str, JobLine]) -> list[str]:
    """What is highlighted at first: every line, or of many the candidate that decides each of the
    first jobs.
    """
    if len(lines) <= STYLED:
        return [*lines]
    chosen = []
    for job in charted[:STYLED]:
        candidates = {line.arm: key for key, line in lines.items() if line.job == job.id}
        deciding = deciding_verdict(job.verdicts).candidate if job.verdicts else ""
        chosen.append(candidates.get(deciding) or [*candidates.values()][-1])
    return chosen


def _length(job: Job) -> int:
    """The steps that a job's lines take, as far as that is known."""
    return job.planned_steps or max(run.steps_done for arm in job.arms for run in arm.runs)


def _why_no_loss(job: Job, label: str, recorded: Collection[tuple[str, str]]) -> str:
    """Why a job has no curve of the loss."""
    if kind_of(job) is not None:
        return f"{label} is an analysis or a healing, whose curves are not compared here."
    if recorded:
        return f"{label} has no training losses; what it recorded is in the other charts."
    if job.status in JOB_OPEN:
        return f"{label} has not recorded a step yet."
    code = f" ({job.code})" if job.code else ""
    ended = {"failed": "failed", "cancelled": "was cancelled"}.get(job.status, "ended")
    return f"{label} {ended}{code} and has no curves: it recorded no step."
