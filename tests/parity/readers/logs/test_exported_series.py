"""Exports that hold series: read where they are those of one run, refused where of two."""

import json
from pathlib import Path

import pytest

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from parity.readers.errors import ReadError

LOSSES = [4.5 - 0.25 * at for at in range(12)]
OTHERS = [loss + 1 for loss in LOSSES]
STEPS = [*range(1, 13)]


def read(folder: Path, text: str, name: str = "scalars.json") -> Curve:
    path = folder / name
    path.write_text(text)
    return read_run(str(path))


def line(run: str, tag: str, values: list[float]) -> str:
    points = {"steps": STEPS, "wall_times": [1.7e9 + step for step in STEPS], "values": values}
    return json.dumps({"run": run, "tag": tag, "points": points}) + "\n"


def test_a_series_a_line_is_one_run_with_its_evaluations(tmp_path: Path) -> None:
    run = read(tmp_path, line("train", "loss", LOSSES) + line("val", "loss", OTHERS))
    assert (run.steps.tolist(), run.loss.tolist()) == (STEPS, LOSSES)


@pytest.mark.parametrize("runs", [("fp8", "val"), ("a", "b"), ("train", "train2")])
def test_series_of_two_runs_are_listed(runs: tuple[str, str], tmp_path: Path) -> None:
    text = line(runs[0], "loss", LOSSES) + line(runs[1], "loss", OTHERS)
    with pytest.raises(ReadError, match=f"holds 2 runs; name one as .*, of {runs[0]}, {runs[1]}"):
        read(tmp_path, text)


def test_one_series_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="repeat a step"):
        read(tmp_path, line("train", "loss", LOSSES) + line("train", "loss", OTHERS))


def test_one_series_alone_and_one_that_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, line("train", "loss", LOSSES).strip()).loss.tolist() == LOSSES
    for other in (LOSSES[1:], []):
        with pytest.raises(ReadError, match="line 2: no series of as many steps as values"):
            read(tmp_path, line("train", "lr", LOSSES) + line("train", "loss", other))


def rows(values: list[float]) -> list[list[float]]:
    return [[1.7e9 + step, step, value] for step, value in zip(STEPS, values, strict=True)]


def test_the_folder_of_a_run_is_no_part_of_its_names(tmp_path: Path) -> None:
    names = {"train/loss": LOSSES, "val/loss": OTHERS}
    series = {f"runs/Nov29_node1/{name}": rows(values) for name, values in names.items()}
    assert read(tmp_path, json.dumps(series)).loss.tolist() == LOSSES


@pytest.mark.parametrize(
    "names",
    [
        ("runs/a/train/loss", "runs/b/train/loss"),
        ("runs/a/val/loss", "runs/a/val/lr"),
        ("critic/loss", "critic/lr"),
    ],
)
def test_names_of_two_runs_or_other_losses_keep_their_paths(
    names: tuple[str, str], tmp_path: Path
) -> None:
    series = {names[0]: rows(LOSSES), names[1]: rows(OTHERS)}
    with pytest.raises(ReadError, match="no loss column"):
        read(tmp_path, json.dumps(series))


def test_points_of_a_chart(tmp_path: Path) -> None:
    def points(values: list[float]) -> dict[str, object]:
        return {"name": "a series", "x": STEPS, "y": values}

    scalars = {"loss": {"train": points(LOSSES), "validation": points(OTHERS)}}
    assert read(tmp_path, json.dumps(scalars)).loss.tolist() == LOSSES
    with pytest.raises(ReadError, match="no loss column"):
        read(tmp_path, json.dumps({"loss": {"validation": points(OTHERS)}}))


def test_a_metric_of_mlflows_store(tmp_path: Path) -> None:
    text = "".join(f"{1700000000000 + step} {LOSSES[step - 1]} {step}\n" for step in STEPS)
    run = read(tmp_path, text, "loss")
    assert (run.steps.tolist(), run.loss.tolist()) == (STEPS, LOSSES)
    for other in ("1 2.5 3", "1700000000000 2 3.5", "1700000000000 2 3", "1700000000000 2.5 1e12"):
        with pytest.raises(ReadError, match="no header and 3 columns"):
            read(tmp_path, f"{other}\n" * 2, "loss")
