"""Long tables and tables of several runs: split by metric and run, or refused with the line to
type.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from parity.readers import read_run, read_runs
from parity.readers.errors import ReadError
from parity.readers.run_names import run_name

STEPS = range(40)


def mlflow(
    runs: Iterable[tuple[str, float]], header: str = "run_id,key,value,step,timestamp"
) -> str:
    """MLflow's download of two metrics of some runs: (run, loss at step 0). No newline at the end,
    as MLflow writes it.
    """
    rows = [header]
    for run, start in runs:
        rows += [
            f"{run},loss,{start - 0.01 * step},{step},{1700000000000 + step}" for step in STEPS
        ]
        rows += [f"{run},accuracy,{0.02 * step},{step},{1700000000000 + step}" for step in STEPS]
    return "\n".join(rows)


def write(folder: Path, text: str, name: str = "metrics.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "header",
    [
        "run_id,key,value,step,timestamp",
        "run,metric,value,Step,time",
        "run_name,tag,value,global_step,wall",
    ],
)
def test_one_run_is_split_by_metric(header: str, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, mlflow([("a1", 3.0)], header)))
    assert run.steps.tolist() == list(STEPS)
    assert run.loss.tolist() == [3.0 - 0.01 * step for step in STEPS]
    assert run.notes == (f"loss read from 'loss', step from {header.split(',')[3]!r}",)


def test_two_runs_are_listed_and_each_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path, mlflow([("a1", 3.0), ("b2", 4.0)]))
    with pytest.raises(ReadError, match=r"holds 2 runs; name one as \S+metrics.csv:a1, of a1, b2"):
        read_run(file)
    assert read_run(f"{file}:b2").loss[0] == 4.0
    assert (run_name(f"{file}:b2"), read_run(f"{file}:b2").label) == ("b2", "b2")
    with pytest.raises(ReadError, match="no run 'c3'; there are a1, b2"):
        read_run(f"{file}:c3")
    assert [(run.label, run.replicate, run.loss[0]) for run in read_runs(file)] == [
        ("a1", 0, 3.0),
        ("b2", 1, 4.0),
    ]


def test_json_lines_of_one_value_each_are_a_long_table_too(tmp_path: Path) -> None:
    lines = [
        json.dumps({"run": run, "key": key, "value": value, "step": step})
        for run, value in (("a", 2.5), ("b", 2.25))
        for step in STEPS
        for key in ("train/loss", "lr")
    ]
    file = write(tmp_path, "\n".join(lines) + "\n", "metrics.jsonl")
    assert read_run(f"{file}:b").loss.tolist() == [2.25] * len(STEPS)
    with pytest.raises(ReadError, match="holds 2 runs"):
        read_run(file)


@pytest.mark.parametrize("kind", ["run_id", "run"])
def test_a_wide_table_of_two_runs(kind: str, tmp_path: Path) -> None:
    rows = [
        f"{run},{step},{start - 0.01 * step}"
        for step in STEPS
        for run, start in (("a", 3.0), ("b", 4.0))
    ]
    file = write(tmp_path, f"{kind},step,loss\n" + "\n".join(rows) + "\n")
    with pytest.raises(ReadError, match="holds 2 runs; name one"):
        read_run(file)
    run = read_run(f"{file}:b")
    assert (run.loss[0], run.steps.tolist()) == (4.0, list(STEPS))


def test_a_bad_cell_of_one_run_keeps_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "run,step,loss\na,0,3.0\nb,0,low\na,1,2.9\n")
    assert read_run(f"{file}:a").loss.tolist() == [3.0, 2.9]
    with pytest.raises(ReadError, match="line 3: 'low' in the loss column"):
        read_run(f"{file}:b")


def test_columns_of_several_runs(tmp_path: Path) -> None:
    """A chart's export of W&B: a column for each run."""
    rows = "".join(
        f"{step},{3.0 - 0.01 * step},{3.0},{4.0 - 0.01 * step},{4.0}\n" for step in STEPS
    )
    header = (
        '"Step","base - train/loss","base - train/loss__MAX","cand - train/loss","cand - '
        'train/loss__MAX"\n'
    )
    file = write(tmp_path, header + rows)
    assert read_run(f"{file}:cand").loss[0] == 4.0
    with pytest.raises(ReadError, match=r"holds 2 runs; name one as \S+, of base, cand"):
        read_run(file)
    assert read_run(file, columns={"loss": "cand - train/loss"}).loss[0] == 4.0
    assert [run.label for run in read_runs(file)] == ["base", "cand"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "run_id,key,value,timestamp\na,loss,2.5,1\n",
            "a long table [(]key, value[)] without a step column",
        ),
        ("run_id,key,value,step\na,accuracy,0.5,1\n", "no loss column among 'step', 'accuracy'"),
        (
            "run_id,key,value,step\na,loss,low,1\n",
            "line 2: 'low' in the column 'value'; expected a number",
        ),
        ("run_id,key,value,step\na,loss,2.5,1.5\n", "line 2: step 1.5 is not a whole number"),
        ("run_id,key,value,step\na,loss,2.5,1\na,loss,2.", "line 3: 3 cells; expected 4"),
        ("run_id,key,value,step\na,,2.5,1\n", "line 2: no name in the column 'key'"),
        ("run_id,key,value,step\n", "a header but no rows"),
        (
            "run_id,key,value,step\na,loss,2.5,0\na,loss,2.4,0\na,loss,2.3,0\na,loss,2.2,0\n",
            "rows repeat a step with another loss",
        ),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ReadError, match=message) as caught:
        read_run(file)
    assert str(caught.value).startswith(file)


