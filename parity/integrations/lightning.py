"""A callback for Lightning's Trainer.

    from parity.integrations.lightning import ParityCallback

    Trainer(…, callbacks=[ParityCallback(recipe="nvfp4", name="nvfp4-seed1")]).fit(model, data)

A callback and not a `Logger`: Lightning hands a logger one micro-batch's loss of every 50th step,
of one rank. This takes what `training_step` returns, averaged over micro-batches and ranks. Steps
are optimizer steps, from 0.
"""

from typing import Any

from parity.integrations.loop import Loop

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(
            f"parity.integrations.lightning needs lightning, which cannot be imported ({error}); "
            "install it: `pip install lightning`"
        ) from None


class ManualOptimizationError(ValueError):
    """The module steps its optimizers itself, so Lightning does not know which losses belong to a
    step.
    """


class ParityCallback(Callback):  # type: ignore[misc]  # the package is not installed where types are checked
    """Records training and validation losses of a Trainer.

    Args:
        run: id of the run; default PARITY_RUN. Without one the steps are kept on disk, and a
            warning says how to send them.
        validation: name under which the module logs its validation loss.
        options: any other argument of `Loop` and `parity.Run`, such as `recipe`, `name`, `server`,
            `manifest`.

    The loss that `training_step` returns must be the cross-entropy in nats per token, the mean over
    its micro-batch.
    """

    def __init__(
        self, run: str | None = None, *, validation: str = "val_loss", **options: Any
    ) -> None:
        self._run = run
        self._validation = validation
        self._options = options
        self._loop: Loop | None = None
        self._steps_before = 0
        self._losses: list[Any] = []
        self._learning_rate: float | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an attempt."""
        if not pl_module.automatic_optimization:
            raise ManualOptimizationError(
                "automatic_optimization is False, so the losses of a step are not known; log them "
                "with parity.integrations.loop"
            )
        self._loop = Loop(self._run, **self._options)
        self._steps_before = trainer.global_step
        self._losses = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the learning rate before the scheduler changes it."""
        self._learning_rate = float(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add a micro-batch, and record the step that it ends. Runs on every rank, because the mean
        is over all.
        """
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            # Lightning has divided it by the number of micro-batches, also where an epoch's last
            # step has fewer.
            self._losses.append(loss.detach().float() * trainer.accumulate_grad_batches)
        if trainer.global_step == self._steps_before or self._loop is None:
            return
        self._steps_before = trainer.global_step
        if self._losses:
            mean = trainer.strategy.reduce(sum(self._losses) / len(self._losses), reduce_op="mean")
            self._loop.log(trainer.global_step - 1, loss=mean, learning_rate=self._learning_rate)
        self._losses = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record a validation loss at the last step, apart from the training's; on disk at once: a
        checkpoint of that step can exist.
        """
        value = trainer.callback_metrics.get(self._validation)
        if (
            self._loop is not None
            and value is not None
            and trainer.global_step
            and not trainer.sanity_checking
        ):
            self._loop.log(trainer.global_step - 1, validation_loss=value)
            self._loop.flush()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Put on disk what a restart from this checkpoint will not log again."""
        if self._loop is not None:
            self._loop.flush()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the run."""
        if self._loop is not None:
            self._loop.finish()
