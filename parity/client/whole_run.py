"""A finished run as curve, sent whole: recorded, counted again by the server, and ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from parity.client.delivery import VALIDATION
from parity.client.layer_tables import pieces
from parity.client.rest import Client
from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import Curve
from parity.judging.verdict.layer_statistics import LayerColumns

_STEPS_AT_ONCE = 20_000


def send_run(
    client: Client,
    run_id: str,
    curve: Curve,
    context: Mapping[str, str],
    recipe: str | None,
    rounding: str | None = None,
    layers: LayerColumns | None = None,
) -> str | None:
    """Record a curve as a whole run, with its statistics by layer, and finish it. Returns what the
    server has otherwise than the file, or None where all is there.
    """
    attempt = client.attach(run_id, context, recipe, rounding=rounding)
    attempt_number, token = attempt["attempt"], attempt.get("token")
    covered, left_out = {}, 0
    for kind, names, table in _tables(curve):
        for start in range(0, table.shape[1], _STEPS_AT_ONCE):
            answer = client.append(
                run_id, attempt_number, kind, names, table[:, start : start + _STEPS_AT_ONCE], token
            )
            covered = answer["covered"]
            left_out += answer.get("left_out_steps", 0) if kind == "train" else 0
    expected = (curve.completeness.count, curve.completeness.first, curve.completeness.last)
    recorded = (covered["recorded"] + left_out, covered["first_step"], covered["last_step"])
    if recorded != expected and not (left_out and recorded[:2] == expected[:2]):
        return f"the server has {recorded} of count, first and last step, the file {expected}"
    for piece in pieces(layers) if layers is not None else ():
        client.append_layers(run_id, attempt_number, piece, token)
    client.finish(run_id, attempt_number, "finished", token=token)
    return None


def _tables(curve: Curve) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
    """Kind, names and rows (names, n) that the record takes; a total loss is recorded as `loss`,
    the judged loss as `lm_loss`.
    """
    rows = {"step": curve.steps.astype(np.float64), JUDGED_LOSS: curve.loss}
    rows |= {
        ("loss" if name == "total_loss" else name): values
        for name, values in curve.columns.items()
        if name != VALIDATION
    }
    yield "train", list(rows), np.stack(list(rows.values()))
    validated = curve.columns.get(VALIDATION)
    if validated is not None:
        there = ~np.isnan(validated)
        yield "validation", ["step", "loss"], np.stack([curve.steps[there], validated[there]])
