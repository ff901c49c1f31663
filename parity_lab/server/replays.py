"""Which recorded steps are trained again before a question blames anything (`parity_lab.replay`),
and where the record itself shows another cause.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from parity.judged_loss import JUDGED_LOSS
from parity_lab.parting import COLUMNS, parts_at
from parity_lab.replay import RATE_TOLERANCE, RatesDiffer, RecordedRun, RecordRequest, Replay, Role
from server.database.metrics import store
from server.database.tables import Arm, Run
from server.errors import ConflictError
from server.jobs.fingerprint import run_spec

MOST_REPLAYED = 3  # runs of the arm that is not forked


def replayed_runs(
    session: Session, baseline: Arm, candidate: Arm, parents: Sequence[Run]
) -> Mapping[Role, Sequence[Run]]:
    """The runs of each arm that are replayed: the parents, and of the other arm those that were
    trained, of the same replicates first.

    Raises ConflictError for an arm without a step on record.
    """
    parent_ids = {parent.id for parent in parents}
    replicates = [parent.replicate for parent in parents]
    runs: dict[Role, Sequence[Run]] = {}
    roles: tuple[tuple[Role, Arm], ...] = (("baseline", baseline), ("candidate", candidate))
    for role, arm in roles:
        trained = [
            run.source or run for run in arm.runs if run.kind == "full" and run.state == "finished"
        ]
        if parent_ids & {run.id for run in trained}:
            runs[role] = parents
            continue
        there = [run for run in trained if recorded_losses(session, run, 0, 1)]
        if not there:
            raise ConflictError(
                f"arm {arm.name} of job {arm.job_id} has no finished run with its first step; "
                "train the job again"
            )
        runs[role] = sorted(there, key=lambda run: run.replicate not in replicates)[:MOST_REPLAYED]
    return runs


def recorded_losses(session: Session, run: Run, first: int, steps: int) -> list[float]:
    """The losses on record from step `first` on, up to the first that lacks or is not finite."""
    there, columns = store.read_range(
        session, run.id, "train", first, first + steps - 1, [JUDGED_LOSS]
    )
    losses = [
        float(loss) for at, loss in zip(there, columns[JUDGED_LOSS], strict=True) if at >= first
    ]
    ends = (
        number
        for number, (at, loss) in enumerate(zip(there, losses, strict=True))
        if at != first + number or not math.isfinite(loss)
    )
    return losses[: next(ends, len(losses))]


def recorded(session: Session, run: Run, role: Role) -> RecordedRun:
    """What is on record of a run of an arm."""
    steps = len(recorded_losses(session, run, 0, run.length))
    return RecordedRun(
        run=run.id, arm=role, steps=steps, checkpoints=tuple(sorted(run.kept_checkpoints or ()))
    )


def pairs_of(runs: Mapping[Role, Sequence[Run]]) -> list[tuple[Run, Run]]:
    """Baseline and candidate of each replicate that both have."""
    theirs = {run.replicate: run for run in runs["candidate"]}
    return [(run, theirs[run.replicate]) for run in runs["baseline"] if run.replicate in theirs]


def parted_pair(
    session: Session,
    pairs: Sequence[tuple[Run, Run]],
    replays: Sequence[Replay],
    records: Sequence[RecordedRun],
) -> str | None:
    """Where the record of a pair that is not replayed whole parts, in words; None if none does."""
    steps = {record.run: record.steps for record in records}
    whole = {
        replay.run for replay in replays if replay.first == 0 and replay.steps == steps[replay.run]
    }
    for pair in pairs:
        if {run.id for run in pair} <= whole:
            continue
        columns = [store.read(session, run.id, "train", COLUMNS)[1] for run in pair]
        parting = parts_at(
            *(
                {name: record[name][: steps[run.id]] for name in COLUMNS}
                for run, record in zip(pair, columns, strict=True)
            )
        )
        if parting is not None:
            ours, theirs = (run.id for run in pair)
            return (
                f"at step {parting.step:,} the records of runs {ours} and {theirs} part, which "
                f"precision rarely does: {parting.how}"
            )
    return None


def rates_differ(session: Session, pairs: Sequence[tuple[Run, Run]]) -> RatesDiffer | None:
    """The first step of a pair whose learning rates on record differ, or None. Columns without the
    learning rate differ nowhere.
    """
    for ours, theirs in pairs:
        (steps, rates), (others, other_rates) = (_rates(session, run) for run in (ours, theirs))
        count = min(len(steps), len(others))
        far = np.abs(rates[:count] - other_rates[:count]) > RATE_TOLERANCE * np.abs(rates[:count])
        if far.any():
            at = int(np.argmax(far))
            return RatesDiffer(
                step=int(steps[at]), baseline=float(rates[at]), candidate=float(other_rates[at])
            )
    return None


def _rates(session: Session, run: Run) -> tuple[Any, Any]:
    steps, columns = store.read(session, run.id, "train", ["learning_rate"])
    return steps, columns["learning_rate"]


def record_requests(session: Session, replays: Sequence[Replay]) -> dict[str, RecordRequest]:
    """What a training process needs of the runs that it replays, by id."""
    requests: dict[str, RecordRequest] = {}
    for replay in replays:
        run = session.get_one(Run, replay.run)
        request = requests.setdefault(
            run.id,
            {"spec": run_spec(run).document(), "manifest": dict(run.manifest or {}), "losses": {}},
        )
        request["losses"][str(replay.first)] = recorded_losses(
            session, run, replay.first, replay.steps
        )
    return requests
