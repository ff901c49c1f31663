"""One meaning of absence at every entrance: the same run gives the same curve and verdict, however
it is written down.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import parity
from parity.comparing.arms import read_one
from parity.judging.curves.curve import Curve
from parity.readers import read_run
from parity.readers.logs.pattern import PATTERN
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table

STEPS = np.arange(400)
RATE = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * STEPS / 400))
PLAN = {
    "planned_steps": 400,
    "schedule": "decayed",
    "recipe": {"fp8": "fp8", "mxfp8": "mxfp8"},
    "names": ("fp8", "mxfp8"),
}


def losses(seed: int) -> np.ndarray:
    batches = np.random.default_rng(0).normal(0, 0.08, 400)
    return (
        2.5
        + 4.0 / np.sqrt(STEPS + 1.0)
        + batches
        + np.random.default_rng(seed).normal(0, 0.004, 400)
    )


def run(loss: np.ndarray, rate: np.ndarray | None = None) -> dict[str, np.ndarray]:
    columns = {"step": STEPS, "loss": loss}
    return columns if rate is None else {**columns, "lr": rate}


def _rows(columns: Mapping[str, np.ndarray], nothing: object) -> list[dict[str, object]]:
    rows = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, (value.item() for value in values), strict=True))
        rows.append(
            {
                name: nothing if isinstance(value, float) and math.isnan(value) else value
                for name, value in row.items()
            }
        )
    return rows


def _csv(nothing: str) -> Callable[[Path, Mapping[str, np.ndarray]], Curve]:
    def entrance(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
        rows = [",".join(str(value) for value in row.values()) for row in _rows(columns, nothing)]
        return _read(folder, "run.csv", "\n".join([",".join(columns), *rows]) + "\n")

    return entrance


def _json_lines(nothing: object) -> Callable[[Path, Mapping[str, np.ndarray]], Curve]:
    def entrance(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
        return _read(
            folder, "run.jsonl", "".join(json.dumps(row) + "\n" for row in _rows(columns, nothing))
        )

    return entrance


def _read(folder: Path, name: str, text: str, columns: Mapping[str, str] | None = None) -> Curve:
    (folder / name).write_text(text)
    return read_run(str(folder / name), columns=columns)


def _json_document(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    return _read(folder, "run.json", json.dumps(_rows(columns, None)))


def _golden(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    """Values by step under each name, as Megatron-LM keeps them."""
    series = {
        name: {
            "values": {
                str(step): "nan" if np.isnan(value) else float(value)
                for step, value in zip(STEPS, values, strict=True)
            }
        }
        for name, values in columns.items()
        if name != "step"
    }
    return _read(folder, "golden.json", json.dumps(series))


def _parquet(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    table = pyarrow.table(
        {name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()}
    )
    pyarrow.parquet.write_table(table, folder / "run.parquet")
    return read_run(str(folder / "run.parquet"))


def _long_table(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    lines = ["key,value,step"]
    for name, values in columns.items():
        lines += [
            f"{name},{'' if np.isnan(value) else value},{step}"
            for step, value in zip(STEPS, values, strict=True)
            if name != "step"
        ]
    return _read(folder, "long.csv", "\n".join(lines) + "\n")


def _printed(word: str) -> Callable[[Path, Mapping[str, np.ndarray]], Curve]:
    def entrance(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
        return _read(folder, "run.log", _lines(columns, word))

    return entrance


def _pattern(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    groups = "".join(
        rf".*{name} (?P<{'learning_rate' if name == 'lr' else name}>\S+)"
        for name in columns
        if name != "step"
    )
    return _read(
        folder, "run.log", _lines(columns, "None"), {PATTERN: rf"step (?P<step>\d+){groups}"}
    )


def _lines(columns: Mapping[str, np.ndarray], word: str) -> str:
    rows = (
        " ".join(f"{name} {value}" for name, value in row.items()) for row in _rows(columns, word)
    )
    return "".join(f"{row}\n" for row in rows)


def _many_runs(folder: Path, columns: Mapping[str, np.ndarray]) -> Curve:
    rows = [",".join(["b", *(str(value) for value in row.values())]) for row in _rows(columns, "")]
    (folder / "runs.csv").write_text(
        "\n".join(
            [",".join(["arm", *columns]), "a,0,2.5,0.1"[: 7 if len(columns) == 2 else None], *rows]
        )
        + "\n"
    )
    return read_run_table(str(folder / "runs.csv"), RunTable(arm="arm"))["b"][0]


ENTRANCES: dict[str, Callable[[Path, Mapping[str, np.ndarray]], Curve]] = {
    "CSV, blank": _csv(""),
    "CSV, nan": _csv("nan"),
    "CSV, NA": _csv("NA"),
    "JSON lines, null": _json_lines(None),
    "JSON lines, NaN": _json_lines(math.nan),
    "JSON lines, text": _json_lines(""),
    "JSON document": _json_document,
    "golden values": _golden,
    "Parquet": _parquet,
    "long table": _long_table,
    "printed, nan": _printed("nan"),
    "printed, None": _printed("None"),
    "pattern": _pattern,
    "table of many runs": _many_runs,
    "pandas": lambda _, columns: read_one(pd.DataFrame(columns), "run", {}),
    "None": lambda _, columns: read_one(
        {**columns, "loss": [None if np.isnan(loss) else loss for loss in columns["loss"]]},
        "run",
        {},
    ),
}
PLACES = {
    "at the end": STEPS >= 391,
    "at the last step": STEPS == 399,
    "in the window": np.isin(STEPS, STEPS[320:400:12]),
    "before the window": (STEPS < 320) & (STEPS % 4 > 0),
    "in every second row": STEPS % 2 == 1,
    "nowhere": STEPS < 0,
}


@pytest.mark.parametrize("has_rate", [False, True], ids=["loss alone", "beside a rate"])
@pytest.mark.parametrize("place", PLACES)
def test_the_same_run_gives_the_same_verdict_at_every_entrance(
    place: str, has_rate: bool, tmp_path: Path
) -> None:
    rate = RATE if has_rate else None
    base = run(losses(1), rate)
    loss = np.where(PLACES[place], np.nan, losses(2))
    verdicts = {}
    for name, entrance in ENTRANCES.items():
        result = parity.compare(base, entrance(tmp_path, run(loss, rate)), **PLAN)
        verdicts[name] = result.verdict, result.reasons[0].code
    assert {
        name: verdict for name, verdict in verdicts.items() if verdict != verdicts["pandas"]
    } == {}, verdicts["pandas"]
    state, _ = verdicts["pandas"]
    assert state == (
        "pass"
        if place == "nowhere"
        else "inconclusive"
        if has_rate and place == "before the window"
        else "fail"
    )


# a line that was printed says that its step ran, whatever stands in it
PREPARED = [
    *("CSV, blank", "CSV, nan", "JSON lines, null", "JSON lines, NaN", "JSON document"),
    *("golden values", "Parquet", "pandas"),
]


@pytest.mark.parametrize("name", PREPARED)
def test_steps_at_which_all_is_blank_were_not_run_and_those_with_a_rate_were(
    name: str, tmp_path: Path
) -> None:
    """A file made for 400 steps of a run that is at 350, and its twin in which the rate goes on."""
    base = run(losses(1), RATE)
    not_run = STEPS >= 350
    loss = np.where(not_run, np.nan, losses(1))
    waiting = run(loss, np.where(not_run, np.nan, RATE))
    waiting["grad_norm"] = np.where(not_run, np.nan, 1.0)
    diverged = run(loss, RATE)
    results = [
        parity.compare(base, ENTRANCES[name](tmp_path, columns), **PLAN)
        for columns in (waiting, diverged)
    ]
    assert [result.verdict for result in results] == ["inconclusive", "fail"]
    assert "NONFINITE_CAND" not in [reason.code for reason in results[0].reasons]
    assert results[1].reasons[0].code == "NONFINITE_CAND"
