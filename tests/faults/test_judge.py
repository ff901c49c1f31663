"""Faults while a job is judged, and in what it is judged from: the verdict comes later, or not at
all, and never another one.

A few of the places by default, every one with `make test-faults`.
"""

import numpy as np
import pytest
from sqlalchemy import event, func, select, update

from server.database.tables import Chunk, ChunkColumn, Job, table_of
from server.jobs.conclude import conclude, conclude_each, judge_again
from tests.conftest import THOROUGH

pytestmark = pytest.mark.both_databases
FLIPS = 200 if THOROUGH else 4


class Failover:
    """Cuts the connection of the statement with this number, as the end of its server does; counts
    the statements from 1.
    """

    def __init__(self, database, owner_database, number):
        self.seen, self._number, self._owner, self._cut = 0, number, owner_database, None
        self._engine = database.engine
        event.listen(self._engine, "before_cursor_execute", self._before)

    def _before(self, connection, _cursor, _statement, _parameters, _context, _many):
        self.seen += 1
        if self.seen != self._number:
            return
        driver = connection.connection.driver_connection
        if connection.dialect.name == "sqlite":
            once = iter((1,))
            # the statement is interrupted, like one that meets a bad disk
            driver.set_progress_handler(lambda: next(once, 0), 1)
            self._cut = driver
            return
        with self._owner.read() as other:
            other.execute(select(func.pg_terminate_backend(driver.info.backend_pid)))

    def end(self):
        event.remove(self._engine, "before_cursor_execute", self._before)
        if self._cut is not None:
            self._cut.set_progress_handler(None, 1)


def _verdict(database, job_id):
    with database.read() as session:
        job = session.get_one(Job, job_id)
        return job.status, [
            (row.candidate, row.outcome, row.gap, row.ci_low, row.ci_high) for row in job.verdicts
        ]


def _undisturbed(database, recorded):
    job_id = recorded({"nvfp4": 0.05})
    assert conclude(database, job_id)
    status, verdicts = _verdict(database, job_id)
    assert status == "concluded"
    return verdicts


def test_a_failover_at_any_statement_of_the_judge_delays_the_same_verdict(
    database, owner_database, recorded
):
    expected = _undisturbed(database, recorded)
    count = Failover(database, owner_database, 0)
    conclude(database, recorded({"nvfp4": 0.05}))
    count.end()
    assert count.seen > 10
    places = range(1, count.seen + 1) if THOROUGH else sorted({3, count.seen // 2, count.seen - 1})
    for place in places:
        job_id = recorded({"nvfp4": 0.05})
        fault = Failover(database, owner_database, place)
        conclude_each(database, [job_id])
        fault.end()
        for _ in range(3):
            with owner_database.write() as session:
                session.execute(
                    update(Job).where(Job.id == job_id).values(judge_after=None, judging_until=None)
                )
            conclude_each(database, [job_id])
        assert _verdict(database, job_id) == ("concluded", expected), (
            f"statement {place} of {count.seen}"
        )


def test_no_flipped_bit_of_a_judged_curve_reaches_a_verdict(database, owner_database, recorded):
    expected = _undisturbed(database, recorded)
    job_id = recorded({"nvfp4": 0.05})
    rng = np.random.default_rng(11)
    with owner_database.read() as session:
        runs = [run.id for run in session.get_one(Job, job_id).runs]
        cells = [
            (table_of(Chunk), row)
            for row in session.execute(
                select(Chunk.run_id, Chunk.first_step, Chunk.payload, Chunk.attempt_number)
            )
        ]
        rows = select(
            ChunkColumn.run_id, ChunkColumn.first_step, ChunkColumn.payload, ChunkColumn.name
        )
        cells += [
            (table_of(ChunkColumn), row)
            for row in session.execute(rows.where(ChunkColumn.name == "lm_loss"))
        ]
    cells = [(table, row) for table, row in cells if row.payload is not None and row.run_id in runs]
    assert cells
    for _ in range(FLIPS):
        table, row = cells[rng.integers(len(cells))]
        conditions = [table.c.run_id == row.run_id, table.c.first_step == row.first_step]
        conditions += [table.c.name == row.name] if "name" in table.c else []
        flipped = bytearray(row.payload)
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
        _write(owner_database, table, conditions, bytes(flipped))
        assert conclude(database, job_id)
        with database.read() as session:
            job = session.get_one(Job, job_id)
            assert (job.status, job.code, job.verdicts) == ("failed", "RECORD_DAMAGED", [])
            assert row.run_id in job.message
        _write(owner_database, table, conditions, row.payload)
        with database.write() as session:
            judge_again(session, job_id)
    assert conclude(database, job_id)
    assert _verdict(database, job_id) == ("concluded", expected)


def _write(owner_database, table, where, payload):
    with owner_database.write() as session:
        session.connection().execute(update(table).where(*where).values(payload=payload))
