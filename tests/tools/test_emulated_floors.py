"""The table of the emulated engine's own reruns, from its records."""

import json

import numpy as np
import pytest

from parity.judging.floors.emulated import DEMO, SMALL, TABLE, fit_emulated
from parity.judging.floors.groups import read_floors
from tools.emulated_floors import EXPERIMENTS, emulated_csv


def demo_run(recipe, seed, replicate, late):
    return json.dumps({"recipe": recipe, "seed": seed, "replicate": replicate, "losses": [9.0] * 80 + [late] * 20})


def other_run(cell, recipe, late):
    return json.dumps({"cell": cell, "recipe": recipe, "part_means": [9.0] * 32 + [late] * 8})


def test_replicates_of_a_recipe_and_seed_are_a_group_of_the_demo():
    lates = {0: (1.40, 1.42), 1: (1.50, 1.54, 1.52), 2: (1.6,)}
    records = [demo_run("nvfp4", seed, number, late) for seed, own in lates.items() for number, late in enumerate(own)]
    floors = read_floors(emulated_csv("\n".join(records), ""))
    groups = {one.group: one for one in floors.families[DEMO].groups}
    assert {name: (one.runs, one.rounding) for name, one in groups.items()} == {
        "nvfp4 seed 0": (2, "stochastic"),
        "nvfp4 seed 1": (3, "stochastic"),
    }
    assert groups["nvfp4 seed 1"].mean_loss == pytest.approx(1.52)
    assert groups["nvfp4 seed 1"].sd == pytest.approx(np.std(lates[1], ddof=1), abs=1e-6)
    (pooled,) = floors.families[SMALL].groups
    assert pooled.df == 3
    assert pooled.share == pytest.approx(fit_emulated(DEMO, [*groups.values()] * 4).share, abs=1e-6)


def test_gaps_over_seeds_have_the_noise_of_one_run_and_count_no_deviation_twice():
    """Runs of known noise, 0.2 % and 0.4 %: both kinds of groups show it, those against two noisy arms a little more."""
    rng = np.random.default_rng(0)
    offsets = rng.normal(0.0, 0.05, 400)
    means = {"fp8_current": (1.4, 0.0028, (1, 2)), "mxfp8": (1.4, 0.0028, (1, 2)), "nvfp4": (1.43, 0.0057, (1, 3))}
    records = [
        demo_run(recipe, seed, number, level + offset + sd * rng.normal())
        for recipe, (level, sd, runs) in means.items()
        for seed, offset in enumerate(offsets)
        for number in range(runs[seed % 2])
    ]
    groups = {one.group: one for one in read_floors(emulated_csv("\n".join(records), "")).families[DEMO].groups}
    pair, both = groups["fp8_current against mxfp8, 400 seeds"], groups["nvfp4 against both, 400 seeds"]
    assert (pair.df, pair.rounding, both.df, both.rounding) == (399, "nearest", 399, "stochastic")
    assert pair.sd == pytest.approx(0.0028, rel=0.1)
    assert 1.0 < both.sd / 0.0057 < 1.3
    of_replicates = [one.sd**2 for name, one in groups.items() if name.startswith("mxfp8 seed")]
    assert np.sqrt(np.mean(of_replicates)) == pytest.approx(0.0028, rel=0.15)


def test_other_set_ups_are_groups_but_for_those_whose_rate_never_decayed():
    records = [other_run(cell, "fp8_current", late) for cell in ("1M x 500", "1M x 500 constant") for late in (1.3, 1.31, 1.32)]
    (only,) = read_floors(emulated_csv("", "\n".join(records))).families[SMALL].groups
    assert (only.group, only.runs, only.rounding, only.schedule) == ("1M x 500, fp8_current", 3, "nearest", "finished")
    assert (only.mean_loss, only.sd) == pytest.approx((1.31, 0.01))


def test_the_shipped_table_is_made_of_the_records_in_the_tree():
    texts = ((EXPERIMENTS / name).read_text(encoding="utf-8") for name in ("demo_floor.jsonl", "run_floor.jsonl"))
    assert emulated_csv(*texts) == TABLE.read_text(encoding="utf-8")
