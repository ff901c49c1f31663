"""Reads the whole record and says what is damaged: `python -m server.check`.

Every recorded step is read and compared with the checksum that it was written with, whether a
reader still needs it or a newer attempt replaced it. Nothing is changed.
"""

import argparse
import sys
from collections.abc import Iterator

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.wording import count
from server.database.metrics import replaced_steps, store
from server.database.sessions import Database, cannot_be_used
from server.database.states import RUN_ENDED
from server.database.tables import Chunk, Run, Verdict
from server.environment import settings_or_exit
from server.errors import DamagedError

_RUNS_AT_ONCE = 500


@frozen
class Damage:
    """A chunk that is not as it was written, or cannot be read: where it is, what is wrong, and
    what can be done.
    """

    run_id: str
    kind: str
    attempt_number: int
    first_step: int
    what: str
    remedies: tuple[str, ...]


@frozen
class Checked:
    """What was read of one run: how many chunks, how many of them have no checksum, and the
    damage.
    """

    chunks: int
    unchecked: int
    damage: tuple[Damage, ...]


def check(database: Database) -> Iterator[Checked]:
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
                yield _check_run(session, run_id)
        last = runs[-1]


def _check_run(session: Session, run_id: str) -> Checked:
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
        damage.append(
            Damage(
                run_id=run_id,
                kind=kind,
                attempt_number=attempt_number,
                first_step=first,
                what=what,
                remedies=remedies,
            )
        )
    return Checked(chunks=len(keys), unchecked=unchecked, damage=tuple(damage))


def _remedies(session: Session, run_id: str) -> tuple[str, ...]:
    """Where the same steps may still be, the best first."""
    run = session.get(Run, run_id)
    found = ["a backup of the database from before the damage has them (docs/operate.md)"]
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


def main(arguments: list[str] | None = None) -> int:
    """Print the damage, and how much was read; exits 1 if there is any, 2 if the database cannot be
    used.
    """
    about = (
        "Read every recorded step and compare it with its checksum. Exits 1 if any is damaged. "
        "Nothing is changed."
    )
    argparse.ArgumentParser(prog="python -m server.check", description=about).parse_args(arguments)
    database = Database(settings_or_exit().database, statement_seconds=3600)
    chunks = unchecked = damaged = 0
    try:
        for checked in check(database):
            chunks, unchecked, damaged = (
                chunks + checked.chunks,
                unchecked + checked.unchecked,
                damaged + len(checked.damage),
            )
            for damage in checked.damage:
                print("\n  ".join((damage.what, *damage.remedies)))
    except SQLAlchemyError as error:
        print(cannot_be_used(error), file=sys.stderr)
        return 2
    finally:
        database.close()
    if unchecked:
        without = f", {count(unchecked, 'chunk')} without a checksum, from before migration 0030"
    else:
        without = ""
    print(f"{count(chunks, 'chunk')} read, {damaged} damaged{without}", file=sys.stderr)
    return 1 if damaged else 0


if __name__ == "__main__":
    sys.exit(main())
