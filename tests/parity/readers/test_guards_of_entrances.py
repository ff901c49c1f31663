"""What a reader knows besides the losses, it knows at every entrance: the same fault in another
column blocks the pass wherever the run is written down, and its honest twin passes.
"""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.logs.test_event_folders import scalars
from tests.parity.readers.test_entrances import ENTRANCES, PLAN, STEPS, losses, run

Columns = Mapping[str, np.ndarray]
WORSE = np.where(STEPS < 200, 0.0, 0.5)
EVALUATED = STEPS % 20 == 19
FAULTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], str]] = {
    "a second training loss that goes on elsewhere": (
        "train_loss",
        lambda loss: loss + WORSE,
        "LOSSES_DIFFER",
    ),
    "a held-out loss that is worse": (
        "val_loss",
        lambda loss: np.where(EVALUATED, loss + WORSE, np.nan),
        "VALIDATION_LOSS_WORSE",
    ),
    "a held-out loss that is infinite": (
        "val_loss",
        lambda loss: np.where(EVALUATED, np.where(STEPS == 199, np.inf, loss), np.nan),
        "NONFINITE_DROPPED",
    ),
    "a count of losses that were NaN": (
        "num_nan",
        lambda _: ((STEPS > 200) & (STEPS < 204)).astype(float),
        "NONFINITE_DROPPED",
    ),
}
HONEST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "train_loss": lambda loss: loss,
    "val_loss": lambda loss: np.where(EVALUATED, loss, np.nan),
    "num_nan": np.zeros_like,
}


def _archive(folder: Path, columns: Columns) -> Curve:
    np.savez(folder / "run.npz", **columns)
    return read_run(str(folder / "run.npz"))


def _compressed(folder: Path, columns: Columns) -> Curve:
    ENTRANCES["CSV, blank"](folder, columns)
    (folder / "run.csv.gz").write_bytes(gzip.compress((folder / "run.csv").read_bytes()))
    return read_run(str(folder / "run.csv.gz"))


def _event_folder(folder: Path, columns: Columns) -> Curve:
    """A run that was resumed at step 300."""
    events = folder / "events"
    for number, part in enumerate((STEPS < 310, STEPS >= 300)):
        series = {
            tag: [
                (int(step), float(value))
                for step, value in zip(STEPS[part], values[part], strict=True)
            ]
            for tag, values in columns.items()
            if tag != "step"
        }
        scalars(
            events / f"events.out.tfevents.{number}",
            {
                tag: [one for one in points if not np.isnan(one[1])]
                for tag, points in series.items()
            },
        )
    return read_run(str(events))


PLACES = {
    **{name: entrance for name, entrance in ENTRANCES.items() if name != "pattern"},
    "archive of arrays": _archive,
    "compressed CSV": _compressed,
    "resumed event folder": _event_folder,
}
"""A pattern has groups for known quantities alone."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_another_column_blocks_the_pass_at_every_entrance(
    fault: str, tmp_path: Path
) -> None:
    name, change, code = FAULTS[fault]
    base, loss = run(losses(1)), losses(2)
    base[name] = HONEST[name](base["loss"])
    found, honest = {}, {}
    for place, entrance in PLACES.items():
        for said, values in ((found, change(loss)), (honest, HONEST[name](loss))):
            result = parity.compare(base, entrance(tmp_path, {**run(loss), name: values}), **PLAN)
            said[place] = result.reasons[0].code
    assert {place: one for place, one in honest.items() if one != "WITHIN_MARGIN"} == {}
    assert {place: one for place, one in found.items() if one != code} == {}
