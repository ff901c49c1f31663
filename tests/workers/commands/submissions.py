"""What tests of submitted runs look up: runs, attempts and submissions on record."""

from sqlalchemy import select, update

from server.database.tables import Attempt, Run, Submission
from server.jobs import lifecycle
from tests.workers.commands.conftest import STEPS, head_of
from workers import reconcile


def run_states(service):
    with service.database.read() as session:
        return sorted((run.arm.name, run.state, run.code) for run in session.scalars(select(Run)))


def all_ended(service):
    return lambda: all(
        state in ("finished", "failed", "cancelled") for _, state, _ in run_states(service)
    )


def submissions_of(service):
    with service.database.read() as session:
        return session.scalars(
            select(Submission).order_by(Submission.run_id, Submission.number)
        ).all()


def waits_at_the_gate(service):
    return lambda: [service.run(row.run_id).steps_done for row in submissions_of(service)] == [10]


def only_row(service):
    (row,) = submissions_of(service)
    return row


def attempt_states(service, run_id):
    with service.database.read() as session:
        return session.scalars(
            select(Attempt.state).where(Attempt.run_id == run_id).order_by(Attempt.attempt_number)
        ).all()


def expire_leases(service):
    """Let all leases end, as if their worker had been killed a while ago, and give the runs
    back.
    """
    with service.database.write() as session:
        session.execute(update(Run).where(Run.state == "running").values(lease_expires_at=1.0))
    reconcile.give_back_expired(service.settings, service.database)


def submit_one(service, base, **more):
    """A job whose second run is of no use here: it is cancelled."""
    service.submit(base, head_of(base, "quantized", "nvfp4"), **more)
    with service.owner_database.write() as session:
        run = next(run for run in session.scalars(select(Run)) if run.arm.name == "quantized")
        lifecycle.cancel(session, run)


def run_of_arm(service, arm):
    with service.database.read() as session:
        return next(run.id for run in session.scalars(select(Run)) if run.arm.name == arm)


def whole_losses(service, run_id):
    steps, columns = service.steps(run_id)
    assert steps.tolist() == list(range(STEPS))
    return columns["lm_loss"].tobytes()
