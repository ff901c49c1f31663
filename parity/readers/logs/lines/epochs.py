"""Steps that restart with each epoch, continued: epoch 2 follows the last step of epoch 1.

They are continued only where the log says that they restart: it prints the number of the epoch and
what the steps of each count to, and they go back exactly where the epoch goes on. Anything else
that goes back may be another run, or a restart.
"""

import numpy as np

from parity.judging.curves.curve import FloatArray

Places = tuple[FloatArray, FloatArray]
"""Keys (n,) of lines, which increase, and the numbers (n,) that they print."""


def continued_steps(
    keys: FloatArray, steps: FloatArray, epochs: Places, lengths: Places
) -> tuple[FloatArray, float | None]:
    """Steps (n,) of lines with these keys (n,), continued over the epochs, and the length of an
    epoch; the steps as they are, and None, where they do not restart with each epoch.
    """
    if not len(epochs[0]) or not len(lengths[0]) or not np.isin(keys, lengths[0]).all():
        return steps, None
    length = lengths[1][np.isin(lengths[0], keys)]
    at = np.searchsorted(epochs[0], keys, side="right") - 1
    if (length != length[0]).any() or (at < 0).any() or (steps > length[0]).any():
        return steps, None
    epoch = epochs[1][at]
    continued = (epoch - epoch[0]) * length[0] + steps
    goes_on = epoch[1:] != epoch[:-1]
    restarts = steps[1:][goes_on] <= steps[:-1][goes_on]
    if not len(restarts) or not restarts.all() or (np.diff(continued) < 0).any():
        return steps, None
    return continued, float(length[0])
