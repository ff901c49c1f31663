"""Concludes a job: judges its curves outside any write transaction, then writes its verdicts and
its end in one.

Whoever finds a job without an open run may conclude it: the worker that ended the last run, the
housekeeper, and the API for runs that others train. Judging takes minutes for a large job, so the
judge claims the job, and the others leave it alone while the claim is renewed. That spares work
only: the end is a compare-and-set, so a judge that was silent for too long writes nothing.

What fails for a reason that may pass is tried again: whatever the database refuses for as long as
it takes, because no curve is to blame, and a lack of memory or of files `_MOST_TRIES` times. The
job says so meanwhile (`JUDGING_AGAIN`). All else would fail again, and ends it.
"""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from sqlalchemy import ColumnElement, Select, and_, exists, select
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from parity.judging.document_types import VerdictDocument
from parity.judging.multiplicity import Multiplicity
from server.concurrency.failures import log_failure
from server.database import clock
from server.database.lookups import find_job
from server.database.sessions import Database
from server.database.states import (
    EARLY_STOP,
    HELD_KINDS,
    JOB_ENDED,
    JOB_OPEN,
    JUDGE_FAILED,
    JUDGED_IN_VAIN,
    RECORD_DAMAGED,
    RUN_ENDED,
    RUN_OPEN,
)
from server.database.tables import Arm, Job, Run
from server.errors import ConflictError, DamagedError
from server.jobs import evaluations, forecasts, lifecycle
from server.jobs.job_kinds import JobOutcome, needed_kind
from server.jobs.judge_claim import claimed, is_held
from server.jobs.judge_input import case_of, noise_table_of
from server.jobs.noise_tables import keep_reruns, reruns_of
from server.jobs.verdict_rows import job_lead, new_verdict_row, path_or_none

_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()  # in this process: each job judged has all its curves in memory
_MOST_TRIES = 5
_DATABASE_ERRORS = (DBAPIError, PendingRollbackError, PoolTimeoutError)
_MACHINE_ERRORS = (MemoryError, OSError)


def conclude(database: Database, job_id: str) -> bool:
    """Judge a job and write its verdicts, if all its runs have ended and it is not concluded yet.
    Safe to call at any time.

    False if another judge has the job now, and will write its verdicts, or if it could not be
    judged and rests until it is tried again; if that judge has died, or the rest is over, who calls
    this again later judges it. Raises what kept it from being judged this time.
    """
    with database.read() as session:
        if not ready_to_conclude(session, job_id):
            return True
        held = select(Job.id).where(Job.id == job_id, is_held(clock.now(session)))
        if session.scalar(held) is not None:
            return False
    with _one_at_a_time, claimed(database, job_id) as is_ours:
        if is_ours:
            _judge(database, job_id)
        return is_ours


def conclude_each(database: Database, job_ids: Iterable[str]) -> set[str]:
    """Conclude these jobs; returns those that could not be, or that another judge has, to be looked
    at again.
    """
    again = set()
    for job_id in job_ids:
        try:
            if not conclude(database, job_id):
                again.add(job_id)
        except Exception as error:  # noqa: BLE001
            log_failure(_log, error, f"job {job_id} could not be concluded and will be tried again")
            again.add(job_id)
    return again


def unjudged_jobs() -> Select[str]:
    """The open jobs without an open run, which wait for their verdict."""
    return select(Job.id).where(
        Job.status.in_(JOB_OPEN),
        ~Job.is_open,
        ~exists().where(Run.job_id == Job.id, Run.state.in_(RUN_OPEN), ~is_held_back()),
    )


def is_held_back() -> ColumnElement[bool]:
    """Whether a run awaits what other runs of its job show, and may never be trained."""
    return and_(Run.state == "awaiting_data", Run.kind.in_(HELD_KINDS))


def judge_again(session: Session, job_id: str) -> None:
    """Open a job again that only the judge failed on, or whose recorded verdict is damaged, so that
    it is judged and gets a verdict. ConflictError for any other.
    """
    find_job(session, job_id)
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    if not lifecycle.reopen_job(session, job):
        state = f"{job.status} ({job.code})" if job.code else job.status
        raise ConflictError(
            f"job {job_id} is {state}; expected one that failed with "
            f"{' or '.join(sorted(JUDGED_IN_VAIN))}, or whose recorded verdict is damaged"
        )


def _judge(database: Database, job_id: str) -> None:
    _look_at_the_end(database, job_id)
    with database.read() as session:
        tries = session.get_one(Job, job_id).judge_tries + 1
        try:
            outcome = decide(session, job_id)
        except _DATABASE_ERRORS:
            raise
        except DamagedError as error:
            _log.error("job %s could not be judged: %s", job_id, error)
            outcome = JobOutcome(code=RECORD_DAMAGED, message=error.detail)
        except Exception as error:
            if isinstance(error, _MACHINE_ERRORS) and tries < _MOST_TRIES:
                raise
            _log.exception("job %s could not be judged", job_id)
            outcome = JobOutcome(
                code=JUDGE_FAILED, message=f"judging failed, but the curves are kept: {error!r}"
            )
    with database.write() as session:
        held_back = select(Run.id).where(Run.job_id == job_id, is_held_back()).order_by(Run.id)
        session.execute(held_back.with_for_update()).all()  # runs before their job
        session.get(Job, job_id, with_for_update=True)
        # the trainer of a silent run may have come back meanwhile
        if ready_to_conclude(session, job_id):
            write_outcome(session, job_id, outcome)


