"""Frames, dicts and arrays as runs: nulls, NaN, evaluations, and what can be read in two ways."""

import numpy as np
import pandas as pd
import pytest

import parity
from parity.comparing.in_memory import curve_in_memory
from parity.comparing.statements import InputError
from parity.readers.errors import ReadError

STEPS = np.arange(40)
LOSS = 3.0 - STEPS / 100


def test_a_table_of_losses_alone_is_numbered_as_its_file_is():
    run = read({"loss": LOSS, "val_loss": LOSS + 0.1})
    assert run.steps.tolist() == [*range(1, 41)]
    assert any("rows are numbered from 1" in note for note in run.notes)


@pytest.mark.parametrize(
    ("baseline", "candidate"), [(LOSS, LOSS[:-1]), ({"loss": LOSS}, {"loss": LOSS[:-1]})]
)
def test_losses_without_steps_are_compared_with_as_many_alone(baseline, candidate):
    with pytest.raises(InputError, match=r"has 40 losses and .* has 39"):
        parity.compare(baseline, candidate)
    assert parity.compare(baseline, baseline).verdict == "inconclusive"


class PolarsLike:
    """The interface of a polars frame, as far as it is read: names, and columns with `to_numpy` and
    `is_null`.
    """

    class Column:
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return np.array([np.nan if value is None else value for value in self.values])

        def is_null(self):
            return [value is None for value in self.values]

    def __init__(self, columns):
        self.columns, self._values = list(columns), columns

    def __getitem__(self, name):
        return self.Column(self._values[name])


def read(data, **columns):
    return curve_in_memory(data, "candidate", columns)


def test_known_names_are_found_and_others_can_be_named():
    frame = pd.DataFrame(
        {
            "global_step": STEPS,
            "train/loss": LOSS,
            "grad_norm": 1.0,
            "when": pd.Timestamp("2026-01-01"),
            "ce": LOSS + 1,
        }
    )
    curve = read(frame)
    assert curve.loss.tolist() == LOSS.tolist()
    assert set(curve.columns) == {"grad_norm"}
    assert read(frame, loss="ce").loss.tolist() == (LOSS + 1).tolist()


def test_integers_as_names_of_columns_and_small_floats_are_read():
    assert (
        read({"step": STEPS.astype(np.int16), "loss": LOSS.astype(np.float16)}).loss.dtype
        == np.float64
    )
    frame = pd.DataFrame({0: STEPS, 1: LOSS})
    assert read(frame, step="0", loss="1").loss.tolist() == LOSS.tolist()


@pytest.mark.parametrize(
    "kind",
    [PolarsLike, lambda columns: pd.DataFrame(columns, dtype=object), dict],
    ids=["polars", "object", "dict"],
)
def test_a_null_is_an_empty_cell_and_its_evaluation_belongs_to_the_step_before(kind):
    loss = [None if step % 10 == 5 else float(value) for step, value in enumerate(LOSS)]
    validation = [2.0 if step % 10 == 5 else None for step in range(40)]
    curve = read(kind({"step": STEPS.tolist(), "loss": loss, "val_loss": validation}))
    assert len(curve.steps) == 36
    assert (
        np.flatnonzero(~np.isnan(curve.columns["validation_loss"])).tolist()
        == np.searchsorted(curve.steps, [4, 14, 24, 34]).tolist()
    )
    assert "4 rows without a loss, of evaluations: left out" in curve.notes


def test_nan_and_infinity_stay():
    loss = LOSS.copy()
    loss[[20, 30]] = np.nan, np.inf
    curve = read({"step": STEPS, "loss": loss})
    assert np.isnan(curve.loss[20])
    assert np.isinf(curve.loss[30])


