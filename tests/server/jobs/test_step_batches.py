"""Steps from outside: whatever their order, duplication and batching, the read curve is the same,
bit for bit.
"""

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from sqlalchemy import func, select

from server.database.metrics import store
from server.database.tables import Chunk, Run
from server.jobs import step_batches
from server.jobs.step_batches import DifferentError
from tests.conftest import some

pytestmark = pytest.mark.both_databases

# Any 64 bits: NaNs with a payload and a sign among them.
ANY_BITS = st.integers(0, 2**64 - 1).map(
    lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]
)


@pytest.fixture
def run(database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.read() as session:
        return session.scalars(
            select(Run.id).where(Run.job_id == job).order_by(Run.position)
        ).first()


def _merge(database, run, attempt_number, steps, values):
    with database.write() as session:
        return step_batches.merge(
            session,
            run,
            "train",
            attempt_number,
            np.array(steps),
            {"loss": np.array(values, np.float64)},
        )


@st.composite
def _deliveries(draw):
    """A curve, and the batches in which it arrives: shuffled, overlapping, some twice, every step
    in one of them.
    """
    values = draw(st.lists(ANY_BITS, min_size=1, max_size=24))
    stride = draw(st.integers(1, 3))
    indices = st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=12)
    sent = draw(st.lists(indices, max_size=6))
    rest = draw(st.permutations(range(len(values))))
    cut = draw(st.integers(0, len(values)))
    sent = draw(
        st.permutations([*sent, *sent[:2], *[part for part in (rest[:cut], rest[cut:]) if part]])
    )
    return [stride * index for index in range(len(values))], values, sent


@rules(max_examples=some(60))
@given(delivery=_deliveries(), attempt_number=st.integers(1, 10**6))
def test_any_order_batching_and_repetition_give_the_same_curve(
    database, run, delivery, attempt_number
):
    steps, values, sent = delivery
    with database.write() as session:
        session.query(Chunk).delete()
    new = sum(
        _merge(database, run, attempt_number, [steps[i] for i in batch], [values[i] for i in batch])
        for batch in sent
    )
    assert new == len(steps)
    with database.read() as session:
        at, columns = store.read(session, run, "train")
        chunks = session.execute(
            select(Chunk.first_step, Chunk.last_step).order_by(Chunk.first_step)
        ).all()
    assert at.tolist() == steps
    assert columns["loss"].tobytes() == np.array(values, np.float64).tobytes()
    assert all(one.last_step < following.first_step for one, following in pairwise(chunks))


def test_other_numbers_for_a_recorded_step_are_refused_and_nothing_is_written(database, run):
    _merge(database, run, 1, [0, 1, 2], [1.0, 2.0, np.nan])
    for values in ([9.0, 7.0], [np.nan, 7.0]):
        with pytest.raises(DifferentError, match="step 1 is already recorded with another loss"):
            _merge(database, run, 1, [1, 3], values)
    with pytest.raises(DifferentError, match="step 5"):
        _merge(database, run, 1, [5, 5], [1.0, 2.0])
    with database.read() as session:
        assert store.read(session, run, "train")[0].tolist() == [0, 1, 2]
    # A column that is new for a recorded step is another number too: it was NaN.
    with pytest.raises(DifferentError, match="another speed"), database.write() as session:
        step_batches.merge(
            session,
            run,
            "train",
            1,
            np.array([1]),
            {"loss": np.array([2.0]), "speed": np.array([3.0])},
        )


def test_attempts_do_not_touch_each_other(database, run):
    _merge(database, run, 1, range(10), [1.0] * 10)
    assert _merge(database, run, 2, range(6, 8), [2.0] * 2) == 2
    with database.read() as session:
        assert store.read(session, run, "train")[1]["loss"].tolist() == [1.0] * 6 + [2.0] * 2
        assert [
            (one.first_step, one.last_step, one.count)
            for one in step_batches.ranges(session, run, "train")
        ] == [(0, 5, 6), (6, 7, 2)]


def test_large_batches_are_cut_and_chunks_stay_few(database, run):
    values = np.random.default_rng(0).normal(size=10_000)
    _merge(database, run, 1, range(0, 10_000, 2), values[::2])
    _merge(database, run, 1, range(1, 10_000, 2), values[1::2])
    with database.read() as session:
        assert store.read(session, run, "train")[1]["loss"].tobytes() == values.tobytes()
        assert session.scalar(select(func.count()).select_from(Chunk)) == 3
        steps, part = store.read_range(session, run, "train", 4000, 4200)
    assert steps.tolist() == list(range(4000, 4201))
    assert part["loss"].tobytes() == values[4000:4201].tobytes()
