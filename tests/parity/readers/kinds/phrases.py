"""How logs call the loss: with hyphens, as that of the step, with its average, in bits."""

import math

from tests.parity.readers.kinds.kind import LOSSES, STEPS, Kind, lines

PHRASES = {
    "train-loss = ": Kind(
        lines("[INFO] step = {s}, train-loss = {x}, learning_rate = {r:.7f}"), has_rate=True
    ),
    "step_loss=": Kind(lines("step {s}: step_loss={x}")),
    "train_step_loss": Kind(lines("step {s} train_step_loss {x}")),
    "batch_loss": Kind(lines("iter {s} batch_loss: {x}")),
    "loss with its average": Kind(lines("step: {s} loss: {x} (2.4000) lr: {r:.7f}"), has_rate=True),
    "loss and avg_loss": Kind(lines("step {s} avg_loss 2.4 loss {x}")),
    "cross_entropy_loss": Kind(lines("step={s} cross_entropy_loss={x}")),
    "CE loss": Kind(lines("step {s} | CE loss {x}")),
    "ce_loss, z_loss": Kind(lines("step {s} z_loss 0.001 ce_loss {x}")),
    "Loss/train": Kind(lines("step {s} Loss/train: {x}")),
    "train.loss": Kind(lines("step={s} train.loss={x} train.lr={r:.7f}"), has_rate=True),
    "Training Loss": Kind(lines("Step: {s} - Training Loss: {x}")),
    "lm-loss": Kind(lines("iteration {s} lm-loss: {x}")),
    "nll": Kind(lines("update {s} nll_loss={x}")),
    "JSON with quotes": Kind(lines('{{"step": "{s}", "loss": "{x}"}}')),
}
FAIRSEQ = "".join(
    f'2026-01-01 | INFO | train_inner | {{"epoch": 1, "update": {step / 40:.3f}, "loss": '
    f'"{loss / math.log(2):.3f}", "ppl": "{math.exp(loss):.2f}", "num_updates": "{step}", '
    '"lr": "1e-05"}\n'
    for step, loss in zip(STEPS, LOSSES, strict=True)
)
