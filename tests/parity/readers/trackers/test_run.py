"""A tracker's rows become columns by the rules of any file; its own step counts only where the
trainer logged none.
"""

import pytest

from parity.readers.columns.names import LOSS, STEP
from parity.readers.errors import ReadError
from parity.readers.trackers.run import columns_of_rows, first_line

COUNTER = "_step"


def columns(rows, **named_columns):
    return columns_of_rows(
        [{COUNTER: number, **row} for number, row in enumerate(rows)],
        named_columns,
        "wandb:a/b/c",
        COUNTER,
    )


def test_a_step_that_was_logged_counts_more_than_the_trackers():
    taken = columns(
        [
            {"train/loss": 3.0, "train/global_step": 10},
            {"eval/loss": 2.0},
            {"train/loss": 2.5, "train/global_step": 20},
        ]
    )
    assert (taken.names[STEP], taken.values[STEP].tolist()) == ("train/global_step", [10.0, 20.0])
    assert taken.values[LOSS].tolist() == [3.0, 2.5]


def test_the_trackers_step_where_the_run_logged_none():
    taken = columns([{"loss": 3.0}, {"loss": 2.5}])
    assert taken.values[STEP].tolist() == [0.0, 1.0]
    assert (
        "step is the tracker's own counter '_step': the run logged no step of its own"
        in taken.notes
    )


def test_the_trackers_step_on_request():
    taken = columns([{"loss": 3.0, "step": 5}, {"loss": 2.5, "step": 6}], step=COUNTER)
    assert taken.values[STEP].tolist() == [0.0, 1.0]
    assert taken.notes == ()


def test_a_step_that_some_rows_lack_is_refused_with_the_line_to_type():
    with pytest.raises(
        ReadError,
        match=r"1 rows with a loss have no 'global_step' \(first row 2\).*--column step=_step$",
    ):
        columns([{"loss": 3.0, "global_step": 0}, {"loss": 2.5}])


def test_histograms_and_tables_are_not_columns():
    taken = columns(
        [
            {"loss": 3.0, "grad_norm": {"_type": "histogram", "values": [1]}, "lr": 1.0},
            {"loss": "NaN", "lr": None},
        ]
    )
    assert set(taken.values) == {STEP, LOSS, "learning_rate"}
    assert repr(taken.values[LOSS].tolist()) == "[3.0, nan]"


def test_a_text_as_a_loss_is_refused():
    with pytest.raises(ReadError, match="row 2: 'loss' is 'bad'"):
        columns([{"loss": 3.0}, {"loss": "bad"}])


def test_an_error_of_the_system_is_its_reason():
    inner = ConnectionRefusedError(111, "Connection refused")
    outer = RuntimeError("API request failed with exception HTTPConnectionPool(...)")
    outer.__cause__ = inner
    assert first_line(outer) == "connection refused"
    assert first_line(ValueError("\n one \n two")) == "one"
    assert first_line(ValueError()) == "ValueError"
