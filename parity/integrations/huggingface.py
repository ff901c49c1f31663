"""A callback for the Trainer of Hugging Face's transformers.

    from parity.integrations.huggingface import ParityCallback

    arguments = TrainingArguments("out/nvfp4", logging_steps=1, logging_nan_inf_filter=False, …)
    Trainer(model, arguments, …, callbacks=[ParityCallback(recipe="nvfp4")]).train()

Steps have the Trainer's numbers, from 1: an optimizer step each, whatever
`gradient_accumulation_steps` is.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from parity.integrations.loop import Loop

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        f"parity.integrations.huggingface needs transformers, which cannot be imported ({error}); "
        "install it: `pip install transformers`"
    ) from None

# What the Trainer logs with each step, under the same names as the record.
_VALUES = ("grad_norm", "learning_rate")


class NotTheLossError(ValueError):
    """The Trainer's arguments make it log something else than the loss of each step."""


class ParityCallback(TrainerCallback):  # type: ignore[misc]  # the package is not installed where types are checked
    """Records training and evaluation losses of a Trainer.

    Args:
        run: id of the run; default PARITY_RUN. Without one the steps are kept on disk, and a
            warning says how to send them.
        options: any other argument of `Loop` and `parity.Run`, such as `recipe`, `server`,
            `manifest`.

    Raises NotTheLossError at the beginning of the training, if its arguments hide losses.
    """

    def __init__(self, run: str | None = None, **options: Any) -> None:
        self._run = run
        self._options = options
        self._loop: Loop | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Refuse arguments that hide losses, and begin an attempt."""
        if problem := why_not_the_loss(
            args, state.logging_steps, getattr(more.get("model"), "config", None)
        ):
            raise NotTheLossError(problem)
        self._loop = Loop(self._run, **({"name": _name(args.output_dir)} | self._options))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Record a step, on disk before its checkpoint is. Logs without a loss are of an
        evaluation, or the summary at the end.
        """
        if self._loop is not None and logs and "loss" in logs:
            values = {name: logs[name] for name in _VALUES if name in logs}
            self._loop.log(state.global_step, loss=logs["loss"], **values)
            if control.should_save:  # next, a checkpoint that counts this step as done
                self._loop.flush()

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any
    ) -> None:
        """Record the loss of an evaluation at the last step, apart from the training's; on disk
        before a checkpoint of that step is.
        """
        if self._loop is not None and metrics and "eval_loss" in metrics:
            self._loop.log(state.global_step, validation_loss=metrics["eval_loss"])
            self._loop.flush()

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the run."""
        if self._loop is not None:
            self._loop.finish()


def why_not_the_loss(args: Any, logging_steps: float, config: Any = None) -> str | None:
    """Why a Trainer with these arguments does not log the loss of each step, with what to set; None
    where it does.
    """
    strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
    if strategy != "steps" or logging_steps != 1:
        every = {"epoch": "epoch", "steps": f"{logging_steps:g} steps"}.get(strategy, "training")
        return (
            f"the Trainer logs one mean loss per {every}, and parity needs each step's; set "
            "logging_steps=1 and logging_strategy='steps'"
        )
    if args.logging_nan_inf_filter:
        return (
            "the Trainer logs another number in place of a NaN or infinite loss; set "
            "logging_nan_inf_filter=False"
        )
    if args.label_smoothing_factor:
        return (
            f"label_smoothing_factor is {args.label_smoothing_factor:g}, so the logged loss is not "
            "the cross-entropy; "
            "set it to 0, or log the cross-entropy from your own loop with parity.integrations.loop"
        )
    if getattr(config, "output_router_logits", False):
        return (
            "output_router_logits is True, so the logged loss includes the router's auxiliary "
            "loss; "
            "log the cross-entropy as lm_loss from your own loop with parity.integrations.loop"
        )
    return None


def _name(output_dir: str | Path) -> str:
    """A name for the run of this folder: the same after a restart, another one for another
    folder.
    """
    path = Path(output_dir).resolve()
    words = re.sub(r"[^A-Za-z0-9_.-]", "-", path.name)[:40] or "run"
    return f"{words}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
