"""The values that a trainer reports for each step, and the error of a loss that is not finite."""

import math
from typing import Literal, get_args

from training.frozen import frozen

Projection = Literal["query", "key", "value", "out", "gate", "up", "down"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
LayerStatistics = tuple[tuple[float, ...], ...]


def layer_names(n_layers: int) -> tuple[str, ...]:
    """Names of the linear layers in the order of every record by layer: "0.query", "0.key", ...,
    "1.query", ...
    """
    return tuple(f"{block}.{projection}" for block in range(n_layers) for projection in PROJECTIONS)


@frozen
class StepStats:
    """One training step. Losses and norms may be NaN or infinite, and are recorded as such.

    step counts from 0. loss includes z-loss; lm_loss is the judged cross entropy in nats per token.
    Norms are l2 norms over all parameters, `grad_norm` before clipping and `param_norm` after the
    update. tokens counts the tokens trained on up to and including this step. data_wait_seconds is
    the time that the host needed to cut and send its tokens (while the device worked on earlier
    steps). nonfinite_inputs counts the NaN and infinite values that reached a quantizer.
    validation_loss is None unless it was evaluated after this step. tflops_per_device is the speed
    that the trainer computes by its own formula (10^12 operations per second and device), NaN if it
    computes none.

    By layer, in the order of `layer_names`: layer_grad_norms, before clipping; and on watched steps
    (`schedule.statistics_every`) layers (layers, columns) of `training.arithmetic.linear`, NaN for
    an operand that is not quantized.
    """

    step: int
    loss: float
    lm_loss: float
    learning_rate: float
    grad_norm: float
    clipped_grad_norm: float
    param_norm: float
    update_norm: float
    tokens: int
    step_seconds: float
    data_wait_seconds: float
    nonfinite_inputs: float
    layer_grad_norms: tuple[float, ...]
    layers: LayerStatistics | None = None
    validation_loss: float | None = None
    tflops_per_device: float = math.nan


class DivergedError(Exception):
    """The loss became NaN or infinite at `step`; that step was yielded before."""

    code = "DIVERGED"

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(
            f"loss of step {step} is not finite, expected a number; lower schedule.learning_rate, "
            "or accept the divergence as the result"
        )
