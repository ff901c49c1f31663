"""Concludes a job: judges its curves outside any write transaction, then writes its verdicts and
its end in one.
"""

import json
import logging
import math
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Literal, cast

from sqlalchemy import Row, Select, exists, or_, select, update
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from parity.extensions import lab
from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import Curve
from parity.judging.document_types import PathPointDocument, VerdictDocument
from parity.judging.gap.chances import chances_of
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_table import NoiseTable, read_noise_table
from parity.judging.policy import Policy
from parity.judging.verdict.path import path_of
from parity.judging.verdict.verdict import Verdict as Judged
from parity.report.words import BEST_FIRST, lead_of, with_words
from parity.structure import frozen
from parity.wording import count
from server.concurrency import Repeating
from server.curves import loading
from server.database import sessions
from server.database.sessions import Database, find_job
from server.database.states import (
    EARLY_STOP,
    JOB_ENDED,
    JOB_OPEN,
    JUDGE_FAILED,
    JUDGED_IN_VAIN,
    JUDGING_AGAIN,
    RECORD_DAMAGED,
    RUN_ENDED,
    RUN_OPEN,
)
from server.database.tables import Arm, Job, Run, Verdict, new_id
from server.errors import ConflictError, DamagedError
from server.jobs import forecasts, lifecycle, statements
from server.jobs.fingerprint import job_spec
from server.jobs.noise_tables import (
    family_in,
    family_of,
    keep_reruns,
    lent_noise_table,
    named_noise_table,
    reruns_of,
)
from server.logs import without_secrets
from server.records import of
from training.command import ENGINE as COMMAND
from training.command import Compared
from training.gemm_time import gemm_time
from training.rules import OTHERS_TRAINERS

_log = logging.getLogger(__name__)

# The verdicts of a job: the judge's documents, and a summary of each for a list.


@frozen
class VerdictSummary:
    """A verdict in a list of jobs: its lead, what decided it, gap, interval and margin in nats, and
    the gap as a share of the loss.
    """

    candidate: str
    verdict: Literal["pass", "fail", "inconclusive"]
    lead: str
    code: str | None
    gap_nats: float | None
    ci_low: float | None
    ci_high: float | None
    gap_rel: float | None
    margin_nats: float | None


