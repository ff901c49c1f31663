"""The table of the emulated engine's own reruns, from its records."""

import json

import numpy as np
import pytest

from parity.judging.noise.emulated_table import SMALL
from parity.judging.noise.noise_table import read_noise_table
from tools.tables.emulated_noise import emulated_csv, late_means, spreads


def demo_run(recipe, seed, replicate, late):
    return json.dumps(
        {"recipe": recipe, "seed": seed, "replicate": replicate, "losses": [9.0] * 80 + [late] * 20}
    )


def other_run(cell, recipe, late):
    return json.dumps({"cell": cell, "recipe": recipe, "part_means": [9.0] * 32 + [late] * 8})


@pytest.mark.parametrize("seed_sd", [0.0, 0.006])
def test_the_demos_noise_is_that_of_one_run_of_its_own_seed(seed_sd):
    """Runs of known noise, and gaps that depend on the seed: the variances add up, however many
    replicates a seed has.
    """
    rng = np.random.default_rng(0)
    offsets = rng.normal(0.0, 0.05, 2000)
    means = {
        "fp8_current": (1.4, 0.0028, (1, 2), 0.0),
        "mxfp8": (1.4, 0.0028, (2, 1), 0.0),
        "nvfp4": (1.43, 0.0057, (1, 3), seed_sd),
    }
    records = [
        demo_run(recipe, seed, number, level + offset + seed_offset + sd * rng.normal())
        for recipe, (level, sd, runs, seed_spread) in means.items()
        for seed, offset in enumerate(offsets)
        for seed_offset in [seed_spread * rng.normal()]
        for number in range(runs[seed % 2])
    ]
    by_recipe = spreads(late_means("\n".join(records)))
    near, far = by_recipe["fp8_current"], by_recipe["nvfp4"]
    assert near.variance == pytest.approx(0.0028**2, rel=0.07)
    assert far.variance == pytest.approx(
        0.0057**2 + seed_sd**2 + 0.0028**2 * (0.5 * 1.5 / 2.0), rel=0.07
    )
    assert far.replicates == pytest.approx(0.0057**2, rel=0.07)
    assert (far.seeds_chance < 1e-6) == (seed_sd > 0.0)
    assert near.seeds_chance > 1e-3


def test_the_parts_of_the_demos_noise_by_hand():
    lates = {
        "fp8_current": {0: [1.40, 1.42], 1: [1.50], 2: [1.60]},
        "mxfp8": {0: [1.41], 1: [1.51, 1.51], 2: [1.58]},
        "nvfp4": {0: [1.44, 1.46, 1.45], 1: [1.55], 3: [1.6]},
    }
    by_recipe = spreads(lates)
    near, far = by_recipe["fp8_current"], by_recipe["nvfp4"]
    gaps = [0.0, -0.01 / 2**0.5, 0.02 / 2**0.5]
    assert near.seeds == pytest.approx(np.var(gaps, ddof=1))
    assert near.replicates == pytest.approx(2 * 0.01**2 / 2)
    assert near.variance == pytest.approx(near.seeds + (1 - 5 / 6) * near.replicates)
    assert far.seeds == pytest.approx((0.04 - 0.045) ** 2 / 2)
    assert far.replicates == pytest.approx(2 * 0.01**2 / 2)
    assert far.variance == pytest.approx(far.seeds + (1 - 2 / 3) * far.replicates)


def test_few_runs_of_the_demo_make_no_group():
    records = [
        demo_run(recipe, 0, number, 1.4 + 0.01 * number)
        for recipe in ("fp8_current", "mxfp8", "nvfp4")
        for number in range(2)
    ]
    others = [other_run("1M x 500", "fp8_current", late) for late in (1.3, 1.31, 1.32)]
    assert set(read_noise_table(emulated_csv("\n".join(records), "\n".join(others))).families) == {
        SMALL
    }


def test_other_set_ups_are_groups_but_for_those_whose_rate_never_decayed():
    records = [
        other_run(cell, "fp8_current", late)
        for cell in ("1M x 500", "1M x 500 constant")
        for late in (1.3, 1.31, 1.32)
    ]
    (only,) = read_noise_table(emulated_csv("", "\n".join(records))).families[SMALL].groups
    assert (only.group, only.runs, only.rounding, only.schedule) == (
        "1M x 500, fp8_current",
        3,
        "nearest",
        "finished",
    )
    assert (only.mean_loss, only.sd) == pytest.approx((1.31, 0.01))
