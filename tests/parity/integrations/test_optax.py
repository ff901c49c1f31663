"""`finished_step` against a real `optax.MultiSteps`."""

import sys

import jax
import jax.numpy as jnp
import optax
import pytest

from parity.integrations.loop import Loop
from parity.integrations.optax import finished_step


def test_calls_of_multi_steps_become_optimizer_steps_also_after_a_restart(spools):
    optimizer = optax.chain(optax.clip(1.0), optax.MultiSteps(optax.adam(0.1), 3))
    params = jnp.zeros(2)
    state = optimizer.init(params)
    assert finished_step(state) is None
    saved = None
    for first, last in ((0, 8), (6, 12)):  # the second process begins after two steps
        state = state if saved is None else saved
        with Loop(name="fp8") as record:
            for call in range(first, last):
                _, state = optimizer.update(jnp.ones(2), state, params)
                record.micro_step(jnp.float32(call))
                record.log(finished_step(state))
                if call == 5:
                    saved = state
    first, second = spools("unnamed-fp8")
    assert [(row["step"], row["loss"]) for row in first[:-1]] == [(0, 1.0), (1, 4.0)]
    assert [(row["step"], row["loss"]) for row in second[:-1]] == [(2, 7.0), (3, 10.0)]


def test_jax_has_what_the_rule_of_ranks_reads():
    assert jax.distributed.is_initialized() is False
    assert isinstance(sys.modules["jax._src.xla_bridge"]._backends, dict)
    assert (jax.process_count(), jax.process_index()) == (1, 0)


def test_a_state_in_a_mapping_is_seen():
    state = (
        optax.MultiSteps(optax.sgd(0.1), 2).init(jnp.zeros(2))._replace(gradient_step=jnp.int32(7))
    )
    assert finished_step({"params": [1, 2], "opt": [state]}) == 6


@pytest.mark.parametrize("states", [0, 2])
def test_none_or_several_are_refused(states):
    state = optax.MultiSteps(optax.sgd(0.1), 2).init(jnp.zeros(2))
    with pytest.raises(ValueError, match=f"contains {states} states of optax.MultiSteps"):
        finished_step((optax.EmptyState(), [state] * states))
