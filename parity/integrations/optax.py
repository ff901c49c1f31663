"""Gradient accumulation by `optax.MultiSteps`: which of its calls end an optimizer step.

    from parity.integrations.loop import Loop
    from parity.integrations.optax import finished_step

    with Loop(recipe="nvfp4", name="nvfp4-seed1") as record:
        for batch in batches:
            params, state, loss = train(params, state, batch)
            record.micro_step(loss)
            record.log(finished_step(state))

Without MultiSteps every call is a step: `record.log(step, loss=loss)`.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def finished_step(state: Any) -> int | None:
    """The optimizer step (from 0) that the last call ended; None in the middle of one. Waits for
    the call to end.

    Args:
        state: an optimizer's state that contains the state of one `optax.MultiSteps`; also after a
            restart from a checkpoint.

    Raises ValueError where it contains none, or several.
    """
    states = list(_multi_steps(state))
    if len(states) != 1:
        raise ValueError(
            f"the optimizer's state contains {len(states)} states of optax.MultiSteps, expected "
            "one; without MultiSteps log your own step number, with `record.log(step, loss=loss)`"
        )
    done = int(states[0].gradient_step)
    if done and int(states[0].mini_step) == 0:
        return done - 1
    return None


def _multi_steps(state: Any) -> Iterator[Any]:
    """The states of MultiSteps in a tree of tuples, lists and mappings, not those inside another
    one.
    """
    if hasattr(state, "mini_step") and hasattr(state, "gradient_step"):
        yield state
    elif isinstance(state, tuple | list):
        for part in state:
            yield from _multi_steps(part)
    elif isinstance(state, Mapping):
        for part in state.values():
            yield from _multi_steps(part)