def verdict_documents(job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    return [json.loads(row.document) for row in verdict_rows(job)]


def shown_documents(session: Session, job: Job) -> list[VerdictDocument]:
    """The verdicts of a job as a page shows one of them: with its path, where that was computed,
    the chances of one more pair, and the modelled GEMM time.
    """
    paths: dict[str, str | None] = {}
    if job.verdicts:
        rows = session.execute(
            select(Verdict.candidate, Verdict.path).where(Verdict.job_id == job.id)
        )
        paths = {row.candidate: row.path for row in rows}
    documents = verdict_documents(job)
    times = gemm_times(job) if documents else {}
    return [
        shown(document, json.loads(paths.get(name) or "null"), times.get(name))
        for document in documents
        for name in (document["candidate"]["name"],)
    ]


def shown(
    document: VerdictDocument, path: list[PathPointDocument] | None, modelled: float | None = None
) -> VerdictDocument:
    """A document with what is shown with it and is no part of the verdict: its path, and its
    modelled GEMM time, where they are known.
    """
    with_path: VerdictDocument = document if path is None else {**document, "path": path}
    told: VerdictDocument = with_words(
        {**with_path, "chances": chances_of(document), "gemm_time": modelled}
    )
    return told


def gemm_times(job: Job) -> Mapping[str, float]:
    """The modelled GEMM time of each candidate as a share of the baseline's; none where the model
    or a recipe is not known.
    """
    if job.engine in OTHERS_TRAINERS:
        return {}
    try:
        spec = job_spec(job)
        base = gemm_time(spec, spec.baseline)
        return {arm.name: gemm_time(spec, arm) / base for arm in spec.candidates}
    except ValueError:  # a recipe without a rate, or a specification that this version cannot read
        return {}


def path_or_none(verdict: Judged) -> list[PathPointDocument] | None:
    """The path of a verdict; None where computing it fails, which is logged."""
    try:
        return path_of(verdict)
    except Exception:  # noqa: BLE001
        _log.exception("the path of the verdict on %s could not be computed", verdict.candidate)
        return None


def verdict_rows(job: Job) -> list[Verdict]:
    """The verdicts of a job in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    return sorted(job.verdicts, key=lambda row: position[row.candidate])


def verdict_summary(
    row: Verdict | Row[*tuple[Any, ...]], document: str | None = None
) -> VerdictSummary:
    """The summary of a verdict, from its row or columns of it; numbers that were not measured, or
    are not finite, are None.

    The lead of a row that has none is computed from the document: that of the row, if it is not
    given.
    """
    lead = row.lead if row.lead is not None else lead_of(json.loads(document or row.document))
    return of(
        VerdictSummary,
        row,
        verdict=row.outcome,
        lead=lead,
        gap_nats=row.gap,
        margin_nats=row.margin,
    )


def _lead_or_none(document: Mapping[str, Any]) -> str | None:
    """The lead of a verdict; None where it cannot be told, which is logged."""
    try:
        return lead_of(cast("VerdictDocument", document))
    except Exception:  # noqa: BLE001
        _log.exception(
            "the lead of the verdict on %s could not be told", document["candidate"]["name"]
        )
        return None


# Kinds of jobs that the judge does not compare: what a worker measures for one, how it ends, and
# where its page is. The lab has them all.
#
# A job has such a kind if its run has: `Run.kind`. Nothing here imports the lab before a job of one
# is met.


@frozen
class Outcome:
    """How a job ends: its verdicts (each the judge's document and its canonical text), or the
    reason why it has none.

    `paths` are those of its verdicts, as JSON by candidate. `noise_table` are the groups of reruns
    from which the verdicts borrow, `reruns` those of the job itself. A job that is not judged may
    be `complete` without a verdict; `write` writes what it has instead.
    """

    verdicts: Sequence[tuple[Mapping[str, Any], str]] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    noise_table: NoiseTable | None = None
    reruns: NoiseTable | None = None
    code: str | None = None
    message: str | None = None
    complete: bool = False
    write: Callable[[Session], None] | None = None


@frozen
class Kind:
    """A kind of job without a verdict.

    `request`: what the training process of its run measures, as a document; None: the run trains
    like any other. `conclude`: how the job ends once its run has ended. `page`: the path of its
    page. `links`: what its document links to, beside what every job does.
    """

    request: Callable[[Session, Run], Mapping[str, object] | None]
    conclude: Callable[[Session, Job], Outcome]
    page: Callable[[Session, Job], str]
    links: Callable[[Session, Job], Mapping[str, str]]


def kind_of(job: Job) -> Kind | None:
    """The kind of a job; None for one that is judged, and where the lab is taken away."""
    name = job.runs[0].kind if job.runs else "full"
    module = lab().part("kinds") if name in lab().kinds else None
    if module is None:
        return None
    kind: Kind = module.KINDS[name]
    return kind


def needed_kind(job: Job) -> Kind:
    """The kind of a job that is not judged. Raises LookupError where the lab is taken away."""
    kind = kind_of(job)
    if kind is None:
        raise LookupError(
            f"job {job.id} has a run of kind {job.runs[0].kind}, which needs the lab; this "
            "installation has none"
        )
    return kind


# Concludes a job: judges its curves outside any write transaction, then writes its verdicts and its
# end in one.
#
# Whoever finds a job without an open run may conclude it: the worker that ended the last run, the
# housekeeper, and the API for runs that others train. Judging takes minutes for a large job, so the
# judge claims the job, and the others leave it alone while the claim is renewed. That spares work
# only: the end is a compare-and-set, so a judge that was silent for too long writes nothing.
#
# What fails for a reason that may pass is tried again: whatever the database refuses for as long as
# it takes, because no curve is to blame, and a lack of memory or of files `_MOST_TRIES` times. The
# job says so meanwhile (`JUDGING_AGAIN`). All else would fail again, and ends it.

_CLAIM_SECONDS = 30.0  # of silence, after which a judge is taken for dead
_RENEWALS = 3  # in that time
_one_at_a_time = threading.Lock()  # in this process: each job judged has all its curves in memory
_MOST_TRIES = 5
# after the second try, and at most; the second follows the first at once
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0
_OF_THE_DATABASE = (DBAPIError, PendingRollbackError, PoolTimeoutError)
_OF_THE_MACHINE = (MemoryError, OSError)


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
        now = sessions.now(session)
        if (
            session.scalar(
                select(Job.id).where(
                    Job.id == job_id, or_(Job.judging_until >= now, Job.judge_after > now)
                )
            )
            is not None
        ):
            return False
    with _one_at_a_time, _claimed(database, job_id) as is_ours:
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
        except Exception:  # noqa: BLE001
            _log.exception("job %s could not be concluded and will be tried again", job_id)
            again.add(job_id)
    return again


def claim(session: Session, job_id: str, judge: str) -> bool:
    """Claim an open job for a judge for a while, or renew its claim; False while another has it, or
    if the job has ended.
    """
    now = sessions.now(session)
    free = or_(Job.judging_until.is_(None), Job.judging_until < now, Job.judging_by == judge)
    claimed = update(Job).where(Job.id == job_id, Job.status.in_(JOB_OPEN), free)
    return (
        session.execute(
            claimed.values(judging_by=judge, judging_until=now + _CLAIM_SECONDS).returning(Job.id)
        ).first()
        is not None
    )


@contextmanager
def _claimed(database: Database, job_id: str) -> Iterator[bool]:
    """Whether the job is claimed, for as long as the block takes. An exception is noted, and gives
    it to the next who looks.
    """
    judge = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"

    def renew() -> bool:
        with database.write() as session:
            return claim(session, job_id, judge)

    if not renew():
        yield False
        return
    # Without its claim the job may be judged twice, and has one verdict all the same.
    keeper = Repeating(
        "judge's claim",
        renew,
        _CLAIM_SECONDS / _RENEWALS,
        f"the claim on job {job_id} could not be renewed",
    )
    keeper.start()
    try:
        yield True
    except BaseException as error:
        try:
            with database.write() as session:
                _give_back(session, job_id, judge, error)
        except Exception:  # noqa: BLE001
            _log.exception("job %s could not be judged, and that could not be noted", job_id)
        raise
    finally:
        keeper.close()


def _give_back(session: Session, job_id: str, judge: str, error: BaseException) -> None:
    """End a judge's claim; with an error that is not the end of its process, note it and when to
    try again.
    """
    job = session.get(Job, job_id, with_for_update=True)
    if job is None or job.judging_by != judge or job.status not in JOB_OPEN:
        return
    job.judging_until = None
    if not isinstance(error, Exception):
        return
    job.judge_tries += 1
    if job.judge_tries > 1:
        pause = min(
            _FIRST_PAUSE_SECONDS * 2.0 ** min(job.judge_tries - 2, 30), _LONGEST_PAUSE_SECONDS
        )
    else:
        pause = 0.0
    job.judge_after = sessions.now(session) + pause
    reason = str(error.orig) if isinstance(error, DBAPIError) else repr(error)
    job.code = JUDGING_AGAIN
    job.message = without_secrets(
        f"no verdict after {count(job.judge_tries, 'try', 'tries')}, and it is tried again: "
        f"{reason.strip():.500}"
    )
    _log.warning("job %s: %s, in %.0f s", job_id, job.message, pause)
    lifecycle.tell_changed(session, job)


def unjudged_jobs() -> Select[str]:
    """The open jobs without an open run, which wait for their verdict."""
    return select(Job.id).where(
        Job.status.in_(JOB_OPEN),
        ~Job.is_open,
        ~exists().where(Run.job_id == Job.id, Run.state.in_(RUN_OPEN)),
    )


def judge_again(session: Session, job_id: str) -> None:
    """Open a job again that only the judge failed on, so that it is judged and gets a verdict.
    ConflictError for any other.
    """
    find_job(session, job_id)
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    if not lifecycle.reopen_job(session, job):
        state = f"{job.status} ({job.code})" if job.code else job.status
        raise ConflictError(
            f"job {job_id} is {state}; expected one that failed with "
            f"{' or '.join(sorted(JUDGED_IN_VAIN))}"
        )


def _judge(database: Database, job_id: str) -> None:
    _look_at_the_end(database, job_id)
    with database.read() as session:
        tries = session.get_one(Job, job_id).judge_tries + 1
        try:
            outcome = decide(session, job_id)
        except _OF_THE_DATABASE:
            raise
        except DamagedError as error:
            _log.error("job %s could not be judged: %s", job_id, error)
            outcome = Outcome(code=RECORD_DAMAGED, message=error.detail)
        except Exception as error:
            if isinstance(error, _OF_THE_MACHINE) and tries < _MOST_TRIES:
                raise
            _log.exception("job %s could not be judged", job_id)
            outcome = Outcome(
                code=JUDGE_FAILED, message=f"judging failed, but the curves are kept: {error!r}"
            )
    with database.write() as session:
        session.get(Job, job_id, with_for_update=True)
        # the trainer of a silent run may have come back meanwhile
        if ready_to_conclude(session, job_id):
            write_outcome(session, job_id, outcome)


def _look_at_the_end(database: Database, job_id: str) -> None:
    """Complete the job's live forecast, which is only shown: a failure is logged."""
    try:
        forecasts.watch(database, job_id, at_the_end=True)
    except Exception:  # noqa: BLE001
        _log.exception("the last steps of job %s could not be forecast", job_id)


def ready_to_conclude(session: Session, job_id: str) -> bool:
    """True if every run of the job has ended, none is still to be added, and the job is not
    concluded yet.
    """
    job = session.get(Job, job_id)
    if job is None or job.is_open or job.status in JOB_ENDED:
        return False
    return (
        session.scalar(
            select(Run.id).where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED)).limit(1)
        )
        is None
    )


