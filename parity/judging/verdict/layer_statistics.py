"""Statistics of the quantization by layer: the table of a run, by step, what counts of it, and the
sentences that name the layers which lose most.

The median over the last fifth of the steps counts, because the end of a run decides its verdict and
single steps scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen

# quantization SNR (dB) by layer and operand; with a third word, another statistic of the two
LayerSnr = Mapping[tuple[str, ...], float]
SNR, UNDERFLOW, SCALE_OCTAVES, AMAX = "snr_db", "underflow_share", "scale_octaves", "amax"
LAYERS_NAMED = 3
_LATE_SHARE = 0.2


@frozen(eq=False)
class LayerColumns:
    """What a run has by layer: `steps` (n,) ascending, and columns (layer, operand, statistic) ->
    (n,) float64, NaN at a step that has none.

    SNR in dB, UNDERFLOW as a share of 1, SCALE_OCTAVES between the smallest and the largest scale
    of the blocks, AMAX in the tensor's own unit.
    """

    steps: NDArray[np.int64]
    columns: Mapping[tuple[str, str, str], NDArray[np.float64]]


def late_statistics(table: LayerColumns, *, is_reported: bool = True) -> LayerSnr:
    """The median of each statistic over the last fifth of the steps, by (layer, operand) for the
    SNR and by (layer, operand, statistic) for the others. Infinite values are left out: there
    nothing was lost.

    A trainer that reports its statistics logs each at steps of its own, so that NaN is no value,
    and each counts at its own steps. Of our own engines (not `is_reported`) NaN is an operand that
    is not quantized there, and only the SNR counts, which has the underflow in it.
    """
    medians: dict[tuple[str, ...], float] = {}
    for (layer, operand, statistic), column in table.columns.items():
        values = column[~np.isnan(column)] if is_reported else column
        late = values[len(values) - max(1, round(_LATE_SHARE * len(values))) :]
        finite = late[np.isfinite(late)]
        if not len(finite):
            continue
        if statistic == SNR:
            medians[layer, operand] = float(np.median(finite))
        elif is_reported and statistic in (UNDERFLOW, SCALE_OCTAVES, AMAX):
            medians[layer, operand, statistic] = float(np.median(finite))
    return medians


def worst_layers(layer_snr_db: LayerSnr) -> tuple[str, ...]:
    """A sentence that names the layers with the lowest finite SNR, each by its worst operand, and
    one that names those with the most underflow; nothing where none is known.
    """
    return (*_lowest_snr(layer_snr_db), *_most_underflow(layer_snr_db))


def _lowest_snr(layer_snr_db: LayerSnr) -> tuple[str, ...]:
    worst: dict[str, tuple[float, str]] = {}
    for (layer, operand, *statistic), snr in layer_snr_db.items():
        if not statistic and math.isfinite(snr):
            worst[layer] = min(worst.get(layer, (math.inf, "")), (snr, operand))
    if not worst:
        return ()
    ranked = sorted((snr, layer, operand) for layer, (snr, operand) in worst.items())[:LAYERS_NAMED]
    named = ", ".join(f"{layer} ({operand}, {snr:.1f} dB)" for snr, layer, operand in ranked)
    return (f"The layers with the lowest SNR, so the first to keep in bf16: {named}.",)


def _most_underflow(layers: LayerSnr) -> tuple[str, ...]:
    worst: dict[str, tuple[float, str]] = {}
    for (layer, operand, *statistic), share in layers.items():
        if statistic == [UNDERFLOW] and share > 0.0:
            worst[layer] = max(worst.get(layer, (0.0, "")), (share, operand))
    if not worst:
        return ()
    ranked = sorted(worst.items(), key=lambda entry: (-entry[1][0], entry[0]))[:LAYERS_NAMED]
    named = []
    for layer, (share, operand) in ranked:
        words = [operand, f"{100 * share:.1f} %"]
        if (octaves := layers.get((layer, operand, SCALE_OCTAVES))) is not None:
            words.append(f"scales over {octaves:.1f} octaves")
        if (amax := layers.get((layer, operand, AMAX))) is not None:
            words.append(f"amax {amax:.3g}")
        named.append(f"{layer} ({', '.join(words)})")
    return (f"The layers where most values become zero: {', '.join(named)}.",)
