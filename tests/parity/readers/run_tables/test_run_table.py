"""Tables of many runs: arms and runs by column, or one line about what is wrong with them."""

import gzip
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves.curve import SAID_NOT_FINITE, Curve
from parity.readers.errors import ReadError
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.runs import MAX_ARMS

LAYOUT = {"arm": "precision", "run": ("system", "run"), "step": "samples", "loss": "eval_loss_nats"}
STEPS = (1000, 2000, 3000)

READ = {"loss_name": "eval_loss_nats", "loss_meaning": "held-out loss"}
"""What the reader records of the loss that it took."""

Row = dict[str, Any]


def rows() -> list[Row]:
    """Two arms of runs 0 to 2 on two systems: the loss is 3 - step / 10,000, plus 0.1 in the second
    arm and 0.01 per run.
    """
    table = []
    for arm, worse in (("FP8", 0.0), ("NVFP4", 0.1)):
        for run in range(3):
            for step in STEPS:
                loss = round(3.0 - step / 10_000 + worse + run / 100, 6)
                system = f"{arm.lower()}/node{run % 2}"
                row = {
                    "system": system,
                    "precision": arm,
                    "run": run,
                    "seed": 7 + run,
                    "samples": step,
                    "eval_loss_nats": loss,
                }
                table.append(row)
    return table


def csv_of(table: Sequence[Mapping[str, object]], delimiter: str = ",") -> str:
    lines = [delimiter.join(table[0]), *(delimiter.join(map(str, row.values())) for row in table)]
    return "\n".join(lines) + "\n"


def write(folder: Path, text: str, name: str = "curves.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def read(
    folder: Path, table: Sequence[Mapping[str, object]], **layout: Any
) -> dict[str, list[Curve]]:
    return read_run_table(write(folder, csv_of(table)), RunTable(**{**LAYOUT, **layout}))


def shape(arms: Mapping[str, Sequence[Curve]]) -> dict[str, list[tuple[object, ...]]]:
    """Everything of the curves that a judge sees."""
    return {
        arm: [
            (
                run.label,
                run.seed,
                run.replicate,
                run.steps.tolist(),
                run.loss.tolist(),
                dict(run.context),
            )
            for run in runs
        ]
        for arm, runs in arms.items()
    }


def test_each_arm_has_its_runs(tmp_path: Path) -> None:
    arms = read(tmp_path, rows())
    assert list(arms) == ["FP8", "NVFP4"]
    assert [run.label for run in arms["NVFP4"]] == [
        "nvfp4/node0/0",
        "nvfp4/node0/2",
        "nvfp4/node1/1",
    ]
    second = arms["NVFP4"][2]
    assert second.steps.tolist() == list(STEPS)
    assert second.loss.tolist() == pytest.approx([3.01, 2.91, 2.81])
    assert second.context == {"system": "nvfp4/node1"} | READ
    assert second.notes == ("loss read from 'eval_loss_nats', step from 'samples'",)
    assert [(run.seed, run.replicate) for run in arms["FP8"]] == [(0, 0), (0, 1), (0, 2)]


def test_every_kind_of_table_gives_the_same_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows()
    expected = shape(read(tmp_path, table))
    texts = {
        "runs.tsv": csv_of(table, "\t"),
        "runs.jsonl": "".join(json.dumps(row) + "\n" for row in table),
        "runs.json": json.dumps(table),
    }
    for name, text in texts.items():
        assert shape(read_run_table(write(tmp_path, text, name), RunTable(**LAYOUT))) == expected
    with gzip.open(tmp_path / "runs.csv.gz", "wt") as stream:
        stream.write(csv_of(table))
    assert shape(read_run_table(str(tmp_path / "runs.csv.gz"), RunTable(**LAYOUT))) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(csv_of(table).encode())))
    assert shape(read_run_table("-", RunTable(**LAYOUT))) == expected
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: [row[name] for row in table] for name in table[0]}
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), tmp_path / "runs.parquet")
    assert shape(read_run_table(str(tmp_path / "runs.parquet"), RunTable(**LAYOUT))) == expected


