"""`parity compare --loss-unit`."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

STEPS = 2000


def test_losses_in_bits_are_converted_where_that_is_stated(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    steps, files = np.arange(STEPS), []
    for name, gap in (("a", 0.0), ("b", 0.004)):
        files.append(str(tmp_path / f"{name}.csv"))
        nats = 2.5 + 3.0 * np.exp(-steps / 100) + gap
        nats += np.random.default_rng(1).normal(0.0, 0.02, STEPS)
        rows = np.column_stack([steps, nats / math.log(2.0)])
        np.savetxt(files[-1], rows, delimiter=",", header="step,loss", comments="", fmt="%.6f")
    call = ("compare", *files, "--planned-steps", str(STEPS), "--schedule", "decayed")
    _, out, _ = run(*call, "--loss-unit", "bits", "--json")
    assert "converted to nats" in out
    for kind in ("training", "validation"):
        _, out, _ = run(*call, "--loss-is", kind, "--loss-unit", "bits", "-v")
        assert "0.0040 nats" in out, kind
    code, _, err = run(*call, "--loss-unit", "bit")
    assert (code, "loss-unit" in err) == (2, True)
