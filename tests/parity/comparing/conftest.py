"""Runs of known truth as data frames: 1,500 steps, a candidate as good as its baseline, and one
that is worse.
"""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="session")
def frames() -> dict[str, pd.DataFrame]:
    t, rng = np.arange(1500), np.random.default_rng(0)
    batch = rng.normal(0, 0.06, 1500)
    runs = {}
    for name, gap in (
        ("fp8", 0.0),
        ("again", 0.001),
        ("mxfp8", -0.002),
        ("nvfp4", 0.03),
        ("edge", 0.0125),
    ):
        loss = 1.38 + 3.5 * np.exp(-t / 80) + batch + gap + rng.normal(0, 0.01, 1500)
        runs[name] = pd.DataFrame({"step": t, "loss": loss.round(6)})
    return runs
