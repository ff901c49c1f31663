"""One attempt at a run on record: its manifest, which may end it, its steps, notes and end."""

import threading
from collections.abc import Callable, Mapping
from functools import partial

from sqlalchemy.orm import Session

from server.database.sessions import Database
from server.database.states import ENDED_EARLY
from server.database.tables import Job, Run
from server.jobs.data_digests import record_data
from server.jobs.fingerprint import fingerprint_of, named_baseline_mismatch
from server.jobs.lifecycle import BrokenAttempt
from server.settings import Settings
from training.command import ENGINE as COMMAND
from training.command import PINNED
from training.switches import Rounding
from workers import lease
from workers.lease import Claim
from workers.patience import Patience, Result
from workers.recorder import StepRecorder

# The judge reads from its curve that a run diverged, has a gap, is short or goes on: it is
# finished.
CODES_OF_FINISHED_RUNS = ("DIVERGED", "METRICS_GAP", "STEPS_ABOVE_PLAN", *ENDED_EARLY)


class AttemptRecord(Patience):
    """What one attempt at a claimed run reads and writes, whoever trains it; each read and write
    waits for a database that is away.
    """

    def __init__(
        self, settings: Settings, database: Database, claim: Claim, stopping: threading.Event
    ) -> None:
        super().__init__(settings, database, stopping)
        self._settings = settings
        self._claim = claim
        self.recorder = StepRecorder(database, claim, settings.lease_seconds)
        self.has_crashed = False

    def record_manifest(self, manifest: Mapping[str, str], rounding: Rounding | None) -> bool:
        """Record the manifest; True if that ends the run, by reuse of an equal run's curve or by a
        mismatch with the job's baseline.
        """
        if self.written(partial(self._write_manifest, manifest, rounding)):
            return True
        difference = self.read(
            lambda session: named_baseline_mismatch(
                session.get_one(Job, self._claim.job_id), manifest
            )
        )
        if difference is not None:
            self.written(partial(lease.fail_with_job, claim=self._claim, reason=difference))
        return difference is not None

    def _write_manifest(
        self, manifest: Mapping[str, str], rounding: Rounding | None, session: Session
    ) -> bool:
        """Write the manifest; True if the run ended with the curve of an equal run, or because its
        launcher is another one now.
        """
        claim, fingerprint = self._claim, fingerprint_of(self._claim.spec, manifest)
        if changed := _changed_launcher(session.get_one(Run, claim.run_id), manifest):
            lease.fail(session, claim, code="LAUNCHER_CHANGED", message=changed)
            return True
        lease.renew(
            session,
            claim,
            self._settings.lease_seconds,
            manifest=manifest,
            fingerprint=fingerprint,
            rounding=rounding,
        )
        lease.note(session, claim, fingerprint=fingerprint)
        record_data(session, claim.spec, claim.run_id, manifest)
        # the launcher does not say which libraries it has
        if claim.spec.engine == COMMAND and PINNED not in manifest:
            return False
        return lease.finish_with_equal_run(session, claim, fingerprint)

    def note(self, text: str) -> None:
        """Note a sentence for readers of the attempt."""
        self.fenced(partial(lease.note, claim=self._claim, message=text))

    def finish(self, code: str | None = None, message: str | None = None) -> None:
        """Write the last steps, and end the run with its curve."""
        self.write_last_steps()
        self.written(partial(lease.finish, claim=self._claim, code=code, message=message))

    def fail(self, code: str, message: str) -> None:
        """Write the last steps, and fail the run."""
        self.write_last_steps()
        self.written(partial(lease.fail, claim=self._claim, code=code, message=message))

    def give_back(self, why: str, attempt: BrokenAttempt) -> None:
        """Queue the run again, or fail it after too many crashes."""
        self.has_crashed = attempt == "crashed"
        self.written(partial(self.give_back_in, why=why, attempt=attempt))

    def give_back_in(self, session: Session, why: str, attempt: BrokenAttempt) -> bool:
        """The same in a transaction of the caller's; False if this worker no longer holds the
        run.
        """
        run = session.get_one(Run, self._claim.run_id, with_for_update=True)
        is_held = lease.is_held(session, run, self._claim)
        if is_held:
            lease.give_back(
                session, run, why, attempt=attempt, max_attempts=self._settings.max_attempts
            )
        return is_held

    def forgive(self) -> None:
        """Do not count the loss of this attempt as a crash of the run."""
        self.written(partial(lease.forgive, claim=self._claim))

    def flush(self) -> None:
        """Write what was collected, and renew the lease."""
        self.retried(self.recorder.flush)

    def write_last_steps(self) -> None:
        """Write what was collected, and merge the chunks of the attempt."""
        self.flush()
        self.retried(self.recorder.seal)

    def fenced(self, change: Callable[[Session], Result]) -> Result:
        """Make a change in one transaction behind the fence of the run: LeaseLostError, without a
        change, if this worker no longer holds it.
        """

        def write(session: Session) -> Result:
            lease.renew(session, self._claim, self._settings.lease_seconds)
            return change(session)

        return self.written(write)


def _changed_launcher(run: Run, manifest: Mapping[str, str]) -> str | None:
    """Why a run whose recorded steps another version of its launcher trained cannot go on; None if
    it can.
    """
    before, now = ((document or {}).get("launcher_digest") for document in (run.manifest, manifest))
    if not run.steps_done or before is None or before == now:
        return None
    return (
        f"launcher {manifest['launcher']} changed after step {run.steps_done - 1:,} of this run "
        f"({before[:12]} then, {str(now)[:12]} now), "
        "and a curve of two launchers says nothing of either; submit the job again"
    )
