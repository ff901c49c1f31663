"""A search that is played on the record: each step's job gets the results of a world whose gaps are
known, as workers write them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parity_lab.belief import evaluations_from
from parity_lab.search import key_of
from parity_lab.server.record import advance
from parity_lab.server.tables import AnalysisResult, Search
from server.database import store
from server.database.sessions import Database
from server.jobs.conclude import conclude
from tests.server.analyses import STEPS, make_explained, stated_rounding

# two switches may stay; forks alone leave that in doubt, so pilots are run
GAPS = (0.0037, 0.0037, 0.0174)
LEVEL, NOISE = 1.4, 0.0005
_MANIFEST = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}


def make_base(database: Database, **changes: object) -> str:
    """A judged job: NVFP4 in the MLP of one block, worse than FP8 by 0.02 nats; the baseline kept
    checkpoints.
    """
    given = {"candidate": "nvfp4", "overrides": (), "gap": sum(GAPS)} | changes
    return make_explained(database, **given)  # type: ignore[arg-type]


def gap(assignment: str, gaps: Sequence[float] = GAPS) -> float:
    """The gap of an assignment in nats."""
    return sum(own for own, bit in zip(gaps, assignment, strict=True) if bit == "1")


def play_step(
    database: Database,
    search_id: str,
    gaps: Sequence[float] = GAPS,
    confirmed: Sequence[float] | None = None,
) -> str:
    """Give the newest step its results and conclude its job; returns what it evaluates.
    `confirmed`: the gaps of confirmations.
    """
    with database.write() as session:
        search = session.get_one(Search, search_id)
        step = search.steps[-1]
        evaluations, job = evaluations_from(step.evaluations), step.job
        kind, job_id = evaluations[0].kind, job.id
        job.status = "running"
        if kind == "fork":
            for each in evaluations:
                noise = np.random.default_rng(
                    [
                        int(each.assignment, 2),
                        each.number,
                        search.setup["parents"].index(each.parent),
                    ]
                ).normal(0, NOISE / 8)
                value = LEVEL + 0.4 * gap(each.assignment, gaps) + noise
                session.add(AnalysisResult(run_id=job.runs[0].id, key=key_of(each), value=value))
        else:
            world = gaps if kind == "run" or confirmed is None else confirmed
            for run in job.runs:
                own = gap(evaluations[0].assignment, world) if run.arm.position else 0.0
                _record(session, run, evaluations[0].assignment, own)
        for run in job.runs:
            run.state, run.attempt_number = "finished", 1
    conclude(database, job_id)
    return kind


def _record(session, run, assignment, own: float) -> None:  # type: ignore[no-untyped-def]
    generator, at = (
        np.random.default_rng(
            [run.replicate, run.arm.position, int(assignment, 2) if run.arm.position else 0]
        ),
        np.arange(STEPS),
    )
    loss = (
        LEVEL
        + own
        + generator.normal(0, NOISE)
        + np.exp(-at / 40)
        + generator.normal(0, 0.01, STEPS)
    )
    store.append(
        session,
        run.id,
        "train",
        1,
        at,
        {
            "lm_loss": loss,
            "loss": loss,
            "learning_rate": 1e-3 * (0.55 + 0.45 * np.cos(np.pi * at / STEPS)),
        },
    )
    run.steps_done, run.rounding, run.manifest = STEPS, stated_rounding(run), _MANIFEST


def play(
    database: Database,
    search_id: str,
    gaps: Sequence[float] = GAPS,
    confirmed: Sequence[float] | None = None,
) -> list[str]:
    """Play a search to its end; returns the kinds of its steps."""
    kinds = []
    while state_of(database, search_id) == "running":
        kinds.append(play_step(database, search_id, gaps, confirmed))
        advance(database, search_id)
    return kinds


def state_of(database: Database, search_id: str) -> str:
    """The state of a search."""
    with database.read() as session:
        return session.get_one(Search, search_id).state


def jobs_of(database: Database, search_id: str, kind: str) -> list[str]:
    """The jobs of a search whose step evaluates this kind."""
    with database.read() as session:
        search = session.get_one(Search, search_id)
        return [step.job_id for step in search.steps if step.evaluations[0]["kind"] == kind]
