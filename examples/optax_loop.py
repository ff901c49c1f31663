"""A training loop of jax and optax that logs to parity: the three lines with `parity` in them are
all that it takes.

parity submit examples/external.yaml           # prints the job; `parity status JOB` lists its runs
PARITY_RUN=r… python examples/optax_loop.py    # one for each run, with the recipe of its arm
"""

import jax
import jax.numpy as jnp
import optax

import parity

STEPS = 200


def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error of a linear model; put your own here, in nats a token."""
    return jnp.mean((x @ weights - y) ** 2)


def main() -> None:
    """Train."""
    optimizer = optax.adamw(0.1)
    weights = jnp.zeros(8)
    state = optimizer.init(weights)
    truth = jnp.arange(8.0)

    @jax.jit
    def train(weights, state, step):
        x = jax.random.normal(jax.random.key(step), (64, 8))
        loss, gradient = jax.value_and_grad(loss_of)(weights, x, x @ truth)
        update, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, update), state, loss, optax.global_norm(gradient)

    with parity.Run() as run:
        for step in range(STEPS):
            weights, state, loss, grad_norm = train(weights, state, step)
            run.log(step=step, loss=loss, grad_norm=grad_norm)


if __name__ == "__main__":
    main()
