"""What the charts of a page are drawn from."""

import numpy as np

import parity
from parity.report.interactive import loss_data


def test_runs_without_a_point_have_a_chart_without_points():
    nothing = {"step": np.zeros(0), "loss": np.zeros(0)}
    losses = loss_data(parity.compare(nothing, nothing, planned_steps=10).case)
    assert losses["linear"]["first_step"] == losses["linear"]["last_step"] == losses["linear"]["n"] == []
