"""The table of the run floor from records that are known."""

import numpy as np
import pytest
from scipy import stats

from experiments.run_floor import CELLS, PARTS, RECIPES, Record, records, table, tau


def record(cell, recipe, replicate, late_mean):
    return Record(
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
    inside = stats.chi2.cdf(3 * deviation**2 / low**2, 3) - stats.chi2.cdf(3 * deviation**2 / high**2, 3)
    assert inside == pytest.approx(0.95)


def test_a_row_for_every_cell_whose_replicates_are_complete():
    cell = CELLS[1]
    kept = [record(cell, recipe, r, 1.5 + 0.01 * i + 0.001 * r * (1 + i)) for i, recipe in enumerate(RECIPES) for r in range(4)]
    (row,) = list(table(kept))[2:]
    assert row.startswith("| 1.09 M | 1500 | 1.502 | -0.250 | 0.0013 (")
    assert "| +0.0115 | 0.0013 |" in row
    assert list(table(kept[:-1]))[2:] == []


def test_the_record_that_is_kept_can_be_read():
    kept = list(records())
    assert len({(one.cell, one.recipe, one.replicate) for one in kept}) == len(kept) >= 32
    assert all(len(one.part_means) == PARTS and np.isfinite(one.late_mean) for one in kept)