@settings(max_examples=30)
@given(order=st.permutations(range(len(rows()))))
def test_the_order_of_the_rows_changes_nothing(
    order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, table = tmp_path_factory.mktemp("shuffled"), rows()
    shuffled = read(folder, [table[index] for index in order], seed="seed")
    assert shape(shuffled) == shape(read(folder, table, seed="seed"))


def test_runs_come_in_natural_order(tmp_path: Path) -> None:
    table = [
        {"arm": arm, "run": f"r{run}", "step": 1, "loss": 2.0} for run in (10, 2, 1) for arm in "ab"
    ]
    arms = read_run_table(write(tmp_path, csv_of(table)), RunTable(arm="arm", run=("run",)))
    assert [run.label for run in arms["a"]] == ["r1", "r2", "r10"]


def test_a_run_of_one_name_may_be_in_both_arms_and_an_arm_may_have_one_run(tmp_path: Path) -> None:
    table = [
        {"arm": arm, "run": "x", "step": step, "loss": 2.0 + step}
        for arm in "ab"
        for step in (1, 2)
    ]
    arms = read_run_table(write(tmp_path, csv_of(table)), RunTable(arm="arm", run=("run",)))
    assert {arm: [run.label for run in runs] for arm, runs in arms.items()} == {
        "a": ["x"],
        "b": ["x"],
    }


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ((5, 5, 9), [(5, 0), (5, 1), (9, 0)]),
        (("b", "a", "a"), [(1, 0), (0, 0), (0, 1)]),
        ((1.5, 10.5, 2.5), None),
    ],
)
def test_seeds_are_whole_numbers_or_numbered(
    seeds: tuple[object, ...], expected: list[tuple[int, int]] | None, tmp_path: Path
) -> None:
    table = [{**row, "seed": seeds[row["run"]]} for row in rows()]
    arms = read(tmp_path, table, seed="seed", run=("run",))
    assert [(run.seed, run.replicate) for run in arms["FP8"]] == (
        expected or [(0, 0), (2, 0), (1, 0)]
    )
    assert [run.seed for run in arms["FP8"]] == [run.seed for run in arms["NVFP4"]]


def test_conditions_and_kept_columns_become_context(tmp_path: Path) -> None:
    """Well-known conditions that are constant in the run are recorded, a host name under the key
    that confounds nothing.
    """
    table = [
        {
            **row,
            "GPU": "B200",
            "Hostname": f"n{row['run']}",
            "driver": row["samples"],
            "site": "x y",
        }
        for row in rows()
    ]
    first = read(tmp_path, table, keep=("site",))["FP8"][0]
    assert (
        first.context == {"site": "x y", "system": "fp8/node0", "gpu": "B200", "host": "n0"} | READ
    )


def test_other_quantities_come_along(tmp_path: Path) -> None:
    table = [
        {**row, "learning_rate": 0.5, "val_loss": "" if row["samples"] == STEPS[0] else 3.5}
        for row in rows()
    ]
    first = read(tmp_path, table)["FP8"][0]
    assert first.columns["learning_rate"].tolist() == [0.5] * 3
    assert np.isnan(first.columns["validation_loss"]).tolist() == [True, False, False]


def test_rows_without_a_loss_are_left_out_and_counted(tmp_path: Path) -> None:
    """An evaluation's row has no training loss; it belongs to the step before it."""
    table = [{**row, "val_loss": ""} for row in rows()]
    table.insert(2, {**table[1], "samples": 2500, "eval_loss_nats": "", "val_loss": 3.25})
    first = read(tmp_path, table)["FP8"][0]
    assert first.steps.tolist() == list(STEPS)
    assert first.columns["validation_loss"].tolist()[1] == 3.25
    assert first.notes[1] == "1 row without a loss, of other metrics: left out"


def test_a_loss_that_is_not_finite_stays(tmp_path: Path) -> None:
    table = rows()
    table[1]["eval_loss_nats"] = "nan"
    assert np.isnan(read(tmp_path, table)["FP8"][0].loss).tolist() == [False, True, False]


def test_a_loss_column_may_be_called_anything_and_is_no_other_quantity_then(tmp_path: Path) -> None:
    table = [{**row, "eval_loss": row["eval_loss_nats"]} for row in rows()]
    assert "validation_loss" not in read(tmp_path, table, loss="eval_loss")["FP8"][0].columns


