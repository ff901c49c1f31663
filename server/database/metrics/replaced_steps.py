"""Which recorded steps of a run count: under which run its curve is stored, and from which step on
a newer attempt replaces an older one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy.orm import Session

from server.database.metrics.chunk_statements import FIRST_STEPS
from server.database.tables import Run


def curve_of(session: Session, run_id: str) -> str:
    """The run under whose id the steps of a run are stored: itself, or the run whose curve it
    reuses.
    """
    run = session.get(Run, run_id)  # mostly loaded already
    return (run.reused_from if run else None) or run_id


def superseded_from(
    session: Session, run_id: str, kind: str, newest_attempt: float = math.inf
) -> dict[int, float]:
    """For each attempt with recorded steps (up to the newest that counts), the first step that a
    newer one replaces, infinity if none does.

    This depends on training steps for every kind: once a newer attempt has trained a step, an older
    attempt's validation losses there are replaced too, even before the newer attempt has validated.
    """
    return superseded_in_each(session, [run_id], kind, newest_attempt).get(run_id, {})


def superseded_in_each(
    session: Session, run_ids: Sequence[str], kind: str, newest_attempt: float = math.inf
) -> dict[str, dict[int, float]]:
    """`superseded_from` of each run with recorded steps; the ids are those under which the curves
    are stored.
    """
    chosen = {"runs": list({*run_ids}), "kinds": list({kind, "train"})}
    limits: dict[str, dict[int, float]] = {}
    replaced_from: dict[str, float] = {}  # by the attempts that were looked at, the newest first
    for run_id, attempt_number, first in session.connection().execute(FIRST_STEPS, chosen):
        if attempt_number <= newest_attempt:
            limit = replaced_from.get(run_id, math.inf)
            limits.setdefault(run_id, {})[attempt_number] = limit
            replaced_from[run_id] = min(limit, first)
    return limits
