"""The judge's input for a job: the curves of its finished runs, its policy, plan and noise."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.noise.noise_table import NoiseTable, read_noise_table
from parity.judging.policy import Policy
from server.curves import judged_curves, layer_snr
from server.database.tables import Job, Run
from server.jobs import applied_statements
from server.jobs.fingerprint import job_spec
from server.jobs.imported_noise import named_noise_table
from server.jobs.noise_tables import borrowed_noise_table, family_in, family_of
from training.command import ENGINE as COMMAND
from training.command import Compared


def noise_table_of(session: Session, job: Job) -> NoiseTable | None:
    """The reruns from which a job borrows: fixed at submission, of a named family, or on record."""
    family = applied_statements.family(job)  # only a job without one can have stated it later
    if job.noise_table and family == applied_statements.family(job, late=False):
        return read_noise_table(job.noise_table)
    if family:
        return named_noise_table(session, family)
    return borrowed_noise_table(session, job, family_of(job))


def case_now(session: Session, job: Job, policy: Policy | None = None) -> Case:
    """The judge's input for a job as it would be judged now, with all that its owner has stated
    (`server.jobs.statements`).
    """
    return case_of(
        session, job, policy, noise_table_of(session, job) if job.statements else None, late=True
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
    policy, look = applied_statements.looks(job, policy, late=late)
    baseline, *candidates = job.arms

    def finished(runs: Sequence[Run]) -> list[Curve]:
        ended = [run for run in runs if run.state == "finished"]
        return applied_statements.applied(judged_curves.curves(session, ended), ended, late=late)

    if noise_table is None and job.noise_table:
        noise_table = read_noise_table(job.noise_table)
    family = (
        (applied_statements.family(job, late=late) or family_in(noise_table))
        if noise_table
        else None
    )
    return Case(
        baseline=finished(baseline.runs),
        candidates={arm.name: finished(arm.runs) for arm in candidates},
        policy=policy,
        controls=[
            judged_curves.curve(session, session.get_one(Run, run_id))
            for run_id in job.controls or ()
        ],
        planned_steps=applied_statements.planned_steps(job, late=late),
        layer_policy=job.spec.get("layer_policy"),
        baseline_name=baseline.name,
        compares=compared_of(job),
        against={
            arm.name: arm.judged_against.name
            for arm in candidates
            if arm.judged_against is not baseline
        },
        layer_snr_db={arm.name: layer_snr.late_values(session, arm) for arm in candidates},
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
