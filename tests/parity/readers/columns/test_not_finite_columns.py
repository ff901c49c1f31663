"""A column that counts losses that were not finite is believed in every format."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from parity.comparing.compare import compare
from parity.judging.curves.curve import SAID_NOT_FINITE
from parity.readers import read_run
from parity.readers.columns.not_finite_columns import counts_not_finite, rows_not_finite
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table

COUNTS = [
    *("nan_loss", "loss_nan_count", "loss_is_nan", "losses not finite", "train/nan_losses"),
    *("num_nan", "nan_count", "nan_iterations", "number of nan iterations", "skipped_nan_steps"),
    *("has_nan", "n_nonfinite", "non_finite_count", "inf_losses", "loss_nan_or_inf", "any_nan"),
    *("lm_loss_is_nan", "reduced_train_loss_nan", "learning/nan_count", "lossIsNaN", "numNaNs"),
    *("nan_iters", "nan_batch", "nan_skips", "consecutive_nan", "loss_infinite"),
]
OTHERS = [
    *("found_inf", "grad_nan_count", "grad_nan", "nan", "inf", "num_inf", "val_nan_count"),
    *("nan_policy", "skipped_iterations", "loss_scale", "grad/nan_count", "finite"),
    *("activation_nan_count", "eval/nan_count", "output_nan_count", "loss_not_nan"),
    *("non_nan_loss", "num_non_nan", "log_nan_loss", "num_finite_losses", "not_inf_loss"),
]
STEPS = 40


def rows(column, values):
    """The rows of a run of which a column says something of its last three steps."""
    return [
        {"step": step, "loss": 3.0 - step / 100, column: values[step >= STEPS - 3]}
        for step in range(STEPS)
    ]


def write_csv(path, records):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*records[0]])
        writer.writeheader()
        writer.writerows(records)


def write_json_lines(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")


def write_parquet(path, records):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), path)


def write_npz(path, records):
    arrays = {name: np.array([record[name] for record in records]) for name in records[0]}
    np.savez(path, **arrays)


WRITERS = {
    "run.csv": write_csv,
    "run.jsonl": write_json_lines,
    "run.parquet": write_parquet,
    "run.npz": write_npz,
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_name_of_a_count_of_losses_that_are_not_finite(name):
    assert counts_not_finite(name)
    assert rows_not_finite(name, np.array([0.0, np.nan, 2.0, 3.0])) == 2


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_count_something_else(name):
    assert rows_not_finite(name, np.array([0.0, 2.0, 3.0])) == 0


@pytest.mark.parametrize("file", WRITERS)
@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("num_nan", (0, 1), "3"),
        ("nan_loss", (0, 2), "3"),
        ("loss_is_nan", (False, True), "3"),
        ("loss_is_finite", (True, False), "3"),
        ("num_nan", (0, 0), None),
        ("loss_is_nan", (False, False), None),
        ("loss_is_finite", (True, True), None),
        ("loss_is_nan", ("False", "True"), "3"),
        ("num_nan", (0, -1), None),
        ("num_finite_losses", (0, 5), None),
        ("found_inf", (0, 1), None),
        ("grad_nan_count", (0, 1), None),
    ],
)
def test_rows_that_say_so_are_counted_in_each_format(file, column, values, said, tmp_path: Path):
    path = tmp_path / file
    if file == "run.npz" and isinstance(values[0], str):
        values = tuple(value == "True" for value in values)  # an archive has no text
    WRITERS[file](path, rows(column, values))
    run = read_run(str(path))
    assert len(run.steps) == STEPS
    assert run.context.get(SAID_NOT_FINITE) == said


@pytest.mark.parametrize(("value", "said"), [("True", "3"), ("False", None)])
def test_a_table_of_arms_tells_whose_rows_say_so(value, said, tmp_path: Path):
    path = tmp_path / "runs.csv"
    records = [
        {"arm": arm} | row
        for arm, flag in (("fp8", "False"), ("nvfp4", value))
        for row in rows("loss_is_nan", ("False", flag))
    ]
    write_csv(path, records)
    arms = read_run_table(str(path), RunTable(arm="arm"))
    found = {
        name: [run.context.get(SAID_NOT_FINITE) for run in runs] for name, runs in arms.items()
    }
    assert found == {"fp8": [None], "nvfp4": [said]}


@pytest.mark.parametrize(("value", "said"), [(float("nan"), None), (2, "1")])
def test_a_record_without_a_step_says_so_too_and_nan_is_no_count(value, said, tmp_path: Path):
    for name, write in (("run.csv", write_csv), ("run.jsonl", write_json_lines)):
        records = rows("num_nan", (0, 0))
        records.insert(20, {"step": None, "loss": None, "num_nan": value})
        write(tmp_path / name, records)
        assert read_run(str(tmp_path / name)).context.get(SAID_NOT_FINITE) == said


def test_each_row_of_a_step_counts(tmp_path: Path):
    records = [dict(row) for row in rows("num_nan", (0, 0)) for _ in range(2)]
    records[40]["num_nan"] = 1
    write_csv(tmp_path / "run.csv", records)
    assert read_run(str(tmp_path / "run.csv")).context.get(SAID_NOT_FINITE) == "1"


@pytest.mark.parametrize(("flags", "said"), [((False, True), "3"), ((False, False), None)])
def test_flags_in_memory_are_believed(flags, said):
    records = rows("loss_is_nan", flags)
    table = {name: np.array([row[name] for row in records]) for name in records[0]}
    compared = compare(table, {**table, "loss": table["loss"] + 0.001}, planned_steps=STEPS)
    assert (compared.case.candidates["candidate"][0].context.get(SAID_NOT_FINITE)) == said
