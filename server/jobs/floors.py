"""Run floors on record: the reruns of earlier jobs as a table of groups, from which a job of the same family borrows.

family: all of the specification but name, arms, seed and noise runs is equal; its name holds a digest of that
group:  runs of one job with one recipe and seed, at least two, that were trained for it, and finished with a finite loss in the late window
sd:     standard deviation over a group's runs of their mean loss in the last 20 % of the planned steps

What groups lend is the judge's business (`parity.judging.floors`): at least 3 groups and 8 degrees of freedom of an arm's own class of
rounding. Runs of engine `external` lend nothing here, because nobody checks what their specification says of model and data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.judging.arms import rounding_of
from parity.judging.curve import Rounding
from parity.judging.floors.groups import COLUMNS, NATS, Floors, Row
from parity.judging.floors.lending import find_lender
from parity.judging.window import make_window
from parity.recipes import rounds_to_nearest
from server.database import store
from server.database.tables import Arm, Job, Run

MOST_GROUPS = 100  # of a family, newest first
VARIES = "replicate: the rounding's random numbers, and a nudge of the initial weights"
_LATE = 0.20  # of the planned steps, as in a policy that says nothing else
_JOBS_READ = 500
_NOT_OF_THE_FAMILY = ("name", "baseline", "candidates", "seed", "noise")


def family_of(job: Job) -> str | None:
    """The name of a job's family, from its specification; None for a job whose runs are trained elsewhere."""
    if job.engine == "external":
        return None
    facts = {name: value for name, value in job.spec.items() if name not in _NOT_OF_THE_FAMILY}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    return f"{job.engine}-{job.spec['schedule']['steps']}-steps-{digest}"


def floors_on_record(session: Session, family: str | None = None, but: str | None = None) -> Floors:
    """The groups of all families on record, or of one, without those of the job `but`."""
    statement = (
        select(Job).options(selectinload(Job.arms).selectinload(Arm.runs)).where(Job.status == "concluded", Job.engine != "external")
    )
    rows: dict[str, list[Row]] = {}
    for job in session.scalars(statement.order_by(Job.id.desc()).limit(_JOBS_READ)):
        name = family_of(job)
        if name is not None and job.id != but and family in (None, name) and len(rows.setdefault(name, [])) < MOST_GROUPS:
            rows[name].extend(_groups(session, job, name))
    return Floors(tuple(row for name in sorted(rows) for row in rows[name][:MOST_GROUPS]))


def lent_floors(session: Session, job: Job) -> Floors | None:
    """The groups of the job's family, without its own, if they lend to arms of any class of rounding; else None."""
    family = family_of(job)
    if family is None:
        return None
    floors = floors_on_record(session, family, but=job.id)
    classes: tuple[Rounding, ...] = get_args(Rounding)
    return floors if any(find_lender(floors, family, rounding).floor for rounding in classes) else None


def _groups(session: Session, job: Job, family: str) -> Iterator[Row]:
    """A row for each recipe and seed of which the job trained at least two runs to a finite end."""
    trained: dict[tuple[str, int], list[Run]] = {}
    for arm in job.arms:
        for run in arm.runs:
            if run.state == "finished" and run.code is None and run.reused_from is None:
                trained.setdefault((arm.stated_recipe, run.seed), []).append(run)
    for (recipe, seed), runs in sorted(trained.items()):
        means = _late_means(session, runs)
        if len(means) >= 2:
            numbers = {"runs": str(len(means)), "mean_loss": repr(float(means.mean())), "sd": repr(float(means.std(ddof=1)))}
            about = {
                "rounding": _rounding(runs, recipe),
                "start": "",
                "schedule": "",
                "varies": VARIES,
                "source": f"job {job.id}",
                "licence": "",
            }
            cells = {"family": family, "group": f"{recipe} seed {seed}, {job.id}", "unit": NATS, **numbers, **about}
            yield {column: cells[column] for column in COLUMNS}


def _late_means(session: Session, runs: Sequence[Run]) -> NDArray[np.float64]:
    """Mean loss (nats) of each run in its late window, of those whose every step there is recorded and finite."""
    means = []
    for run in runs:
        window = make_window(run.planned_steps, 0, _LATE, "declared")
        steps, columns = store.read_range(session, run.id, "train", window.first, window.last, ["lm_loss"])
        if len(steps) == window.last - window.first + 1 and np.isfinite(columns["lm_loss"]).all():
            means.append(columns["lm_loss"].mean())
    return np.array(means)


def _rounding(runs: Sequence[Run], recipe: str) -> str:
    """How the runs round, as recorded or by the definition of their recipe; else "", and the group lends to nobody."""
    return rounding_of(run.rounding for run in runs) or ("nearest" if rounds_to_nearest(recipe) else "")