def decide(session: Session, job_id: str) -> Outcome:
    """Judge the finished runs of a job, without writing. If an arm has no finished run, there is no
    verdict.
    """
    job = session.get_one(Job, job_id)
    if not job.is_judged:
        return needed_kind(job).conclude(session, job)
    for arm in job.arms:
        if not any(run.state == "finished" for run in arm.runs):
            failed = next((run for run in arm.runs if run.state == "failed"), None)
            why = f"{failed.code}: {failed.message}" if failed else "it was cancelled"
            return Outcome(
                code=(failed and failed.code) or "CANCELLED",
                message=f"no run of arm {arm.name} finished: {why}",
            )
    noise_table = _noise_table_of(session, job)
    verdicts = case_of(session, job, noise_table=noise_table).verdicts()
    documents = [verdict.document() for verdict in verdicts]
    paths = {
        verdict.candidate: path
        for verdict in verdicts
        if (path := path_or_none(verdict)) is not None
    }
    stopped = next((run for run in job.runs if run.code == EARLY_STOP), None)
    return Outcome(
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


def settled(session: Session, job_id: str, known: Collection[str] = ()) -> list[VerdictDocument]:
    """The verdicts that no further run of the job can change: of each candidate whose runs have all
    ended, as have the baseline's.

    They share the error with the job's other candidates, whose number is fixed at submission, so
    the verdicts at the job's end are the same. The record gets them then; once all runs have ended
    there are none here. Candidates in `known` are left out, and nothing is judged if no other is
    settled.
    """
    job = session.get_one(Job, job_id)
    baseline, *candidates = job.arms
    ended = [arm for arm in candidates if arm.name not in known and _has_ended(arm)]
    if not ended or not _has_ended(baseline) or all(run.state in RUN_ENDED for run in job.runs):
        return []
    if any(arm.judged_against is not baseline for arm in candidates):
        return []
    whole = case_of(session, job, noise_table=_noise_table_of(session, job))
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


def _noise_table_of(session: Session, job: Job) -> NoiseTable | None:
    family = statements.family(job)  # only a job without one can have stated it later
    if job.noise_table and family == statements.family(job, late=False):
        return read_noise_table(job.noise_table)
    if family:
        return named_noise_table(session, family)
    return lent_noise_table(session, job, family_of(job))


def case_now(session: Session, job: Job, policy: Policy | None = None) -> Case:
    """The judge's input for a job as it would be judged now, with all that its owner has stated
    (`server.jobs.statements`).
    """
    return case_of(
        session, job, policy, _noise_table_of(session, job) if job.statements else None, late=True
    )


def case_of(
    session: Session,
    job: Job,
    policy: Policy | None = None,
    noise_table: NoiseTable | None = None,
    *,
    late: bool = False,
) -> Case:
    """The judge's input for a job: the curves of its finished runs, the policy (its own by default)
    and the plan.

    Its arms borrow from `noise_table`, by default from those of its verdicts: fixed at submission
    if the job names a family, else when it is judged. What its owner stated after its end counts if
    `late`; the recorded verdict is without it.
    """
    policy, look = statements.looks(job, policy, late=late)
    baseline, *candidates = job.arms

    def finished(runs: Sequence[Run]) -> list[Curve]:
        ended = [run for run in runs if run.state == "finished"]
        return statements.applied(loading.curves(session, ended), ended, late=late)

    if noise_table is None and job.noise_table:
        noise_table = read_noise_table(job.noise_table)
    family = (statements.family(job, late=late) or family_in(noise_table)) if noise_table else None
    return Case(
        baseline=finished(baseline.runs),
        candidates={arm.name: finished(arm.runs) for arm in candidates},
        policy=policy,
        controls=[
            loading.curve(session, session.get_one(Run, run_id)) for run_id in job.controls or ()
        ],
        planned_steps=statements.planned_steps(job, late=late),
        layer_policy=job.spec.get("layer_policy"),
        baseline_name=baseline.name,
        compares=compared_of(job),
        against={
            arm.name: arm.judged_against.name
            for arm in candidates
            if arm.judged_against is not baseline
        },
        layer_snr_db={arm.name: loading.snr_db(session, arm) for arm in candidates},
        short_reruns={
            arm.name: reruns for arm in job.arms if (reruns := finished(arm.short_reruns))
        },
        noise_table=noise_table,
        families={arm.name: family for arm in job.arms} if family else {},
        multiplicity=look,
    )


def compared_of(job: Job) -> dict[str, Compared]:
    """In what each candidate differs from the arm that it is judged against, where that is not the
    recipe.
    """
    if job.engine != COMMAND:
        return {}
    return {
        name: compared
        for name, (_, compared) in job_spec(job).comparisons().items()
        if compared != "recipe"
    }


def write_outcome(session: Session, job_id: str, outcome: Outcome) -> bool:
    """Write a job's verdicts and its end; False if another process ended it first."""
    now = sessions.now(session)
    rows = [_verdict_row(job_id, document, text, now) for document, text in outcome.verdicts]
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
    job.worst_gap = max((row.gap_rel for row in rows if row.gap_rel is not None), default=None)
    job.answer = min((row.outcome for row in rows), key=BEST_FIRST.index, default=None)
    if outcome.noise_table is not None:
        job.noise_table = outcome.noise_table.csv()
    keep_reruns(job, outcome.reruns)
    if outcome.write is not None:
        outcome.write(session)
    return True


def _verdict_row(job_id: str, document: Mapping[str, Any], text: str, now: float) -> Verdict:
    gap, margin = document.get("gap") or {}, document.get("margin") or {}
    return Verdict(
        id=new_id("v"),
        job_id=job_id,
        candidate=document["candidate"]["name"],
        outcome=document["verdict"],
        document=text,
        lead=_lead_or_none(document),
        code=document["codes"][0],
        gap=_finite(gap.get("mean")),
        ci_low=_finite(gap.get("lo")),
        ci_high=_finite(gap.get("hi")),
        gap_rel=_finite(gap.get("rel")),
        margin=_finite(margin.get("nats")),
        created_at=now,
    )


def _finite(number: float | str | None) -> float | None:
    """A number as lists show it; None if it was not measured or is not finite."""
    if number is not None and math.isfinite(float(number)):
        return float(number)
    return None


# The thread of an API process that judges a job once the last of its runs has ended by a request,
# so that no request waits for it.
#
# The housekeeping worker judges what this thread leaves behind when its process ends
# (`workers.runtime.EndedJobs`).

# until it looks again at a job that could not be judged, or that another judge has
_AGAIN_SECONDS = 10.0
_CLOSE_SECONDS = 2.0


class Judge:
    """Judges the jobs that it is woken for, one after another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._keep_judging, name="judge", daemon=True)

    def start(self) -> None:
        """Start to judge."""
        self._thread.start()

    def wake(self, job_id: str) -> None:
        """Judge this job soon, if all its runs have ended; returns at once. Safe to call at any
        time.
        """
        self._woken.put(job_id)

    def close(self) -> None:
        """Stop after the job that is judged now, for which it waits a moment."""
        self._woken.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _keep_judging(self) -> None:
        due: set[str] = set()
        while True:
            try:
                woken = self._woken.get(timeout=_AGAIN_SECONDS if due else None)
            except queue.Empty:
                pass
            else:
                if woken is None:
                    return
                due.add(woken)
            due = conclude_each(self._database, due)
