"""A synthetic language of known entropy, which gives a lower bound for the loss of any trainer.

What it answers: is a training loss possible? For a Markov chain of order 2 over 16 symbols the
best loss per token is

    H = - sum over contexts c of  pi(c) sum over symbols s of  P(s | c) ln P(s | c),   pi = the
                                  stationary distribution

and a mean loss below H, beyond the noise of the sample, is a bug: a leak of the target into the
input, or a wrong mean.

The assumption that can fail: the tokens are 512 independent chains one after another, so the
first two of every 4,096 tokens are not drawn from P; that can only raise the loss.

Rows of P are drawn from a Dirichlet distribution of concentration 0.1: each context has a few
likely successors.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

SYMBOLS = 16
_CHAINS, _LENGTH = 512, 4096
_CONCENTRATION = 0.1


@cache
def transitions() -> npt.NDArray[np.float64]:
    """P (16, 16, 16): the probability of a symbol after two others, oldest first."""
    return np.random.default_rng(16).dirichlet(np.full(SYMBOLS, _CONCENTRATION), (SYMBOLS, SYMBOLS))


@cache
def entropy_rate() -> float:
    """H in nats per token, with the stationary distribution by power iteration on the pairs of
    symbols.
    """
    pair = np.full((SYMBOLS, SYMBOLS), SYMBOLS**-2.0)
    for _ in range(2000):
        pair = np.einsum("ab,abc->bc", pair, transitions())
    logarithm = np.log(np.maximum(transitions(), 1e-300))
    return -float(np.einsum("ab,abc,abc->", pair, transitions(), logarithm))


@cache
def tokens() -> npt.NDArray[np.uint8]:
    """2,097,152 tokens, always the same."""
    random = np.random.default_rng(17)
    cumulative = np.cumsum(transitions(), axis=-1)
    chains = np.empty((_LENGTH, _CHAINS), np.uint8)
    chains[:2] = random.integers(0, SYMBOLS, (2, _CHAINS))
    for step in range(2, _LENGTH):
        threshold = cumulative[chains[step - 2], chains[step - 1]]
        chains[step] = np.minimum(
            np.sum(random.random((_CHAINS, 1)) > threshold, axis=1), SYMBOLS - 1
        )
    return np.ascontiguousarray(chains.T).reshape(-1)