def _look_at_the_end(database: Database, job_id: str) -> None:
    """Complete the job's live forecast, which is only shown: a failure is logged."""
    try:
        forecasts.watch(database, job_id, at_the_end=True)
    except Exception as error:  # noqa: BLE001
        log_failure(_log, error, f"the last steps of job {job_id} could not be forecast")


def ready_to_conclude(session: Session, job_id: str) -> bool:
    """True if every run of the job has ended or is held back, none is still to be added, and the
    job is not concluded yet.
    """
    job = session.get(Job, job_id)
    if job is None or job.is_open or job.status in JOB_ENDED:
        return False
    return (
        session.scalar(
            select(Run.id)
            .where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED), ~is_held_back())
            .limit(1)
        )
        is None
    )


def decide(session: Session, job_id: str) -> JobOutcome:
    """Judge the finished runs of a job, without writing. If an arm has no finished run, there is no
    verdict.
    """
    job = session.get_one(Job, job_id)
    if job.has_evaluations:
        return evaluations.outcome_of(evaluations.case_of(session, job))
    if not job.is_judged:
        return needed_kind(job).conclude(session, job)
    for arm in job.arms:
        if not any(run.state == "finished" for run in arm.runs):
            failed = next((run for run in arm.runs if run.state == "failed"), None)
            why = f"{failed.code}: {failed.message}" if failed else "it was cancelled"
            return JobOutcome(
                code=(failed and failed.code) or "CANCELLED",
                message=f"no run of arm {arm.name} finished: {why}",
            )
    noise_table = noise_table_of(session, job)
    verdicts = case_of(session, job, noise_table=noise_table).verdicts()
    documents = [verdict.document() for verdict in verdicts]
    paths = {
        verdict.candidate: path
        for verdict in verdicts
        if (path := path_or_none(verdict)) is not None
    }
    stopped = next((run for run in job.runs if run.code == EARLY_STOP), None)
    return JobOutcome(
        verdicts=[
            (document, json.dumps(document, sort_keys=True, allow_nan=False))
            for document in documents
        ],
        paths={candidate: json.dumps(path, allow_nan=False) for candidate, path in paths.items()},
        noise_table=noise_table,
        reruns=reruns_of(session, job),
        code=stopped.code if stopped else None,
        message=stopped.message if stopped else None,
    )


def _go_on(session: Session, job_id: str, call_up: Callable[[Session], None]) -> None:
    """Let an open job go on with runs that it held back."""
    job = session.get_one(Job, job_id)
    call_up(session)
    job.code = job.message = job.judging_by = job.judging_until = job.judge_after = None
    job.judge_tries = 0
    lifecycle.tell_changed(session, job)


def settled(session: Session, job_id: str, judged: Collection[str] = ()) -> list[VerdictDocument]:
    """The verdicts that no further run of the job can change: of each candidate whose runs have all
    ended, as have the baseline's.

    They share the error with the job's other candidates, whose number is fixed at submission, so
    the verdicts at the job's end are the same. The record gets them then; once all runs have ended
    there are none here. Candidates in `judged` are left out, and nothing is judged if no other is
    settled.
    """
    job = session.get_one(Job, job_id)
    baseline, *candidates = job.arms
    ended = [arm for arm in candidates if arm.name not in judged and _has_ended(arm)]
    if not ended or not _has_ended(baseline) or all(run.state in RUN_ENDED for run in job.runs):
        return []
    if any(arm.judged_against is not baseline for arm in candidates):
        return []
    whole = case_of(session, job, noise_table=noise_table_of(session, job))
    part = replace(
        whole,
        candidates={arm.name: whole.candidates[arm.name] for arm in ended},
        short_reruns={
            arm.name: whole.short_reruns[arm.name]
            for arm in (baseline, *ended)
            if arm.name in whole.short_reruns
        },
        families={
            arm.name: whole.families[arm.name]
            for arm in (baseline, *ended)
            if arm.name in whole.families
        },
        multiplicity=whole.multiplicity
        or Multiplicity(looks=whole.policy.looks, candidates=len(candidates)),
    )
    return part.documents()


def _has_ended(arm: Arm) -> bool:
    """Whether no run of the arm is still to come, and the judge can read at least one."""
    return all(run.state in RUN_ENDED for run in (*arm.runs, *arm.short_reruns)) and any(
        run.state == "finished" for run in arm.runs
    )


def write_outcome(session: Session, job_id: str, outcome: JobOutcome) -> bool:
    """Write a job's verdicts and its end, or call up its further runs; False if another process
    ended it first.
    """
    now = clock.now(session)
    if outcome.further is not None:
        _go_on(session, job_id, outcome.further)
        return True
    rows = [new_verdict_row(job_id, document, text, now) for document, text in outcome.verdicts]
    for row in rows:
        row.path = outcome.paths.get(row.candidate)
    outcomes = {row.candidate: row.outcome for row in rows}
    end: lifecycle.JobEnd = "concluded" if rows or outcome.complete else "failed"
    if not lifecycle.end_job(
        session, job_id, end, code=outcome.code, message=outcome.message, verdicts=outcomes
    ):
        return False
    session.add_all(rows)
    job = session.get_one(Job, job_id)
    job.judging_by = job.judging_until = None
    job.answer, job.worst_gap = lifecycle.listed_answer(rows)
    job.lead = job_lead([document for document, _ in outcome.verdicts])
    if outcome.noise_table is not None:
        job.noise_table = outcome.noise_table.csv()
    keep_reruns(job, outcome.reruns)
    if outcome.write is not None:
        outcome.write(session)
    return True