@pytest.mark.parametrize("kind", [pd.DataFrame, dict], ids=["pandas", "dict"])
def test_na_of_pandas_is_nan_because_pandas_makes_it_of_nan(kind):
    loss = LOSS.copy()
    loss[20] = np.nan
    frame = {"step": pd.Series(STEPS, dtype="Int64"), "loss": pd.Series(loss).astype("Float64")}
    assert np.isnan(read(kind(frame)).loss[20])
    assert np.isnan(read(kind(frame | {"loss": frame["loss"].astype(object)})).loss[20])


def test_a_masked_loss_is_nan_and_not_read():
    masked = np.ma.MaskedArray(LOSS, mask=STEPS > 30)
    assert np.isnan(read({"step": STEPS, "loss": masked}).loss[31:]).all()
    assert np.isnan(read(masked).loss[31:]).all()


def test_a_row_of_an_evaluation_is_no_nan_and_a_trained_row_with_one_is():
    """A raw history frame: evaluations in rows of their own, or beside each loss."""
    apart = pd.DataFrame(
        {
            "step": STEPS,
            "loss": np.where(STEPS == 5, np.nan, LOSS),
            "val_loss": np.where(STEPS == 5, 2.0, np.nan),
        }
    )
    assert 5 not in read(apart).steps
    beside = pd.DataFrame(
        {"step": STEPS, "loss": np.where(STEPS == 39, np.nan, LOSS), "val_loss": LOSS}
    )
    assert np.isnan(read(beside).loss[39])


class LazyLike:
    columns = ("step", "loss")

    def collect(self):
        raise NotImplementedError


class OnAnotherDevice:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


REFUSED = {
    "a number": (3.0, TypeError, "expected a path"),
    "none": (None, TypeError, "NoneType"),
    "bytes": (b"step,loss", TypeError, "bytes"),
    "a generator": ((value for value in LOSS), TypeError, "generator"),
    "a series": (pd.Series(LOSS), TypeError, "without its steps"),
    "a lazy frame": (LazyLike(), TypeError, "collect"),
    "a tensor with a gradient": (OnAnotherDevice(), TypeError, "detach"),
    "two dimensions": (np.ones((3, 2)), ValueError, "one dimension"),
    "whole numbers": (np.arange(50), ValueError, "losses as floats"),
    "steps as floats": (np.arange(25.0), ValueError, "looks like steps"),
    "complex": (LOSS.astype(complex), ValueError, "as floats"),
    "no loss": ({"step": STEPS}, ReadError, "no loss column"),
    "no step": ({"n": STEPS, "loss": LOSS}, ReadError, 'columns={"step": "n"}'),
    "text": ({"step": STEPS, "loss": ["x"] * 40}, ValueError, "does not hold numbers"),
    "dates as steps": (
        {"step": np.array(["2026-01-01"] * 40, "M8"), "loss": LOSS},
        ValueError,
        "does not hold numbers",
    ),
    "unequal lengths": ({"step": STEPS, "loss": LOSS[:-1]}, ValueError, "different lengths"),
    "a scalar column": ({"step": STEPS, "loss": 2.0}, ValueError, "one dimension"),
    "half a step": ({"step": STEPS + 0.5, "loss": LOSS}, ReadError, "whole number"),
    "several runs": (
        {"step": STEPS, "loss": LOSS, "run_id": ["a"] * 20 + ["b"] * 20},
        ValueError,
        "2 runs",
    ),
    "a long table": (
        {"step": STEPS, "key": ["loss"] * 40, "value": LOSS},
        ValueError,
        "long table",
    ),
    "a perplexity": ({"step": STEPS, "loss": 100 + LOSS}, ReadError, "outside 0 to 30"),
    "an accuracy": ({"step": STEPS, "value": 1 - LOSS / 4}, ReadError, "accuracy"),
    "ranks mixed": (
        {"step": np.repeat(STEPS, 2), "loss": np.repeat(LOSS, 2) + np.tile([0, 0.1], 40)},
        ReadError,
        "mixed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_run_is_refused_by_name(name):
    data, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as refused:
        read(data)
    assert "candidate" in str(refused.value)
    assert "\n" not in str(refused.value)
