"""The shapes that trackers and clouds export, as the sources in sources.toml write them."""

import json
from collections.abc import Callable, Sequence

import pandas as pd

from tests.parity.readers.logs.breadth.numbers import EVALUATED, STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape, lines

_BEGAN = 1764410400.0
_STEPS = [*range(1, STEPS + 1)]
_TIMES = [_BEGAN + 0.25 * step for step in _STEPS]
_EVALUATED = [*range(EVALUATED, STEPS + 1, EVALUATED)]
_DATES = pd.to_datetime(_TIMES, unit="s")


def _series(arm: Arm) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of what was logged, by name."""
    return {
        "train/loss": (_STEPS, list(arm.losses)),
        "train/lr": (_STEPS, list(arm.rates)),
        "val/loss": (_EVALUATED, list(arm.evaluations)),
    }


def _document(
    form: Callable[[Arm], object], indent: int | None = None
) -> Callable[[Sequence[Arm]], str]:
    return lambda arms: json.dumps(form(arms[0]), indent=indent)


def _frame(form: Callable[[Arm], pd.DataFrame]) -> Callable[[Sequence[Arm]], str]:
    return lambda arms: form(arms[0]).to_csv()


def _sacred(arm: Arm) -> object:
    return {
        name.replace("train/", "training.").replace("val/", "validation."): {
            "values": values,
            "steps": steps,
            "timestamps": [pd.Timestamp(_BEGAN + step, unit="s").isoformat() for step in steps],
        }
        for name, (steps, values) in _series(arm).items()
    }


def _tensorboardx(arm: Arm) -> object:
    return {
        f"runs/Nov29_10-00-00_node1/{name}": [
            [_BEGAN + step, step, value] for step, value in zip(steps, values, strict=True)
        ]
        for name, (steps, values) in _series(arm).items()
    }


def _tensorboard_dev(arms: Sequence[Arm]) -> str:
    text = ""
    for name, (steps, values) in _series(arms[0]).items():
        run, _, tag = name.partition("/")
        points = {
            "steps": steps,
            "wall_times": [_BEGAN + step for step in steps],
            "values": values,
        }
        record = {
            "run": run,
            "tag": tag,
            "summary_metadata": "CgkKB3NjYWxhcnMaAA==",
            "points": points,
        }
        text += json.dumps(record) + "\n"
    return text


def _tensorboard_dev_frame(arm: Arm) -> pd.DataFrame:
    rows = [
        ("node1", name, step, _BEGAN + step, value)
        for name, (steps, values) in _series(arm).items()
        for step, value in zip(steps, values, strict=True)
    ]
    return pd.DataFrame(rows, columns=["run", "tag", "step", "wall_time", "value"])


def _dvclive(arm: Arm, at: int) -> str:
    return f"{int(1000 * _TIMES[at])}\t{at + 1}\t{arm.losses[at]}\n"


def _sagemaker(arm: Arm, at: int) -> str:
    values = {"train:loss": arm.losses[at], "train:lr": arm.rates[at]}
    if (held_out := arm.evaluation(at)) is not None:
        values["validation:loss"] = held_out
    return "".join(
        json.dumps(
            {"MetricName": name, "Value": value, "Timestamp": _TIMES[at], "IterationNumber": at + 1}
        )
        + "\n"
        for name, value in values.items()
    )


def _mlflow(arm: Arm, at: int) -> str:
    return f"{int(1000 * _TIMES[at])} {arm.losses[at]} {at + 1}\n"


def _neptune(arm: Arm) -> pd.DataFrame:
    return pd.DataFrame(
        {"step": [float(step) for step in _STEPS], "value": arm.losses, "timestamp": _DATES}
    )


def _ray_record(arm: Arm, at: int) -> dict[str, object]:
    return {
        "loss": arm.losses[at],
        "lr": arm.rates[at],
        "timestamp": int(_TIMES[at]),
        "checkpoint_dir_name": None,
        "done": at == STEPS - 1,
        "training_iteration": at + 1,
        "trial_id": "a1b2c_00000",
        "date": "2026-11-29_10-00-00",
        "time_this_iter_s": 0.25,
        "time_total_s": 0.25 * (at + 1),
        "pid": 12345,
        "hostname": "node1",
        "node_ip": "10.0.0.1",
        "time_since_restore": 0.25 * (at + 1),
        "iterations_since_restore": at + 1,
    }


def _ray_csv(arms: Sequence[Arm]) -> str:
    rows = [_ray_record(arms[0], at) for at in range(STEPS)]
    return pd.DataFrame(rows).to_csv(index=False)


def _ray_json(arm: Arm, at: int) -> str:
    config = {"lr": 3e-4, "batch_size": 16, "train_loop_config": {"loss": "ce"}}
    return json.dumps({**_ray_record(arm, at), "config": config}) + "\n"


def _csv_logger(arm: Arm, at: int) -> str:
    held_out = arm.evaluations[max(0, (at + 1) // EVALUATED - 1)]
    return f"{at},{arm.rates[at]},{arm.losses[at]},{held_out}\n"


def _polyaxon(arms: Sequence[Arm]) -> str:
    rows = [
        f"\n{step}|{date}+00:00|{loss}"
        for step, date, loss in zip(_STEPS, _DATES, arms[0].losses, strict=True)
    ]
    return "step|timestamp|metric" + "".join(rows)


def _vertex(arm: Arm) -> pd.DataFrame:
    frame = pd.DataFrame({"step": _STEPS, "wall_time": _DATES})
    return frame.assign(loss=arm.losses, lr=arm.rates)[["loss", "lr", "step", "wall_time"]]


def _clearml(arm: Arm) -> object:
    names = {
        "train/loss": ("loss", "train"),
        "train/lr": ("lr", "train"),
        "val/loss": ("loss", "validation"),
    }
    scalars: dict[str, dict[str, object]] = {}
    for name, (steps, values) in _series(arm).items():
        title, series = names[name]
        scalars.setdefault(title, {})[series] = {"name": series, "x": steps, "y": values}
    return scalars


def _wandb_chart(arms: Sequence[Arm]) -> str:
    ends = ("", "__MIN", "__MAX")
    names = ["Step", *(f"{arm.name} - train/loss{end}" for arm in arms for end in ends)]
    rows = [names] + [
        [str(step), *(str(arm.losses[at]) for arm in arms for _ in ends)]
        for at, step in enumerate(_STEPS)
    ]
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def _comet(arm: Arm) -> object:
    return [
        {
            "metricName": name.partition("/")[2],
            "metricValue": str(value),
            "timestamp": int(1000 * (_BEGAN + step)),
            "step": step,
            "epoch": 0,
            "runContext": {"train": "train", "val": "validate"}[name.partition("/")[0]],
        }
        for name, (steps, values) in _series(arm).items()
        for step, value in zip(steps, values, strict=True)
    ]


TRACKER_SHAPES = {
    "sacred metrics.json": Shape(_document(_sacred, 2), "metrics.json", rate=float),
    "tensorboardX all_scalars.json": Shape(
        _document(_tensorboardx), "all_scalars.json", rate=float
    ),
    "TensorBoard.dev export": Shape(_tensorboard_dev, "scalars.json", rate=float),
    "TensorBoard.dev data frame": Shape(_frame(_tensorboard_dev_frame), "scalars.csv", rate=float),
    "DVCLive": Shape(lines(_dvclive, "timestamp\tstep\tloss\n"), "loss.tsv"),
    "SageMaker Experiments": Shape(lines(_sagemaker), "12345.json", rate=float),
    "MLflow file store": Shape(lines(_mlflow), "loss"),
    "Neptune fetch_values": Shape(_frame(_neptune), "loss.csv"),
    "Ray Tune progress.csv": Shape(_ray_csv, "progress.csv", rate=float),
    "Ray Tune result.json": Shape(lines(_ray_json), "result.json", rate=float),
    "Keras CSVLogger": Shape(
        lines(_csv_logger, "epoch,learning_rate,loss,val_loss\n"),
        "training.log",
        rate=float,
    ),
    "Polyaxon events": Shape(_polyaxon, "loss.plx"),
    "Vertex AI experiments": Shape(_frame(_vertex), "experiment.csv", rate=float),
    "ClearML scalars": Shape(_document(_clearml), "scalars.json", rate=float),
    "W&B chart of several runs": Shape(_wandb_chart, "wandb_export.csv", holds_all=True),
    "Comet metrics": Shape(_document(_comet), "metrics.json", rate=float),
}
