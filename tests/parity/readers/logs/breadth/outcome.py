"""What comes of reading a shape of the list without an option, next to a table of the same numbers.

`python -m tests.parity.readers.logs.breadth.outcome` prints it for each.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import parity
from parity.judging.curves.curve import LOSS_BASE, PLANNED_STEPS, Curve
from parity.readers import ReadError, read_run
from tests.parity.readers.logs.breadth.numbers import ARMS, STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape
from tests.parity.readers.logs.breadth.shapes import SHAPES, SOURCES, tables, written

JUDGED: Mapping[str, Any] = {
    "planned_steps": STEPS,
    "names": ("bf16", "fp8"),
    "recipe": {"bf16": "bf16", "fp8": "fp8_current"},
}


def outcome(folder: Path, name: str) -> str:
    """Empty where both arms are read with every step, loss and rate that the shape shows, and are
    judged as the table is; else the refusal, or what differs.
    """
    paths = written(folder, name)
    try:
        for path, arm in zip(paths, ARMS, strict=True):
            if found := _difference(read_run(path), arm, SHAPES[name], name):
                return found
        by_shape = parity.compare(paths[0], paths[1], **JUDGED)
    except ReadError as error:
        return f"refused: {str(error).replace(str(folder), '')}"
    base, candidate = tables(folder, name)
    by_table = parity.compare(base, candidate, **JUDGED)
    for key in ("verdict", "gap"):
        of_shape, of_table = by_shape.document[key], by_table.document[key]
        if of_shape != of_table:
            return f"{key}: {of_shape!r:.200}; the table: {of_table!r:.200}"
    codes = [
        [reason["code"] for reason in comparison.document["reasons"]]
        for comparison in (by_shape, by_table)
    ]
    return "" if codes[0] == codes[1] else f"codes: {codes[0]}; the table: {codes[1]}"


def _difference(run: Curve, arm: Arm, shape: Shape, name: str) -> str:
    """What a run has otherwise than its arm; empty for nothing."""
    steps = np.arange(STEPS) + shape.first
    if not np.array_equal(run.steps, steps):
        return f"steps: {len(run.steps)} from {run.steps[0]} to {run.steps[-1]}"
    losses = np.array(shape.shown(arm))
    if not np.allclose(run.loss, losses, rtol=1e-12, atol=0):
        at = int(np.argmax(np.abs(run.loss - losses)))
        return f"loss: {run.loss[at]} at step {run.steps[at]}; it shows {losses[at]}"
    if (run.context.get(LOSS_BASE) == "2") != (shape.unit == "bits"):
        return "another base of the loss"
    rates = run.columns.get("learning_rate")
    if shape.rate is not None:
        if rates is None:
            return "no learning rate"
        if not np.allclose(rates, [shape.rate(rate) for rate in arm.rates], rtol=1e-12, atol=0):
            return "another learning rate"
    elif rates is not None:
        return "a learning rate that it does not show"
    if SOURCES[name]["plan"] and run.context.get(PLANNED_STEPS) != str(STEPS):
        return "no planned length"
    said = run.notes[0]
    has_said = ("rate from" in said, f"plan of {STEPS} steps" in said)
    if has_said != (shape.rate is not None, bool(run.context.get(PLANNED_STEPS))):
        return f"says {said!r}"
    return ""


def _print_all() -> None:
    read = 0
    for name in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(Path(folder), name)
        read += not found
        print(f"{name}: {found or 'read'}")
    print(f"{read} of {len(SHAPES)}")


if __name__ == "__main__":
    _print_all()
