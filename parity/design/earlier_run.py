"""What an earlier run says about a planned experiment: loss near its end, recipe, rounding, family
of reruns, time per step, log interval.

level         mean of the finite losses over the last fifth of the run's points
pair_sd       the larger of 0.11 % of the level and 0.15 of the run's own batch noise there
step_seconds  as the run's config states it, else the median of the logged times per step
log_every     the most common interval between logged losses

One run does not show what its batch noise leaves in the difference of a pair. It was 0.025 to
0.055 of it in 9 of 12 public pairs with one data order (torchtitan_gb200,
llama31_8b_160b_train_tail, rtx6000_277m), 0.21 to 0.24 in the other three, and 0.11 to 0.15 in
the emulated pairs of examples/curves.

Can fail: a run that was shorter, or longer, than the planned one ends at another loss; a pair
whose data order differs keeps all of its batch noise.
"""

from collections.abc import Mapping

import numpy as np

from parity.design.experiment import PAIR_SD
from parity.frozen import frozen
from parity.judging.curves.curve import Rounding, usable
from parity.judging.curves.step_noise import step_noise
from parity.readers import read_with_config
from parity.readers.errors import ReadError
from parity.readers.run_config import FAMILY

LAST_SHARE = 0.2
_SHARED = 0.15  # what a pair keeps of a run's batch noise


@frozen
class Likeness:
    """What a run states, None for what it does not; `level` and `pair_sd` in nats, `words` for the
    report.
    """

    level: float
    pair_sd: float
    recipe: str | None
    rounding: Rounding | None
    family: str | None
    step_seconds: float | None
    log_every: int
    words: str


def likeness(name: str, columns: Mapping[str, str]) -> Likeness:
    """What the run in a file or a tracker states. Raises ReadError where it cannot be read, or has
    no finite loss near its end.
    """
    curve, facts = read_with_config(name, columns=columns)
    late = curve.loss[-max(1, round(LAST_SHARE * len(curve.loss))) :]
    finite = late[usable(late)]
    if not len(finite):
        raise ReadError(
            f"{name}: the last fifth of the run has no finite loss; expected a run that converged"
        )
    logged = curve.columns.get("step_seconds", np.empty(0))
    logged = logged[np.isfinite(logged) & (logged > 0.0)]
    seconds = facts.step_seconds
    if seconds is None and len(logged):
        seconds = float(np.median(logged))
    level, family = float(finite.mean()), curve.context.get(FAMILY)
    pair_sd = min(max(PAIR_SD.nats(level), _SHARED * step_noise(finite)), abs(level))
    properties = {
        "loss": f"{level:.4g}",
        "recipe": curve.recipe,
        "rounding": curve.rounding,
        "family": family,
    }
    stride = curve.completeness.stride or 1
    properties["logged every"] = f"{stride:,} steps" if stride > 1 else None
    properties["seconds per step"] = None if seconds is None else f"{seconds:.4g}"
    stated = ", ".join(f"{key} {value}" for key, value in properties.items() if value is not None)
    return Likeness(
        level=level,
        pair_sd=pair_sd,
        recipe=curve.recipe,
        rounding=curve.rounding,
        family=family,
        step_seconds=seconds,
        log_every=stride,
        words=f"From {curve.label or name}: {stated}.",
    )
