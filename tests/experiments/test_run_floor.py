"""The table of the run-to-run noise from records that are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.run_floor import (
    CELLS,
    PARTS,
    RECIPES,
    FloorRecord,
    ratio,
    records,
    table,
    tau,
    use_schedule,
)
from training.spec import Schedule
from training.trainer import optimizer


def record(cell, recipe, replicate, late_mean):
    return FloorRecord(
        cell=cell.name,
        recipe=recipe,
        replicate=replicate,
        parameters=cell.model.parameters,
        steps=cell.steps,
        late_mean=late_mean,
        late_slope=-0.25,
        part_means=[1.0] * PARTS,
        code_sha256="",
        data_digest="",
        device_class="",
        threads=1,
    )


def test_tau_is_the_deviation_over_replicates_with_its_chi_squared_interval():
    means = [1.0, 1.002, 0.998, 1.004]
    deviation, low, high = tau(means)
    assert deviation == pytest.approx(np.std(means, ddof=1))
    inside = stats.chi2.cdf(3 * deviation**2 / low**2, 3) - stats.chi2.cdf(
        3 * deviation**2 / high**2, 3
    )
    assert inside == pytest.approx(0.95)


def test_the_interval_of_a_ratio_covers_the_true_one():
    generator = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        _, low, high = ratio(list(generator.normal(100, 1, 12)), list(generator.normal(100, 2, 12)))
        hits += low <= 2.0 <= high
    assert 0.92 <= hits / 400 <= 0.98


def test_the_rates_of_a_cell_that_holds_its_peak():
    cell = next(cell for cell in CELLS if cell.name.endswith("WSD"))
    cosine = optimizer.learning_rate
    try:
        use_schedule(cell)
        settings = optimizer.settings(Schedule(steps=cell.steps, learning_rate=cell.learning_rate))
        rates = [
            float(optimizer.learning_rate(settings, jnp.int32(step)))
            for step in (0, 49, 800, 900, 1000)
        ]
    finally:
        optimizer.learning_rate = cosine
    assert rates == pytest.approx(
        [cell.learning_rate * share for share in (0.02, 1.0, 1.0, 0.55, 0.1)]
    )


def test_a_row_for_every_cell_whose_replicates_are_complete():
    cell = next(cell for cell in CELLS if cell.name == "1M x 1500")
    kept = [
        record(cell, recipe, r, 1.5 + 0.01 * i + 0.001 * r * (1 + i))
        for i, recipe in enumerate(RECIPES)
        for r in range(4)
    ]
    (row,) = list(table(kept))[2:]
    assert row.startswith("| 1M x 1500 | 4 + 4 | 1.502 | -0.250 | 0.0013 (")
    assert "| 1.98 (" in row
    assert row.endswith("| +0.0115 |")
    assert list(table(kept[:-1]))[2:] == []


def test_the_record_that_is_kept_can_be_read():
    kept = list(records())
    assert len({(one.cell, one.recipe, one.replicate) for one in kept}) == len(kept) >= 32
    assert all(len(one.part_means) == PARTS and np.isfinite(one.late_mean) for one in kept)
