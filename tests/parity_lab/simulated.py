"""An analysis of a simulated candidate: each unit costs a known number of nats, and forks differ by
known noise.
"""

import zlib

import numpy as np

from parity_lab.analysis import next_measurement
from parity_lab.analysis_plan import make_setup

UNITS = tuple(
    f"{block}.{name}.{gemm}"
    for gemm in ("fprop", "dgrad", "wgrad")
    for block in range(2)
    for name in ("gate", "down")
)
SD = 0.001


def setup_of(**changes):
    values = {
        "units": UNITS,
        "ingredients": ("rht",),
        "parents": ("r0", "r1", "r2"),
        "fork_step": 600,
        "run_steps": 1000,
    }
    return make_setup(**values | changes)


def bit_equal(steps):
    """The result of a replay that follows its record."""
    return {
        "compared": steps,
        "departs": None,
        "by": None,
        "first": 0.0,
        "mean": 0.0,
        "exact": True,
        "missing": None,
    }


def measure(setup, measurement, costs):
    """The result of a measurement, the same whenever it is made. Several units with one cost have
    it only together.
    """
    if measurement.replay is not None:
        return bit_equal(measurement.replay.steps)
    random = np.random.default_rng(zlib.crc32(measurement.key.encode()))
    on = (
        set(setup.units) - set(measurement.units)
        if measurement.way == "without"
        else set(measurement.units)
    )
    if measurement.kind == "instant":  # which sees the forward pass alone
        on = {unit for unit in on if unit.endswith("fprop")}
    loss = 2.0 + sum(
        cost
        for units, cost in costs.items()
        if on.issuperset([units] if isinstance(units, str) else units)
    )
    if measurement.kind == "instant":
        return (
            np.random.default_rng(1).normal(loss, 0.1, setup.batches)
            + random.normal(0, 1e-5, setup.batches)
        ).tolist()
    if measurement.kind == "gradients":
        names = ("all", *setup.units)
        return {
            name: [1.0, 0.9 + 0.01 * measurement.batch, 1.0, 0.01 * (1 + at), 0.001]
            for at, name in enumerate(names)
        }
    return 0.02 * measurement.parent + loss + float(random.normal(0, SD))


def results_of(setup, costs, most=10_000, earlier=None):
    """The results of a simulated analysis in the order of its measurements: `given` first, at most
    `most` in all.
    """
    results = {**(earlier or {})}
    while len(results) < most and (measurement := next_measurement(setup, results)) is not None:
        assert measurement.key not in results
        results[measurement.key] = measure(setup, measurement, costs)
    return results
