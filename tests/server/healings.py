"""A judged job whose candidate fails, with kept checkpoints, and its healing with simulated
forks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity_lab.server.healed_runs import switch_of
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job, Run
from tests.server.analyses import STEPS, make_explained, stated_rounding

KEPT = (500, 700, 800, 900)
HEALED_GAPS = {500: 0.0005, 700: 0.001, 800: 0.002, 900: 0.029}
MANIFEST = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}


def make_failed(database: Database, gap: float = 0.03, **changes: Any) -> str:
    """A concluded job whose candidate of recipe nvfp4 is worse by a gap in nats; its id."""
    chosen = {"candidate": "nvfp4", "name": "quantized", "overrides": (), "kept": KEPT, **changes}
    return make_explained(database, gap=gap, **chosen)


def train_forks(
    database: Database, healing: str, gaps: Mapping[int, float], missing: int = 0
) -> list[int]:
    """Write the curves of all queued forks of a healing: from the switch on the parent's loss, less
    what brings its gap to that of `gaps`; the first `missing` steps are not recorded. Returns the
    switches, which have ended.
    """
    with database.write() as session:
        job = session.get_one(Job, healing)
        queued = [run for run in job.runs if run.state == "queued"]
        if queued:
            job.status = "running"
        for run in queued:
            parent = session.get_one(Run, run.forked_from)
            baseline = parent.job.arms[0].runs[parent.replicate]
            step = switch_of(run.arm)
            names = ["lm_loss", "loss", "learning_rate"]
            steps, columns = store.read(session, parent.id, "train", names)
            _, base = store.read(session, baseline.id, "train", names)
            late = steps >= step + missing
            noise = np.random.default_rng([step, run.replicate]).normal(0, 0.0005, late.sum())
            loss = base["lm_loss"][late] + gaps[step] + noise
            values = {
                "lm_loss": loss,
                "loss": loss,
                "learning_rate": columns["learning_rate"][late],
            }
            store.append(session, run.id, "train", 1, steps[late], values)
            run.state, run.attempt_number, run.steps_done = "finished", 1, STEPS
            run.rounding, run.manifest = stated_rounding(run), MANIFEST
        return sorted({switch_of(run.arm) for run in queued})