COLUMNS = (
    (
        {"arm": "precison"},
        ("no column 'precison' for the arm", "'eval_loss_nats'", "did you mean 'precision'?"),
    ),
    ({"run": ("sistem",)}, ("no column 'sistem' for the run", "did you mean 'system'?")),
    ({"run": ()}, ("run FP8 of FP8 has step 1,000 twice", "--run-by run")),
    ({"step": "sample"}, ("no column 'sample' for the step", "did you mean 'samples'?")),
    ({"loss": "loss"}, ("no column 'loss' for the loss",)),
    ({"seed": "seeds"}, ("no column 'seeds' for the seed",)),
    ({"keep": ("rack",)}, ("no column 'rack' for the cluster",)),
    ({"step": None}, ("no step column among", "--step samples")),
    ({"loss": None}, ("no loss column among", "--loss eval_loss_nats")),
    ({"arm": "one"}, ("'one' has one value, 'x'",)),
    ({"loss": "samples"}, ("'samples' was given for the step and for the loss",)),
    ({"loss": "precision"}, ("'precision' was given for the loss and for the arm",)),
    ({"keep": ("precision",)}, ("'precision' names the arm",)),
    ({"seed": "precision"}, ("'precision' names the arm",)),
    (
        {"keep": ("note",)},
        ("'odd' and 'even' in the column 'note'", "expected one value per run", "--run-by"),
    ),
    ({"seed": "note"}, ("'odd' and 'even' in the column 'note'",)),
    ({"loss": "seed"}, ("run fp8/node0/0 of FP8", "outside 0 to 30 nats", "--loss eval_loss_nats")),
    ({"loss": "note"}, ("line 2", "'odd' in the column 'note'", "expected a number")),
    ({"step": "note"}, ("line 2", "'odd' in the column 'note'")),
    (
        {"step": "eval_loss_nats", "loss": "samples"},
        ("line 2", "step 2.9 is not a whole number", "--step samples"),
    ),
)


