"""Webhooks over REST, for admins: register, list, test, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy import select

from server.database.clock import time_text
from server.database.sealed import box_of
from server.database.tables import DeliveryKind, DeliveryState, Webhook, WebhookDelivery, WebhookEvent
from server.jobs import webhooks
from server.web.context import InContext
from server.web.strict_body import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["webhooks"], route_class=BodyRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """An https URL that receives the events of every job; `http` is for loopback addresses only."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=len(get_args(WebhookEvent)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDocument:
    """A delivery of an event to a webhook. `status` is the HTTP status of the newest response, `message` the reason of the last failure."""

    id: str
    type: DeliveryKind
    job: str | None
    state: DeliveryState
    attempts: int
    status: int | None
    message: str | None
    created_at: str
    attempted_at: str | None
    next_attempt_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDocument:
    """A webhook without its secret, and its newest delivery."""

    id: str
    url: str
    events: list[str]
    created_at: str
    last_delivery: DeliveryDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """A webhook with the secret that its deliveries are signed with; it is returned only once."""

    secret: str
    about: WebhookDocument


@router.post("/webhooks", status_code=201)
def create(request: StrictBody[WebhookRequest], response: Response, context: InContext) -> NewWebhook:
    """Register a webhook. Its secret cannot be retrieved again. 409 if the server has no key to encrypt it."""
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        box, to_private = box_of(context.settings), context.settings.webhooks_to_private_addresses
        hook, secret = webhooks.register(session, request.url, request.events, box, to_private=to_private)
        return NewWebhook(secret=secret, about=_document(hook, None))


@router.get("/webhooks")
def index(context: InContext) -> list[WebhookDocument]:
    """Every webhook, newest first, with its newest delivery."""
    with context.database.read() as session:
        last = webhooks.newest(session)
        return [_document(hook, last.get(hook.id)) for hook in session.scalars(select(Webhook).order_by(Webhook.id.desc()))]


@router.post("/webhooks/{webhook_id}:test", status_code=202)
def test(webhook_id: str, context: InContext) -> DeliveryDocument:
    """Send a test delivery within seconds; the list of webhooks shows its result."""
    with context.database.write() as session:
        return _delivery(webhooks.announce_test(session, webhook_id))


@router.delete("/webhooks/{webhook_id}", status_code=204)
def remove(webhook_id: str, context: InContext) -> None:
    """Delete a webhook and its deliveries. A delivery that is being sent may still arrive."""
    with context.database.write() as session:
        webhooks.remove(session, webhook_id)


def _document(hook: Webhook, last: WebhookDelivery | None) -> WebhookDocument:
    return WebhookDocument(
        id=hook.id,
        url=hook.url,
        events=hook.events,
        created_at=time_text(hook.created_at),
        last_delivery=None if last is None else _delivery(last),
    )


def _delivery(row: WebhookDelivery) -> DeliveryDocument:
    return DeliveryDocument(
        id=row.id,
        type=row.kind,
        job=row.job_id,
        state=row.state,
        attempts=row.attempts,
        status=row.status,
        message=row.message,
        created_at=time_text(row.created_at),
        attempted_at=time_text(row.attempted_at),
        next_attempt_at=time_text(row.next_attempt_at) if row.state == "pending" else None,
    )
