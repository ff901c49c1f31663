"""Which workers would train a run now, and whether one of them trains with what trained another: what they told when they registered."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import clock
from server.database.tables import Worker

_TRAINER = ("code_sha256", "trainer_version", "version.", "env.")  # how the facts of `training.provenance` begin
_WORKERS_LOOKED_AT = 500


def would_train(session: Session, capability: str, device_class: str | None, lease_seconds: float) -> list[Worker]:
    """The live workers of a kind and device class (None: any); where none is live, the one that registered last."""
    newest_first = select(Worker).where(Worker.capability == capability).order_by(Worker.id.desc()).limit(_WORKERS_LOOKED_AT)
    of_kind = [row for row in session.scalars(newest_first) if device_class in (None, row.device.get("device_class"))]
    alive_since = clock.now(session) - lease_seconds
    return [row for row in of_kind if row.heartbeat_at > alive_since] or of_kind[:1]


def changed(worker: Worker, then: Mapping[str, str]) -> str | None:
    """What differs between the trainer of a worker and the one that a manifest tells of, as a sentence; None where nothing does."""
    now: Mapping[str, str] | None = worker.device.get("trainer")
    if not now:
        return f"worker {worker.name} does not say what it trains with; start it anew"
    for name in sorted(now.keys() | {name for name in then if name.startswith(_TRAINER)}):
        if now.get(name) != then.get(name):
            return f"the trainer changed: {name} is {short(now.get(name))} on {worker.name}, was {short(then.get(name))}"
    return None


def short(value: str | None) -> str:
    """A fact in a sentence: digests are cut."""
    return "not stated" if value is None else value if len(value) <= 40 else f"{value[:12]}…"
