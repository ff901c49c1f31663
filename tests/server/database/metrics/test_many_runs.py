"""Many runs at once: each has the very values that `store.read` gives of it alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from sqlalchemy import select

from server.database.metrics import chunk_tables, replaced_steps, store
from server.database.metrics.many_runs import read_each
from server.database.metrics.replaced_steps import superseded_in_each
from server.database.tables import Chunk, Run
from tests.conftest import some

pytestmark = pytest.mark.both_databases

NAMES = ("loss", "grad_norm", "never")
# Number of the run, kind, attempt, first step and stride of each write of 7 steps.
WRITES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["train", "validation"]),
        st.integers(1, 3),
        st.integers(0, 40),
        st.integers(1, 3),
    ),
    max_size=12,
)


def _runs(database, recorded):
    job = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, done=0, state="running")
    with database.read() as session:
        return [*session.scalars(select(Run.id).where(Run.job_id == job).order_by(Run.position))]


def _write(session, run, kind, attempt_number, first, stride, count=7, **others):
    values = np.random.default_rng([first, stride, attempt_number]).normal(size=count)
    store.append(
        session,
        run,
        kind,
        attempt_number,
        first + stride * np.arange(count),
        {"loss": values, **others},
    )


def _same(one, other):
    assert one[0].tolist() == other[0].tolist()
    assert [*one[1]] == [*other[1]]
    for name, values in one[1].items():
        assert values.tobytes() == other[1][name].tobytes()


@rules(max_examples=some(60))
@given(writes=WRITES, sealed=st.booleans())
def test_twin_of_reading_one_by_one(database, recorded, writes, sealed):
    runs = _runs(database, recorded)
    with database.write() as session:
        for at, kind, attempt_number, first, stride in writes:
            others = {"grad_norm": np.full(7, np.nan)} if attempt_number == 2 else {}
            _write(session, runs[at % len(runs)], kind, attempt_number, first, stride, **others)
        if sealed:
            for run, kind, attempt_number in {
                (runs[at % len(runs)], kind, attempt_number)
                for at, kind, attempt_number, _, _ in writes
            }:
                store.seal(session, run, kind, attempt_number)
    with database.read() as session:
        for kind in ("train", "validation"):
            for run, whole in zip(runs, read_each(session, runs, kind, NAMES), strict=True):
                _same(whole, store.read(session, run, kind, NAMES))
            limits = superseded_in_each(session, runs, kind)
            assert limits == {
                run: own
                for run in runs
                if (own := replaced_steps.superseded_from(session, run, kind))
            }


def test_large_chunks_keep_a_row_for_each_column(database, recorded):
    first, second, *_ = _runs(database, recorded)
    count = 2 * chunk_tables.SEALED_STEPS
    with database.write() as session:
        for run in (first, second):
            _write(session, run, "train", 1, 0, 1, count, grad_norm=np.ones(count))
            _write(session, run, "train", 2, count - 5, 1)
        assert (
            session.scalars(select(Chunk.payload).where(Chunk.attempt_number == 1)).first() is None
        )
    with database.read() as session:
        for run, whole in zip(
            (second, first), read_each(session, (second, first), "train", NAMES), strict=True
        ):
            assert len(whole[0]) == count + 2
            _same(whole, store.read(session, run, "train", NAMES))


def test_a_reused_curve_is_read_from_its_source(database, recorded):
    source, reuser, other, *_ = _runs(database, recorded)
    with database.write() as session:
        _write(session, source, "train", 1, 0, 1)
        session.get_one(Run, reuser).reused_from = source
    with database.read() as session:
        original, reused, empty = read_each(session, [source, reuser, other], "train", NAMES)
    _same(original, reused)
    assert (len(reused[0]), len(empty[0]), empty[1]["loss"].shape) == (7, 0, (0,))
