"""What a trainer says about every step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One training step. Loss and norms may be NaN or infinite: that is data, and it is recorded.

    step counts from 0; loss includes z-loss; lm_loss is the cross entropy in nats per token and is what is judged;
    norms are l2 norms over all parameters, `grad_norm` before clipping and `param_norm` after the update; tokens is the
    number of tokens trained on up to and including this step; nonfinite_inputs counts the NaN and infinite values that
    reached a quantizer; validation_loss is there only for steps after which it was evaluated.
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
    nonfinite_inputs: float
    validation_loss: float | None = None
