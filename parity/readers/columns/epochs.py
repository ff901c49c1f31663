"""Steps that restart with each epoch, continued: epoch 2 follows the last step of epoch 1.

They are continued only where the file says that they restart: it has the number of the epoch, and
what the steps of each count to or each of the steps, and they go back exactly where the epoch goes
on. Anything else that goes back may be another run, or a restart.
"""

import dataclasses

import numpy as np

from parity.judging.curves.curve import FloatArray
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import EPOCH, NUMBERED, STEP

Places = tuple[FloatArray, FloatArray]
"""Keys (n,) of lines, which increase, and the numbers (n,) that they print."""


def continued(taken: RunColumns) -> RunColumns:
    """The columns of a table without that of the epoch, with steps that are continued where they
    restart with each epoch.
    """
    if EPOCH not in taken.values:
        return taken
    values = {name: column for name, column in taken.values.items() if name != EPOCH}
    plain = dataclasses.replace(taken, values=values)
    steps, epochs = taken.values[STEP], taken.values[EPOCH]
    if taken.names[STEP] == NUMBERED or not (steps[1:] < steps[:-1]).any():
        return plain
    keys = np.arange(float(len(steps)))
    none = np.empty(0), np.empty(0)
    new_steps, length = continued_steps(keys, steps, (keys, epochs), none)
    if length is None:
        return plain
    return dataclasses.replace(plain, values={**values, STEP: new_steps}).noted(
        f"steps restart with each epoch: continued, {length:,.0f} each"
    )


def continued_steps(
    keys: FloatArray, steps: FloatArray, epochs: Places, lengths: Places
) -> tuple[FloatArray, float | None]:
    """Steps (n,) of lines with these keys (n,), continued over the epochs, and the length of an
    epoch; the steps as they are, and None, where they do not restart with each epoch.
    """
    at = np.searchsorted(epochs[0], keys, side="right") - 1
    if not len(epochs[0]) or not len(keys) or (at < 0).any():
        return steps, None
    epoch = epochs[1][at]
    if not len(lengths[0]):
        length = _counted_length(steps, epoch)
    elif np.isin(keys, lengths[0]).all():
        stated = np.unique(lengths[1][np.isin(lengths[0], keys)])
        length = float(stated[0]) if len(stated) == 1 else None
    else:
        length = None
    if length is None or (steps > length).any():
        return steps, None
    continued = (epoch - epoch[0]) * length + steps
    goes_on = epoch[1:] != epoch[:-1]
    restarts = steps[1:][goes_on] <= steps[:-1][goes_on]
    if not len(restarts) or not restarts.all() or (np.diff(continued) < 0).any():
        return steps, None
    return continued, length


def _counted_length(steps: FloatArray, epoch: FloatArray) -> float | None:
    """How many steps (n,) each epoch (n,) has where all of them are printed, so that they are as
    many in each but the last; None where they are not.
    """
    parts = np.split(steps, np.flatnonzero(epoch[1:] != epoch[:-1]) + 1)
    if len(parts) < 2 or steps[0] not in (0.0, 1.0):
        return None
    is_whole = all(
        len(part) == (len(parts[0]) if at < len(parts) - 1 else min(len(part), len(parts[0])))
        and np.array_equal(part, steps[0] + np.arange(len(part)))
        for at, part in enumerate(parts)
    )
    return float(len(parts[0])) if is_whole else None
