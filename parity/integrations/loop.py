"""A training loop of your own, in any framework, on one process or many.

    from parity.integrations.loop import Loop

    with Loop(recipe="nvfp4", name="nvfp4-seed1") as record:
        for step, batch in enumerate(batches):
            loss = train(batch)
            record.log(step, loss=loss)

Over `parity.Run` it adds: only rank 0 writes, a run without an id is kept on disk, and micro-steps
become optimizer steps.
"""

import logging
import os
import time
from types import TracebackType
from typing import Any, Self

from parity.client.run import Run
from parity.integrations.rank import RankError, is_writer
from parity.judged_loss import JUDGED_LOSS

_log = logging.getLogger("parity")


class Loop:
    """A run that is recorded by rank 0 alone.

    Args:
        run: id of the run; default PARITY_RUN. Without one the steps are kept on disk, and a
            warning says how to send them.
        name: of a run without an id, the same after a restart (letters, digits and _ . -). Without
            one each Loop keeps its own.
        options: any other argument of `parity.Run`, such as `recipe`, `server`, `manifest`.

    `parity.Run` is made at the first value: then every framework has its process group.
    """

    def __init__(self, run: str | None = None, *, name: str | None = None, **options: Any) -> None:
        self._arguments = {
            "run": run,
            "offline": name or f"{time.time_ns()}-{os.getpid()}",
            **options,
        }
        self._run: Run | None = None
        self._is_open = False
        self._last_step = -1
        self._micro_steps: list[tuple[Any, Any]] = []

    def micro_step(self, loss: Any, weight: float = 1.0) -> None:
        """Add the loss of one micro-batch, in nats per token, to the next optimizer step; `weight`
        is its number of tokens.
        """
        if self._open() is not None:
            # An array that can change is read now. A jax array can't, and is read in the
            # background.
            self._micro_steps.append(
                (loss if hasattr(loss, "block_until_ready") else float(loss), weight)
            )

    def log(self, step: int | None, *, loss: Any = None, **values: Any) -> None:
        """Log an optimizer step: `loss`, else the mean of its micro-steps. See `parity.Run.log` for
        `values`.

        A `step` of None logs nothing: more micro-steps follow. So does the number that was logged
        last, if the optimizer skipped them. Over several ranks pass the mean: rank 0 does not know
        the others' losses.
        """
        run = self._open()
        if run is None or step is None:
            return
        if self._micro_steps:
            if loss is not None:
                raise ValueError(
                    f"step {step} has a loss and {len(self._micro_steps)} micro-steps; expected "
                    "one or the other"
                )
            if step == self._last_step:
                return
            loss, self._micro_steps = _Mean(self._micro_steps), []
        if loss is not None or JUDGED_LOSS in values:
            self._last_step = step
        run.log(step, loss=loss, **values)

    def flush(self) -> None:
        """Wait until everything that was logged is on disk; call it when a checkpoint is saved."""
        if self._run is not None:
            self._run.flush()

    def finish(self) -> None:
        """End the run, and wait up to a minute for the server."""
        if self._run is not None:
            self._run.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._run is not None:
            self._run.__exit__(kind, error, trace)

    def _open(self) -> Run | None:
        """The run; None on all ranks but 0."""
        if not self._is_open:
            self._is_open = True
            try:
                writes = is_writer()
            except RankError as error:
                _log.warning("%s; nothing is recorded", error)
                return None
            if writes:
                self._run = Run(**self._arguments)
        return self._run


class _Mean:
    """The weighted mean of losses that may not be computed yet; `parity.Run` reads it in the
    background, as it does a jax array.
    """

    def __init__(self, losses: list[tuple[Any, float]]) -> None:
        self._losses = losses

    def block_until_ready(self) -> Self:
        return self

    def __float__(self) -> float:
        total = sum(float(weight) for _, weight in self._losses)
        if not total > 0:
            raise ValueError(
                f"the weights of its {len(self._losses)} micro-steps add up to {total}, expected "
                "more than 0"
            )
        return sum(float(loss) * float(weight) for loss, weight in self._losses) / total
