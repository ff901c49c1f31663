"""Quantization SNR by layer from the recorded statistics; the advice after a fail ranks layers by
it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sqlalchemy.orm import Session

from server.database.metrics import store
from server.database.tables import Arm

_SNR = "/snr_db"
_LATE_SHARE = 0.2


def snr_db(session: Session, arm: Arm) -> Mapping[tuple[str, ...], float]:
    """Signal-to-noise ratio of quantization by (layer, operand), dB: the median over the last fifth
    of the watched steps.

    Taken from the arm's first finished run; empty if no step was watched. Operands that are not
    quantized are left out.
    """
    run = next((run for run in arm.runs if run.state == "finished"), None)
    if run is None:
        return {}
    steps, columns = store.read(session, run.id, "layers")
    late = slice(len(steps) - max(1, round(_LATE_SHARE * len(steps))), None)
    snr: dict[tuple[str, ...], float] = {}
    for name, values in columns.items():
        # Infinite if quantization lost nothing; NaN if the operand stays in bf16.
        finite = values[late][np.isfinite(values[late])]
        if name.endswith(_SNR) and len(finite):
            layer, operand = name.removesuffix(_SNR).rsplit("/", 1)
            snr[layer, operand] = float(np.median(finite))
    return snr
