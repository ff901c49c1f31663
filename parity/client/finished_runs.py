"""A finished run as curve, sent whole: recorded, counted again by the server, and ended."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.client.rest import Client
from parity.judging.curve import Curve

_STEPS_AT_ONCE = 20_000
_VALIDATION = "validation_loss"


def send_run(
    client: Client, run_id: str, curve: Curve, context: Mapping[str, str], recipe: str | None, rounding: str | None = None
) -> str | None:
    """Record a curve as a whole run and finish it. Returns what the server has otherwise than the file, or None where all is there."""
    attempt = client.attach(run_id, context, recipe, rounding=rounding)
    epoch, token = attempt["epoch"], attempt.get("token")
    names, table = _table(curve)
    covered = {}
    for start in range(0, table.shape[1], _STEPS_AT_ONCE):
        covered = client.append(run_id, epoch, "train", names, table[:, start : start + _STEPS_AT_ONCE], token)["covered"]
    validated = curve.columns.get(_VALIDATION)
    if validated is not None:
        there = ~np.isnan(validated)
        for start in range(0, int(there.sum()), _STEPS_AT_ONCE):
            part = slice(start, start + _STEPS_AT_ONCE)
            table = np.stack([curve.steps[there][part], validated[there][part]])
            client.append(run_id, epoch, "validation", ["step", "loss"], table, token)
    expected = (curve.completeness.count, curve.completeness.first, curve.completeness.last)
    recorded = (covered["recorded"], covered["first_step"], covered["last_step"])
    if recorded != expected:
        return f"the server has {recorded} of count, first and last step, the file {expected}"
    client.finish(run_id, epoch, "finished", token=token)
    return None


def _table(curve: Curve) -> tuple[list[str], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """The names and rows of training that the record takes; a total loss is recorded as `loss`, the judged loss as `lm_loss`."""
    rows = {"step": curve.steps.astype(np.float64), "lm_loss": curve.loss}
    rows |= {("loss" if name == "total_loss" else name): values for name, values in curve.columns.items() if name != _VALIDATION}
    return list(rows), np.stack(list(rows.values()))