@pytest.mark.parametrize(("layout", "words"), COLUMNS, ids=lambda value: str(value)[:40])
def test_a_wrong_column_is_one_line(
    layout: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    table = [
        {**row, "one": "x", "seed": 700, "note": "even" if row["samples"] % 2000 == 0 else "odd"}
        for row in rows()
    ]
    with pytest.raises(ReadError) as refused:
        read(tmp_path, table, **layout)
    assert "\n" not in str(refused.value)
    assert all(word in str(refused.value) for word in words), str(refused.value)


CELLS = (
    ({"precision": ""}, ("line 3", "'precision' is empty")),
    ({"run": " "}, ("line 3", "'run' is empty")),
    ({"samples": ""}, ("line 3", "nothing in the column 'samples'")),
    ({"samples": "1_000"}, ("line 3", "'1_000' in the column 'samples'")),
    ({"samples": -5}, ("line 3", "step -5.0 is not a whole number")),
    (
        {"samples": 1000},
        (
            "has step 1,000 twice (lines 2 and 3)",
            "expected one row per run and step",
            "they differ in no column",
        ),
    ),
    ({"samples": 1000, "seed": 99}, ("twice (lines 2 and 3)", "also differ in 'seed'", "--run-by")),
    ({"eval_loss_nats": "low"}, ("line 3", "'low' in the column 'eval_loss_nats'")),
)


@pytest.mark.parametrize(("cells", "words"), CELLS, ids=lambda value: str(value)[:40])
def test_a_wrong_cell_is_one_line(
    cells: dict[str, object], words: tuple[str, ...], tmp_path: Path
) -> None:
    table = rows()
    table[1] |= cells
    with pytest.raises(ReadError) as refused:
        read(tmp_path, table)
    assert "\n" not in str(refused.value)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_columns_that_do_not_tell_runs_apart(tmp_path: Path) -> None:
    table = [{**row, "run": 0, "precision_from": "log"} for row in rows()]
    with pytest.raises(
        ReadError, match=r"run 0 of FP8 has step 1,000 twice .*also differ in 'system', 'seed'"
    ):
        read(tmp_path, table, run=("run",))


@pytest.mark.parametrize("column", ["seed", "Run_ID"])
def test_rows_of_two_runs_at_other_steps_are_not_one_run(column: str, tmp_path: Path) -> None:
    """Two runs that were evaluated at other steps never repeat one, so their names decide."""
    table = [{**row, column: row["samples"]} for row in rows() if row["run"] == 0]
    with pytest.raises(
        ReadError, match=f"'1000' and '2000' in the column '{column}'; .*add {column} to --run-by"
    ):
        read(tmp_path, table)
    assert len(read(tmp_path, table, run=("system", column))["FP8"]) == len(STEPS)


def test_a_run_without_any_loss_is_not_dropped(tmp_path: Path) -> None:
    lost = [
        {**row, "eval_loss_nats": "" if row["run"] == 1 and row["precision"] == "FP8" else 3.0}
        for row in rows()
    ]
    with pytest.raises(
        ReadError, match=r"line 5: .*no loss in the column 'eval_loss_nats'; .*write nan"
    ):
        read(tmp_path, lost)
    table = [{**row, "learning_rate": 0.1} for row in lost]
    with pytest.raises(ReadError, match="line 5: run fp8/node1/1 of FP8 has no loss"):
        read(tmp_path, table)


def test_too_many_values_are_not_arms(tmp_path: Path) -> None:
    table = [{"arm": arm, "run": 0, "step": 1, "loss": 2.0} for arm in range(MAX_ARMS + 1)]
    with pytest.raises(ReadError, match=r"has 21 values .*expected 2 to 20 arms"):
        read_run_table(write(tmp_path, csv_of(table)), RunTable(arm="arm", run=("run",)))
    assert (
        len(read_run_table(write(tmp_path, csv_of(table[:-1])), RunTable(arm="arm", run=("run",))))
        == MAX_ARMS
    )


def test_two_runs_that_would_have_one_label(tmp_path: Path) -> None:
    table = [
        {"arm": arm, "a": a, "b": b, "step": 1, "loss": 2.0}
        for arm in "xy"
        for a, b in (("1/2", "3"), ("1", "2/3"))
    ]
    with pytest.raises(ReadError, match="2 runs of x are called '1/2/3'"):
        read_run_table(write(tmp_path, csv_of(table)), RunTable(arm="arm", run=("a", "b")))


def test_values_of_several_metrics_are_not_one_loss(tmp_path: Path) -> None:
    """Metrics that are logged at different steps never repeat one, so the names of the metrics
    decide.
    """
    table = [
        {"arm": arm, "run_id": "r", "key": key, "value": value, "step": step}
        for arm in "ab"
        for key, value, step in (("loss", 2.5, 1), ("accuracy", 0.5, 2))
    ]
    for loss in (None, "value"):
        with pytest.raises(ReadError, match="'key' names 2 metrics"):
            read_run_table(
                write(tmp_path, csv_of(table)), RunTable(arm="arm", run=("run_id",), loss=loss)
            )
    losses = [row for row in table if row["key"] == "loss"]
    assert read_run_table(write(tmp_path, csv_of(losses)), RunTable(arm="arm", run=("run_id",)))[
        "a"
    ][0].loss.tolist() == [2.5]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bare.csv", "1,2.0\n2,1.9\n", "no header line"),
        ("empty.csv", "", "the file is empty"),
        ("head.csv", "precision,system,run,samples,eval_loss_nats\n", "no rows"),
        (
            "twice.csv",
            "precision,run,run,samples,eval_loss_nats\na,1,1,1,2\n",
            "2 columns are called 'run'",
        ),
        (
            "cells.csv",
            "precision,system,run,samples,eval_loss_nats\na,s,1,1,2,0\n",
            "line 2: 6 cells; expected 5",
        ),
        ("runs.npz", "PK\3\4", "not a table of many runs"),
    ],
)
def test_what_is_not_such_a_table(name: str, text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=words):
        read_run_table(write(tmp_path, text, name), RunTable(**LAYOUT))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("remark", "said"),
    [
        ("# nvfp4 step 3: loss is NaN", {"nvfp4": "1"}),
        ("# step 3: loss became NaN", {"fp8": "1", "nvfp4": "1"}),
        ("nvfp4,3,2.9,nan loss skipped", {"nvfp4": "1"}),
        ("# nvfp4: no NaN in the losses", {}),
        ("# nvfp4: the loss of run 7", {}),
    ],
)
def test_a_remark_or_a_row_of_a_table_of_arms_may_say_that_a_loss_was_nan(
    remark: str, said: Mapping[str, str], tmp_path: Path
) -> None:
    table = ["arm,step,loss,note", *(f"fp8,{step},{3 - step / 10},ok" for step in range(5))]
    table += [f"nvfp4,{step},{3 - step / 10},ok" for step in range(3)]
    table += [remark, *(f"nvfp4,{step},{3 - step / 10},ok" for step in range(4, 6))]
    path = write(tmp_path, "\n".join([*table, ""]))
    assert facts_by_arm(path) == said


@pytest.mark.parametrize(("error", "said"), [("nan loss", "1"), ("disk is full", None)])
def test_a_record_of_an_arm_may_say_that_a_loss_was_nan(
    error: str, said: str | None, tmp_path: Path
) -> None:
    table: list[Row] = [
        {"arm": arm, "step": step, "loss": 3 - step / 10}
        for arm in ("fp8", "nvfp4")
        for step in range(5)
    ]
    table.append({"arm": "nvfp4", "step": 5, "error": error})
    path = write(tmp_path, "".join(f"{json.dumps(row)}\n" for row in table), "runs.jsonl")
    assert facts_by_arm(path) == ({} if said is None else {"nvfp4": said})


def facts_by_arm(path: str) -> dict[str, str]:
    arms = read_run_table(path, RunTable(arm="arm", step="step", loss="loss"))
    return {
        arm: run.context[SAID_NOT_FINITE]
        for arm, runs in arms.items()
        for run in runs
        if SAID_NOT_FINITE in run.context
    }