def test_the_metric_is_named_like_a_column(tmp_path: Path) -> None:
    file = write(tmp_path, mlflow([("a1", 3.0)]).replace(",loss,", ",ce,"))
    assert read_run(file, columns={"loss": "ce"}).loss[0] == 3.0
    with pytest.raises(
        ReadError, match="no column 'value' for loss; the columns are 'step', 'accuracy', 'ce'"
    ):
        read_run(file, columns={"loss": "value"})
    with pytest.raises(ReadError, match="'accuracy' is named as an accuracy"):
        read_run(file, columns={"loss": "accuracy"})


def test_a_loss_column_next_to_a_name_and_a_value_is_no_long_table(tmp_path: Path) -> None:
    file = write(tmp_path, "step,name,value,loss\n0,x,9.0,3.0\n1,y,9.0,2.5\n")
    assert read_run(file).loss.tolist() == [3.0, 2.5]


@pytest.mark.parametrize(
    ("text", "kind"), [("step,loss\n1,2.0\n", "column"), ('{"step": 1, "loss": 2.0}\n', "field")]
)
def test_a_run_of_a_file_that_names_none(text: str, kind: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(
        ReadError,
        match=r"no column names the run, (so there is no run|and no column is called) 'a'",
    ):
        read_run(f"{file}:a")


def test_parquet_of_several_runs_or_metrics_is_refused(tmp_path: Path) -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = str(tmp_path / "x.parquet")
    parquet.write_table(
        pyarrow.table({"run_id": ["a", "b"], "step": [0, 0], "loss": [2.0, 3.0]}), path
    )
    with pytest.raises(ReadError, match=r"holds 2 runs [(]a, b[)]; export it as CSV"):
        read_run(path)
    parquet.write_table(
        pyarrow.table({"key": ["loss", "lr"], "step": [0, 0], "value": [2.0, 3.0]}), path
    )
    with pytest.raises(
        ReadError, match=r"a long table [(]key, value[)] as Parquet cannot be split"
    ):
        read_run(path)


def test_the_same_metric_of_another_context_is_another_metric(tmp_path: Path) -> None:
    """As Comet exports: the context says what a loss was measured on."""

    def records(*contexts: str) -> str:
        return json.dumps(
            [
                {
                    "metricName": "loss",
                    "metricValue": str(3.0 + at - 0.01 * step),
                    "step": step,
                    "runContext": context,
                }
                for at, context in enumerate(contexts)
                for step in STEPS
            ]
        )

    run = read_run(write(tmp_path, records("train", "validate"), "metrics.json"))
    assert run.loss.tolist() == [3.0 - 0.01 * step for step in STEPS]
    with pytest.raises(ReadError, match="no loss column among 'step', 'validate/loss'"):
        read_run(write(tmp_path, records("validate"), "metrics.json"))
