"""Which comparisons are one job; the rest of `--push` is tried against a server
(tests/server/test_push.py).
"""

import numpy as np

import parity
from parity.comparing import push


def key(**candidate):
    steps = np.arange(40)
    run = {"step": steps, "loss": 3.0 - steps / 100}
    case = parity.compare(
        run, run | {"loss": run["loss"] + 0.01} | candidate, planned_steps=40
    ).case
    return push._key({}, {}, case)


def test_other_columns_are_another_job():
    rates = np.full(40, 1e-3)
    assert key(lr=rates) == key(learning_rate=rates)
    assert len({key(), key(lr=rates), key(lr=2 * rates), key(val_loss=rates)}) == 4
