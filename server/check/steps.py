"""Is every recorded step as it was written, whether a reader still needs it or a newer attempt
replaced it?
"""

from collections.abc import Iterator

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from server.check.damage import BACKUP, Checked, Damage
from server.database.metrics import replaced_steps, store
from server.database.sessions import Database
from server.database.states import RUN_ENDED
from server.database.tables import Chunk, Run, Verdict
from server.errors import DamagedError

_RUNS_AT_ONCE = 500


def check_steps(database: Database) -> Iterator[Checked]:
    """Read the record run by run, in the order of their ids, each in a transaction of its own."""
    last = ""
    while True:
        with database.read() as session:
            # Of chunks too: it may be the id that changed.
            pages = (
                select(run_id_column)
                .where(run_id_column > last)
                .distinct()
                .order_by(run_id_column)
                .limit(_RUNS_AT_ONCE)
                for run_id_column in (Run.id, Chunk.run_id)
            )
            runs = sorted({run_id for page in pages for run_id in session.scalars(page)})[
                :_RUNS_AT_ONCE
            ]
        if not runs:
            return
        for run_id in runs:
            with database.read() as session:
                yield check_run(session, run_id)
        last = runs[-1]


def check_run(session: Session, run_id: str) -> Checked:
    """Read every chunk of a run, also those of attempts that are replaced."""
    is_of_run = (Chunk.run_id == run_id,)
    unchecked = (
        session.scalar(select(func.count()).where(*is_of_run, Chunk.checksum.is_(None))) or 0
    )
    keys = session.execute(
        select(Chunk.kind, Chunk.attempt_number, Chunk.first_step, Chunk.last_step).where(
            *is_of_run
        )
    ).all()
    limits: dict[str, dict[int, float]] = {
        kind: replaced_steps.superseded_from(session, run_id, kind) for kind, *_ in keys
    }
    damage = []
    for kind, attempt_number, first, last in sorted(
        (key.kind, key.attempt_number, key.first_step, key.last_step) for key in keys
    ):
        piece = store.Piece(
            attempt_number=attempt_number, first_step=first, last_step=max(first, last), count=1
        )
        where = f"run {run_id}, {kind}, attempt {attempt_number}, the chunk from step {first}"
        try:
            if store.load(session, run_id, kind, [piece]):
                what = ""
            else:
                what = f"{where}: its last step changed since it was recorded, to {last}"
        except SQLAlchemyError:
            raise
        except DamagedError as error:
            what = error.detail
        except Exception as error:  # noqa: BLE001
            what = f"{where}: it cannot be unpacked ({error!r:.200})"
        if not what:
            continue
        remedies = _remedies(session, run_id)
        if first >= limits[kind].get(attempt_number, -1):
            remedies = (
                (
                    "a newer attempt replaced these steps: nobody needs them, unless the attempt's "
                    "number is what changed"
                ),
                *remedies,
            )
        damage.append(Damage(what=what, remedies=remedies))
    return Checked(kind="chunk", pieces=len(keys), unchecked=unchecked, damage=tuple(damage))


def _remedies(session: Session, run_id: str) -> tuple[str, ...]:
    """Where the same steps may still be, the best first."""
    run = session.get(Run, run_id)
    found = [BACKUP]
    if run is None:
        return (*found, "no run has this id: another run lacks these steps")
    if run.fingerprint is not None:
        equal = select(Run.id).where(
            Run.fingerprint == run.fingerprint,
            Run.id != run_id,
            Run.state == "finished",
            Run.reused_from.is_(None),
        )
        twins = session.scalars(equal.order_by(Run.id.desc()).limit(3)).all()
        if twins:
            found.append(f"an equal run has its own curve: {', '.join(twins)}")
    if run.capability == "external":
        spool = "the spool of its trainer (PARITY_SPOOL) has them, where it was kept"
        found.append(
            spool
            if run.state in RUN_ENDED
            else f"{spool}; the run is {run.state.replace('_', ' ')}"
        )
    if session.scalar(select(Verdict.id).where(Verdict.job_id == run.job_id).limit(1)) is not None:
        found.append(
            f"the recorded verdict of job {run.job_id} stands; an evidence bundle of it "
            "(evidence.zip) has the judged columns"
        )
    found.append(f"parity again {run.job_id} trains the job again")
    return tuple(found)
