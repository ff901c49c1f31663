"""Judging columns over REST: the bytes of the verdict are those of `parity compare` for files with
the same numbers.
"""

import json
import math

import numpy as np
import pytest

from parity import cli
from parity.canonical_json import canonical_json


def _losses(seed, gap=0.0, steps=1500):
    batches, noise = np.random.default_rng(7), np.random.default_rng(seed)
    loss = (
        1.4
        + 1.5 * np.exp(-np.arange(steps) / 100)
        + batches.normal(0, 0.1, steps)
        + noise.normal(0, 0.01, steps)
        + gap
    )
    loss[3 + seed] = math.nan
    return loss.tolist()


def test_columns_and_compare_give_the_same_bytes(api, tmp_path, capsys):
    runs = {
        name: _losses(seed, gap)
        for name, seed, gap in (("a", 1, 0.0), ("b", 2, 0.0), ("c", 3, 0.05), ("d", 4, 0.05))
    }
    for name, losses in runs.items():
        rows = "".join(f"{step},{loss!r}\n" for step, loss in enumerate(losses))
        (tmp_path / f"{name}.csv").write_text("step,loss\n" + rows)
    about = {"steps": list(range(1500)), "notes": ["loss read from 'loss', step from 'step'"]}
    about["context"] = {"loss_name": "loss", "loss_meaning": "training loss"}
    columns = {
        name: about
        | {"loss": ["nan" if math.isnan(loss) else loss for loss in losses], "label": name}
        for name, losses in runs.items()
    }
    request = {
        "baseline": [columns["a"], columns["b"]],
        "candidates": {"nvfp4": [columns["c"], columns["d"]]},
        "baseline_name": "fp8",
    }
    answer = api.post(
        "/api/v1/evaluations", json=request | {"policy": {"margin": "1.0%"}, "planned_steps": 1500}
    )
    assert answer.status_code == 200, answer.text
    verdicts = answer.json()["verdicts"]
    a, b, c, d = (str(tmp_path / f"{name}.csv") for name in runs)
    more = [
        "--baseline-run",
        b,
        "--candidate-run",
        f"nvfp4={d}",
        "--margin",
        "1.0%",
        "--planned-steps",
        "1500",
        "--json",
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", f"fp8={a}", f"nvfp4={c}", *more])
    assert ended.value.code == 1
    compared = json.loads(capsys.readouterr().out)
    assert canonical_json(verdicts) == canonical_json(compared["verdicts"])
    (document,) = verdicts
    assert document["verdict"] == "fail"
    assert [(run["label"], run["replicate"]) for run in document["inputs"]["candidate"]] == [
        ("c", 0),
        ("d", 1),
    ]
