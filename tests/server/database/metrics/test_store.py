"""The metrics store: bit for bit, idempotent, and one attempt a step."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from sqlalchemy import event, select

from server.database.metrics import store
from server.database.metrics.many_runs import read_each
from server.database.tables import Run
from tests.conftest import some

pytestmark = pytest.mark.both_databases

ANY_FLOAT = st.floats(width=64, allow_nan=True, allow_infinity=True)


def _append(database, run, kind, attempt_number, first, values):
    steps = np.arange(first, first + len(values))
    with database.write() as session:
        store.append(
            session, run, kind, attempt_number, steps, {"loss": np.array(values, np.float64)}
        )


def _read(database, run, kind="train"):
    with database.read() as session:
        steps, columns = store.read(session, run, kind)
    return steps.tolist(), columns.get("loss", np.empty(0))


def _a_run(database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.read() as session:
        return session.scalars(
            select(Run.id).where(Run.job_id == job).order_by(Run.position)
        ).first()


@rules(max_examples=some(60))
@given(values=st.lists(ANY_FLOAT, min_size=1, max_size=50), attempt_number=st.integers(1, 10**6))
def test_every_bit_comes_back(database, recorded, values, attempt_number):
    run = _a_run(database, recorded)
    _append(database, run, "train", attempt_number, 0, values)
    steps, loss = _read(database, run)
    assert steps == list(range(len(values)))
    assert loss.tobytes() == np.array(values, np.float64).tobytes()


def test_a_repeated_chunk_changes_nothing(database, recorded):
    run = _a_run(database, recorded)
    for _ in range(2):
        _append(database, run, "train", 1, 0, [1.0, 2.0])
    assert _read(database, run)[0] == [0, 1]


def test_the_newest_attempt_wins_from_its_first_step_on(database, recorded):
    run = _a_run(database, recorded)
    _append(database, run, "train", 1, 0, [1.0] * 4)
    _append(database, run, "train", 1, 4, [1.0] * 4)
    _append(database, run, "train", 2, 6, [2.0] * 2)
    _append(database, run, "train", 3, 2, [3.0] * 3)
    steps, loss = _read(database, run)
    # Attempt 3 resumed at step 2: nothing of attempts 1 and 2 from there on is left, even where 3
    # has not come yet.
    assert steps == [0, 1, 2, 3, 4]
    assert loss.tolist() == [1.0, 1.0, 3.0, 3.0, 3.0]


def test_kinds_do_not_mix_and_missing_columns_are_nan(database, recorded):
    run = _a_run(database, recorded)
    _append(database, run, "train", 1, 0, [1.0])
    _append(database, run, "validation", 1, 0, [9.0])
    assert _read(database, run)[1].tolist() == [1.0]
    with database.read() as session:
        _, columns = store.read(session, run, "train", ["loss", "absent"])
    assert math.isnan(columns["absent"][0])


def test_a_newer_attempt_leaves_nothing_of_any_kind_from_the_branch_that_it_left(
    database, recorded
):
    run = _a_run(database, recorded)
    _append(database, run, "train", 1, 0, [1.0] * 10)
    for step in (3, 6, 9):
        _append(database, run, "validation", 1, step, [step])
    _append(database, run, "train", 2, 5, [2.0] * 3)
    # 6 and 9 were validated by weights that no run has any more
    assert _read(database, run, "validation")[0] == [3]
    _append(database, run, "validation", 2, 7, [7.0])
    assert _read(database, run, "validation")[0] == [3, 7]
    assert _read(database, run)[0] == list(range(8))


def test_a_run_without_records_is_empty(database, recorded):
    steps, loss = _read(database, _a_run(database, recorded))
    assert steps == []
    assert loss.size == 0


def test_sealing_keeps_every_bit_and_leaves_few_chunks(database, recorded):
    run = _a_run(database, recorded)
    values = np.random.default_rng(0).normal(size=9000)
    values[17] = np.nan
    for first in range(0, 9000, 90):
        _append(database, run, "train", 1, first, values[first : first + 90])
    for _ in range(2):
        with database.write() as session:
            assert store.seal(session, run, "train", 1) == 3
    steps, loss = _read(database, run)
    assert steps == list(range(9000))
    assert loss.tobytes() == values.tobytes()


def test_sealing_leaves_other_attempts_alone(database, recorded):
    run = _a_run(database, recorded)
    for first in (0, 2):
        _append(database, run, "train", 1, first, [1.0, 1.0])
        _append(database, run, "train", 2, first + 1, [2.0, 2.0])
    before = _read(database, run)
    with database.write() as session:
        store.seal(session, run, "train", 2)
    assert _read(database, run)[0] == before[0]
    assert _read(database, run)[1].tolist() == before[1].tolist() == [1.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize(
    "read", [store.read, lambda session, run, kind: next(read_each(session, [run], kind, ["loss"]))]
)
def test_a_curve_that_is_sealed_while_it_is_read(database, recorded, read, after):
    """A reader's statements may see another writer's commits in between."""
    run = _a_run(database, recorded)
    values = np.random.default_rng(0).normal(size=store.SMALL_CHUNKS * 20)
    for first in range(0, len(values), 10):
        _append(database, run, "train", 1, first, values[first : first + 10])
    statements = 0

    def seal(_connection, _cursor, statement, *_):
        nonlocal statements
        statements += "chunks" in statement and statement.startswith("SELECT")
        if statements == after:
            statements += 1  # the seal's own are not counted
            with database.write() as session:
                store.seal(session, run, "train", 1)
            statements += 1000

    event.listen(database.engine, "after_cursor_execute", seal)
    try:
        with database.read() as session:
            steps, columns = read(session, run, "train")
    finally:
        event.remove(database.engine, "after_cursor_execute", seal)
    assert steps.tolist() == list(range(len(values)))
    assert columns["loss"].tobytes() == values.tobytes()
