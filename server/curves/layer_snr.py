"""What the recorded statistics say of an arm's layers, by which the advice after a fail names
them.
"""

from __future__ import annotations

import numpy as np
from sqlalchemy.orm import Session

from parity.judging.verdict.layer_statistics import LayerColumns, LayerSnr, late_statistics
from server.curves.layer_table import LAYERS
from server.database.metrics import store
from server.database.tables import Arm

_REPORTED = ("external", "command")


def late_values(session: Session, arm: Arm) -> LayerSnr:
    """The late statistics of the arm's first finished run (`late_statistics`); empty if none were
    recorded.
    """
    run = next((run for run in arm.runs if run.state == "finished"), None)
    if run is None:
        return {}
    steps, recorded = store.read(session, run.id, LAYERS)
    columns = {
        (parts[0], parts[1], parts[2]): np.asarray(values, np.float64)
        for name, values in recorded.items()
        if len(parts := name.rsplit("/", 2)) == 3
    }
    return late_statistics(
        LayerColumns(steps=steps, columns=columns), is_reported=arm.job.engine in _REPORTED
    )
