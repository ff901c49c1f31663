"""The deliveries in the database: which events each webhook receives, and the state of each
delivery.

URLs and secrets are only in the setting PARITY_WEBHOOKS of the API; workers, which write most
events, read here whom an event concerns (`server.database.events.announce`). A delivery is sent
at least once, with growing pauses, until the response is 2xx or `GIVE_UP_SECONDS` have passed.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from server.database import clock, tables
from server.database.locks import hold_lock
from server.database.tables import WebhookDelivery
from server.settings import WebhookEvent

GIVE_UP_SECONDS = 86_400.0
_DUE_EACH = 100
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 3600.0


def register(session: Session, events: Mapping[str, Sequence[WebhookEvent]]) -> None:
    """Make these the webhooks that events concern from now on: the events of each, by its id."""
    hold_lock(session, "webhooks")  # several API processes start at once
    session.execute(delete(tables.Webhook))
    session.add_all(
        tables.Webhook(id=hook_id, events=list(kinds)) for hook_id, kinds in events.items()
    )


def due(session: Session) -> Sequence[tuple[str, str]]:
    """Ids of the deliveries to try now and of their webhooks; those that have waited longest come
    first.

    At most `_DUE_EACH` per webhook, so that one with an unreachable receiver does not fill the
    list.
    """
    place = func.row_number().over(
        partition_by=WebhookDelivery.webhook_id, order_by=WebhookDelivery.next_attempt_at
    )
    waiting = (
        select(
            WebhookDelivery.id,
            WebhookDelivery.webhook_id,
            WebhookDelivery.next_attempt_at,
            place.label("place"),
        )
        .where(
            WebhookDelivery.state == "pending",
            WebhookDelivery.next_attempt_at <= clock.now(session),
        )
        .subquery()
    )
    chosen = (
        select(waiting.c.id, waiting.c.webhook_id)
        .where(waiting.c.place <= _DUE_EACH)
        .order_by(waiting.c.next_attempt_at)
    )
    return [(row[0], row[1]) for row in session.execute(chosen)]


def begin_attempt(session: Session, delivery_id: str) -> int | None:
    """Take a due delivery for one attempt and return the attempt's number; None if another process
    has taken it.

    The time of the next attempt is set at once, so that a sender that dies is retried like one that
    fails.
    """
    now = clock.now(session)
    row = session.scalars(
        _pending(delivery_id)
        .where(WebhookDelivery.next_attempt_at <= now)
        .with_for_update(skip_locked=True)
    ).first()
    if row is None:
        return None
    row.attempts, row.attempted_at = row.attempts + 1, now
    row.next_attempt_at = now + min(
        _FIRST_PAUSE_SECONDS * 2.0 ** min(row.attempts - 1, 30), _LONGEST_PAUSE_SECONDS
    )
    return row.attempts


def end_attempt(
    session: Session, delivery_id: str, attempt: int, status: int | None, failure: str | None
) -> None:
    """Record how an attempt ended: `failure` is None or the reason; a failed delivery is retried
    until `GIVE_UP_SECONDS` have passed.
    """
    row = session.scalars(
        _pending(delivery_id).where(WebhookDelivery.attempts == attempt).with_for_update()
    ).first()
    if row is None:  # a later attempt has finished
        return
    row.status, row.message = status, failure
    if failure is None:
        row.state = "delivered"
    elif row.next_attempt_at > row.created_at + GIVE_UP_SECONDS:
        row.state = "failed"


def _pending(delivery_id: str) -> Select[WebhookDelivery]:
    return select(WebhookDelivery).where(
        WebhookDelivery.id == delivery_id, WebhookDelivery.state == "pending"
    )
