"""Writers share transactions: each gets its own result after its commit, and its own error only."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import OperationalError

from server.database.group_commit import GroupCommit


class Recorded:
    """Stands in for a database: which items were committed together. The first transaction waits until it is let go."""

    def __init__(self):
        self.committed, self.began, self.go = [], threading.Event(), threading.Event()

    @contextmanager
    def write(self):
        items = []
        self.began.set()
        assert self.go.wait(10)
        yield items
        self.committed.append(items)


def _group(database, errors=()):
    def write(items, group):
        for item in group:
            if item in errors:
                raise errors[item]
        items.extend(group)
        return [10 * item for item in group]

    return GroupCommit(database, write, key=lambda item: item % 100)


def _submitted(database, group, items):
    """The results (or errors) of items: the first alone, the others while it is being written."""

    def submit(item):
        try:
            return group.submit(item)
        except (ValueError, OperationalError) as error:
            return error

    with ThreadPoolExecutor(len(items)) as threads:
        first = threads.submit(submit, items[0])
        assert database.began.wait(10)
        others = [threads.submit(submit, item) for item in items[1:]]
        deadline = time.monotonic() + 10
        while len(group._queue) < len(others) and time.monotonic() < deadline:
            time.sleep(0.001)
        database.go.set()
        return [each.result(10) for each in (first, *others)]


def test_those_that_wait_share_the_next_transaction():
    database = Recorded()
    assert _submitted(database, _group(database), [*range(8)]) == [10 * item for item in range(8)]
    assert [sorted(items) for items in database.committed] == [[0], [*range(1, 8)]]


def test_two_of_a_key_are_never_in_one_transaction_and_all_are_written():
    database = Recorded()
    assert _submitted(database, _group(database), [0, 1, 101, 2, 201]) == [0, 10, 1010, 20, 2010]
    assert sorted(item for items in database.committed for item in items) == [0, 1, 2, 101, 201]
    assert all(len({item % 100 for item in items}) == len(items) for items in database.committed)


def test_an_error_of_one_is_no_error_of_the_others():
    database, wrong = Recorded(), ValueError("this one")
    assert _submitted(database, _group(database, {3: wrong}), [*range(6)]) == [0, 10, 20, wrong, 40, 50]
    assert sorted(item for items in database.committed for item in items) == [0, 1, 2, 4, 5]


def test_a_lost_connection_is_the_error_of_all_who_shared_it_and_of_nobody_later():
    database = Recorded()
    lost = {3: OperationalError("COMMIT", {}, Exception("lost"), connection_invalidated=True)}
    group = _group(database, lost)
    assert _submitted(database, group, [*range(6)]) == [0, *[lost[3]] * 5]
    lost.clear()
    assert group.submit(3) == 30


def test_a_leader_that_is_stopped_leaves_nobody_waiting():
    database = Recorded()
    group = _group(database, {0: KeyboardInterrupt()})
    database.go.set()
    with pytest.raises(KeyboardInterrupt):
        group.submit(0)
    assert group.submit(1) == 10
