"""Copies and forks given as runs of their own: they must not measure the run-to-run noise."""

from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, with_loss

STRICT = {"margin": "1%", "assumed_noise": "reject"}
ASSUMED = ("RUN_NOISE_ASSUMED",)
Copy = Callable[[Curve, int, Runs], Curve]


def ema(run: Curve, weight: float) -> Curve:
    """The run, exponentially averaged."""
    start = np.array([weight * run.loss[0]])
    return with_loss(run, lfilter([1.0 - weight], [1.0, -weight], run.loss, zi=start)[0])


def noisy(run: Curve, number: int, sd: float) -> Curve:
    """The run with white noise."""
    return with_loss(run, run.loss + np.random.default_rng(number).normal(0.0, sd, len(run.loss)))


def one_step(run: Curve, number: int) -> Curve:
    """The run with 0.0002 nats more at one step."""
    loss = run.loss.copy()
    loss[1000 + number] += 2e-4
    return with_loss(run, loss)


def forked(run: Curve, other: Curve, share: float) -> Curve:
    """The run up to a share of its length, another rerun from there on, joined without a jump."""
    n = round(share * len(run.loss))
    late = other.loss[n:] - other.loss[n:].mean() + run.loss[n:].mean()
    return with_loss(run, np.concatenate([run.loss[:n], late]))


def replicates(copy: Copy) -> Build:
    """Both arms with two copies of their only run, under a policy that wants the run-to-run noise
    measured.
    """

    def build(runs: Runs) -> Case:
        arms = [[run, *(copy(run, number, runs[2:]) for number in (1, 2))] for run in runs[:2]]
        return Case(base=arms[0], cand=arms[1], policy=STRICT)

    return build


def three_against_three(runs: Runs) -> Case:
    """Three real reruns an arm."""
    return Case(base=runs[:3], cand=runs[3:6], policy=STRICT)


def controls(copy: Copy) -> Build:
    """One real replicate of the candidate, and copies of the baseline as controls."""

    def build(runs: Runs) -> Case:
        options = {
            "assume_complete": True,
            "controls": [copy(runs[0], number, runs[3:]) for number in (1, 2, 3)],
        }
        return Case(base=[runs[0]], cand=[runs[1], runs[2]], policy=STRICT, options=options)

    return build


def real_controls(runs: Runs) -> Case:
    """One real replicate of the candidate, and three real controls."""
    return Case(
        base=[runs[0]],
        cand=[runs[1], runs[2]],
        policy=STRICT,
        options={"assume_complete": True, "controls": list(runs[3:6])},
    )


def relabelled(runs: Runs) -> Case:
    """One pair copied to five seeds."""
    base, cand = ([with_loss(run, run.loss, seed=seed) for seed in range(5)] for run in runs[:2])
    return Case(base=base, cand=cand, policy=STRICT)


def two_seeds(runs: Runs) -> Case:
    """Two seeds with a run an arm."""
    base, cand = (
        [with_loss(run, run.loss, seed=seed) for seed, run in enumerate(pair)]
        for pair in (runs[:2], runs[2:4])
    )
    return Case(base=base, cand=cand, policy=STRICT)


def two_each(runs: Runs) -> Case:
    """Two real reruns an arm: 2 degrees of freedom."""
    return Case(base=runs[:2], cand=runs[2:4], policy=STRICT)


def one_arm_only(runs: Runs) -> Case:
    """Five real reruns of the baseline and one of the candidate."""
    return Case(base=runs[:5], cand=[runs[5]], policy=STRICT)


def parent(run: Curve, _: int, others: Runs) -> Curve:
    """Another rerun whose record says that it is a fork."""
    other = others[_ % len(others)]
    return curve_from_arrays(
        other.steps,
        other.loss,
        rounding=other.rounding,
        context={"forked_from": "run 7 at step 1,400"},
    )


REAL = {"twin": "three real reruns an arm", "honest": three_against_three}
CONTROL = {"twin": "three real controls and a real replicate", "honest": real_controls}
COPIES: dict[str, Copy] = {
    "equal bit for bit": lambda run, _, __: with_loss(run, run.loss),
    "with 4 decimals": lambda run, _, __: with_loss(run, run.loss.round(4)),
    "with 3 decimals": lambda run, _, __: with_loss(run, run.loss.round(3)),
    "with 2 decimals": lambda run, _, __: with_loss(run, run.loss.round(2)),
    "as float16": lambda run, _, __: with_loss(run, run.loss.astype(np.float16).astype(float)),
    "averaged with weight 0.05": lambda run, _, __: ema(run, 0.05),
    "averaged with weight 0.5": lambda run, _, __: ema(run, 0.5),
    "averaged with weight 0.9": lambda run, _, __: ema(run, 0.9),
    "averaged with weight 0.99": lambda run, _, __: ema(run, 0.99),
    "0.0002 nats off at one step": lambda run, number, _: one_step(run, number),
    "with noise of 0.0003 nats": lambda run, number, _: noisy(run, number, 3e-4),
    "with noise of 0.001 nats": lambda run, number, _: noisy(run, number, 1e-3),
    "moved by 0.002 nats": lambda run, number, _: with_loss(run, run.loss + 2e-3 * number),
    "with every second step": lambda run, number, _: kept(run, slice(number - 1, None, 2)),
    "forked at 20 %": lambda run, number, others: forked(run, others[number], 0.2),
    "forked at 50 %": lambda run, number, others: forked(run, others[number], 0.5),
    "forked at 80 %": lambda run, number, others: forked(run, others[number], 0.8),
    "forked at 95 %": lambda run, number, others: forked(run, others[number], 0.95),
    "forked at 50 %, the log cut off before": lambda run, number, others: kept(
        forked(run, others[number], 0.5), slice(900, None)
    ),
    "forked, as the record says": parent,
}

ATTACKS = (
    *(
        Attack(
            what=f"replicates that are copies {name}"
            if not name.startswith("forked")
            else f"replicates {name}",
            build=replicates(copy),
            codes=ASSUMED,
            **REAL,
        )
        for name, copy in COPIES.items()
    ),
    *(
        Attack(
            what=f"controls that are copies {name}"
            if not name.startswith("forked")
            else f"controls {name}",
            build=controls(COPIES[name]),
            codes=ASSUMED,
            **CONTROL,
        )
        for name in (
            "equal bit for bit",
            "with 3 decimals",
            "averaged with weight 0.9",
            "with noise of 0.001 nats",
            "forked at 80 %",
        )
    ),
    Attack(what="one pair copied to five seeds", build=relabelled, codes=ASSUMED, **REAL),
    Attack(
        what="two seeds, where measured noise is asked for", build=two_seeds, codes=ASSUMED, **REAL
    ),
    Attack(
        what="two reruns an arm, where measured noise is asked for",
        build=two_each,
        codes=ASSUMED,
        **REAL,
    ),
    Attack(
        what="five reruns of one arm, none of the other", build=one_arm_only, codes=ASSUMED, **REAL
    ),
)
