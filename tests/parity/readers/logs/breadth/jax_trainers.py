"""The shapes of trainers in JAX, as the sources in sources.toml print them."""

import json
import pprint
from collections.abc import Sequence

from tests.parity.readers.logs.breadth.bars import tqdm_bar
from tests.parity.readers.logs.breadth.numbers import STEPS, Arm
from tests.parity.readers.logs.breadth.shape import Shape, digits, lines


def _absl(file: str, line: int) -> str:
    return f"I1129 10:00:00.123456 140028551105408 {file}:{line}] "


def _clu(arm: Arm, at: int) -> str:
    head = f"{_absl('logging_writer.py', 48)}[{at + 1}] collection="
    text = (
        f"{head}train accuracy={0.3:.6g}, learning_rate={arm.rates[at]:.6g}, "
        f"loss={arm.losses[at]:.6g}\n"
    )
    if (held_out := arm.evaluation(at)) is not None:
        text += f"{head}eval accuracy={0.29:.6g}, loss={held_out:.6g}\n"
    return text


def _big_vision_metrics(arm: Arm, at: int) -> str:
    row = {
        "step": at + 1,
        "global_schedule": arm.rates[at] / 3e-4,
        "training_loss": arm.losses[at],
        "l2_grads": 1.25,
        "l2_params": 812.5,
        "img/sec/core": 410.5,
    }
    if (held_out := arm.evaluation(at)) is not None:
        row["val/loss"] = held_out
    return json.dumps(row) + "\n"


def _big_vision_log(arm: Arm, at: int) -> str:
    shown = {
        "global_schedule": arm.rates[at] / 3e-4,
        "training_loss": arm.losses[at],
        "l2_grads": 1.25,
    }
    if (held_out := arm.evaluation(at)) is not None:
        shown["val/loss"] = held_out
    head = f"{_absl('utils.py', 1083)}\x1b[35m[{at + 1}]\x1b[0m "
    return "".join(f"{head}{name} = {value}\n" for name, value in shown.items())


class _Array:
    """A number as jax prints an array of it."""

    def __init__(self, number: float) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"Array({self._number:.8g}, dtype=float32)"


def _easylm(arm: Arm, at: int) -> str:
    record = {
        "step": at,
        "accuracy": _Array(0.3),
        "gradient_norm": _Array(1.25),
        "learning_rate": _Array(arm.rates[at]),
        "loss": _Array(arm.losses[at]),
        "param_norm": _Array(812.5),
    }
    bar = f"{100 * at // STEPS:3d}% {at}/{STEPS} [00:10<06:30,  1.00s/it]"
    return f"\n{pprint.pformat(record)}\n\n\r{bar}"


def _haiku(arm: Arm, at: int) -> str:
    record = {"loss": arm.losses[at], "step": float(at), "steps_per_sec": 3.25}
    return f"{_absl('train.py', 236)}{record}\n"


def _trax(arm: Arm, at: int) -> str:
    head = f"Step {at + 1: 6d}: "
    text = f"\n{head}Ran 1 train steps in 0.25 secs\n"
    text += f"{head}train {'CrossEntropyLoss'.rjust(16)} | {arm.losses[at]: .8f}\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += f"{head}eval  {'CrossEntropyLoss'.rjust(16)} | {held_out: .8f}\n"
        text += f"{head}eval  {'Accuracy'.rjust(16)} | {0.29: .8f}\n"
    return text


def _run_clm_flax(arm: Arm, at: int) -> str:
    step = at + 1
    text = (
        f"Training...:  {100 * step // STEPS:2d}%|#   | {step}/{STEPS} [00:10<06:30,  1.00s/it]\r"
    )
    text += f"Step... ({step} | Loss: {arm.losses[at]}, Learning Rate: {arm.rates[at]})\n"
    if (held_out := arm.evaluation(at)) is not None:
        text += "Evaluating...: 100%|####| 20/20 [00:01<00:00, 20.00it/s]\r"
        text += f"Step... ({step} | Eval Loss: {held_out} | Eval Perplexity: 11.25)\n"
    return text


def _midgpt(arms: Sequence[Arm]) -> str:
    arm = arms[0]
    states, evaluated = ["  0%|          | 0/400 [00:00<?, ?it/s]"], (8.01, 8.02)
    for at, (loss, rate) in enumerate(zip(arm.losses, arm.rates, strict=True)):
        if (held_out := arm.evaluation(at)) is not None:
            evaluated = (held_out - 0.1, held_out)
        postfix = {
            "loss": f"{loss:.3g}",
            "lr": f"{rate:.3g}",
            "thpt": "512",
            "train_loss": f"{evaluated[0]:.3g}",
            "val_loss": f"{evaluated[1]:.3g}",
        }
        states.append(tqdm_bar("", at + 1, STEPS, postfix))
    return "Model has 123456 parameters.\n" + "\r".join(states) + "\n"


JAX_SHAPES = {
    "CLU logging writer": Shape(lines(_clu), loss=digits(".6g"), rate=digits(".6g")),
    "big_vision metrics file": Shape(lines(_big_vision_metrics), "big_vision_metrics.txt"),
    "big_vision log": Shape(lines(_big_vision_log)),
    "EasyLM": Shape(lines(_easylm), first=0, loss=digits(".8g"), rate=digits(".8g")),
    "dm-haiku transformer": Shape(lines(_haiku), first=0),
    "trax": Shape(lines(_trax), loss=digits(".8f")),
    "transformers run_clm_flax": Shape(lines(_run_clm_flax), rate=float),
    "midGPT": Shape(_midgpt, loss=digits(".3g"), rate=digits(".3g")),
}
