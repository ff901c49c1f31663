"""What an earlier run says about a planned experiment: loss near its end, recipe, rounding, family of reruns, time per step, log interval.

level         mean of the finite losses over the last fifth of the run's points
step_seconds  as the run's config states it, else the median of the logged times per step
log_every     the most common interval between logged losses

Can fail: a run that was shorter, or longer, than the planned one ends at another loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import Rounding, usable
from parity.readers import ReadError, read_with_config
from parity.readers.trackers import FAMILY

LAST_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What a run states, None for what it does not; `level` in nats, `words` for the report."""

    level: float
    recipe: str | None
    rounding: Rounding | None
    family: str | None
    step_seconds: float | None
    log_every: int
    words: str


def likeness(name: str, columns: Mapping[str, str]) -> Likeness:
    """What the run in a file or a tracker states. Raises ReadError where it cannot be read, or has no finite loss near its end."""
    curve, facts = read_with_config(name, columns=columns)
    late = curve.loss[-max(1, round(LAST_SHARE * len(curve.loss))) :]
    finite = late[usable(late)]
    if not len(finite):
        raise ReadError(f"{name}: the last fifth of the run has no finite loss; expected a run that converged")
    logged = curve.columns.get("step_seconds", np.empty(0))
    logged = logged[np.isfinite(logged) & (logged > 0.0)]
    seconds = facts.step_seconds
    if seconds is None and len(logged):
        seconds = float(np.median(logged))
    level, family = float(finite.mean()), curve.context.get(FAMILY)
    known = {"loss": f"{level:.4g}", "recipe": curve.recipe, "rounding": curve.rounding, "family": family}
    stride = curve.completeness.stride or 1
    known["logged every"] = f"{stride:,} steps" if stride > 1 else None
    known["seconds per step"] = None if seconds is None else f"{seconds:.4g}"
    stated = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
    return Likeness(
        level=level,
        recipe=curve.recipe,
        rounding=curve.rounding,
        family=family,
        step_seconds=seconds,
        log_every=stride,
        words=f"From {curve.label or name}: {stated}.",
    )
