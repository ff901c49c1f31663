"""Webhooks in the database: their URLs, events and secrets, and the state of each delivery. `server/deliveries.py` sends them.

A delivery is a row, written in the transaction of its event, so it exists exactly if the event does. It is sent at least once,
with growing pauses, until the response is 2xx or `GIVE_UP_SECONDS` have passed.
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

import httpx2
from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.orm import Session

from server.database import clock, tables
from server.database.sealed import HOW_TO_MAKE, Box, SealError
from server.database.tables import DeliveryKind, Webhook, WebhookDelivery, WebhookEvent
from server.errors import ConflictError, FieldProblem, InvalidError, NotFoundError

SECRET_PREFIX = "whsec_"  # noqa: S105 (the prefix of a secret)
GIVE_UP_SECONDS = 86_400.0
_DUE_EACH = 100
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 3600.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Internal ranges that Python reports as public: local NAT64 (RFC 8215), site-local addresses, old ways to write IPv4 as IPv6.
_INSIDE = [ipaddress.ip_network(text) for text in ("64:ff9b:1::/48", "fec0::/10", "::/96")]
Address = IPv4Address | IPv6Address
# Services that give a machine in a cloud its credentials, at addresses that are not link-local: Alibaba's, AWS's and Google's over IPv6,
# and Azure's host, which is a public address.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16")))


def register(session: Session, url: str, events: Iterable[WebhookEvent], box: Box | None, *, to_private: bool) -> tuple[Webhook, str]:
    """A new webhook and its secret, which is stored encrypted.

    InvalidError if nothing may be sent to the URL (host names are resolved at each delivery), ConflictError without a key.
    """
    if box is None:
        raise ConflictError(
            f"this server has no key to encrypt the secrets of webhooks; make one with `{HOW_TO_MAKE}`, set it as PARITY_WEBHOOK_KEYS "
            "and restart the server"
        )
    problem = url_problem(url, to_private=to_private)
    if problem:
        raise InvalidError(problem, [FieldProblem(pointer="/url", detail=problem)])
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    hook = Webhook(id=tables.new_id("h"), url=url, events=sorted(set(events)), secret=box.seal(secret), created_at=clock.now(session))
    session.add(hook)
    return hook, secret


def secrets_of(session: Session, webhook_ids: Collection[str], box: Box | None) -> tuple[dict[str, str], dict[str, str]]:
    """The secrets of these webhooks, and why there is none for the others; both by the webhook's id."""
    opened: dict[str, str] = {}
    closed: dict[str, str] = {}
    for hook_id, stored in session.execute(select(Webhook.id, Webhook.secret).where(Webhook.id.in_(webhook_ids))):
        try:
            opened[hook_id] = _opened(stored, box)
        except SealError as error:
            closed[hook_id] = f"waiting: its webhook's secret is encrypted, and {error}"
    return opened, closed


def _opened(stored: str, box: Box | None) -> str:
    if stored.startswith(SECRET_PREFIX):  # written before webhook secrets were encrypted, and not encrypted yet
        return stored
    if box is None:
        raise SealError("PARITY_WEBHOOK_KEYS is not set; set the key that it was encrypted with")
    return box.open(stored)


def encrypt_all(session: Session, box: Box) -> int:
    """Encrypt with the newest key every secret that is not, also those in plain text; returns how many. Leaves what no key decrypts."""
    changed = 0
    for hook in session.scalars(select(Webhook).with_for_update()):
        with suppress(SealError):
            stored = hook.secret
            hook.secret = box.seal(stored) if stored.startswith(SECRET_PREFIX) else box.with_newest_key(stored)
            changed += hook.secret != stored
    return changed


def note_waiting(session: Session, reasons: Mapping[str, str]) -> int:
    """Write to the pending deliveries of these webhooks why they wait; no attempt is counted. Returns how many did not have it yet."""
    changed = 0
    for hook_id, why in reasons.items():
        mine = (WebhookDelivery.webhook_id == hook_id, WebhookDelivery.state == "pending")
        new = or_(WebhookDelivery.message.is_(None), WebhookDelivery.message != why)
        changed += len(session.scalars(update(WebhookDelivery).where(*mine, new).values(message=why).returning(WebhookDelivery.id)).all())
    return changed


def remove(session: Session, webhook_id: str) -> None:
    """Delete a webhook and its deliveries, also those that are due."""
    is_id = tables.is_id("h", webhook_id)
    if not is_id or session.scalar(delete(Webhook).where(Webhook.id == webhook_id).returning(Webhook.id)) is None:
        raise NotFoundError(f"webhook {webhook_id!r} does not exist; GET /api/v1/webhooks lists all webhooks")


def announce(session: Session, job_id: str, *kinds: WebhookEvent) -> None:
    """Write a delivery for each webhook that is registered for one of these events. Call it in the transaction of the event."""
    for hook_id, events in session.execute(_kept().order_by(Webhook.id)).all():
        for kind in kinds:
            if kind in events:
                _deliver(session, hook_id, kind, job_id)


def announce_test(session: Session, webhook_id: str) -> WebhookDelivery:
    """Write a test delivery, without content. NotFoundError if the webhook does not exist."""
    if not tables.is_id("h", webhook_id) or session.execute(_kept().where(Webhook.id == webhook_id)).first() is None:
        raise NotFoundError(f"webhook {webhook_id!r} does not exist; GET /api/v1/webhooks lists all webhooks")
    return _deliver(session, webhook_id, "test", None)


def _kept() -> Select[str, list[str]]:
    """Ids and events of webhooks, all that a worker may read of them, locked against deletion until the transaction ends.

    A delivery of a deleted one would abort the event's transaction.
    """
    return select(Webhook.id, Webhook.events).with_for_update(read=True, key_share=True)


def _deliver(session: Session, webhook_id: str, kind: DeliveryKind, job_id: str | None) -> WebhookDelivery:
    now = clock.now(session)
    row = WebhookDelivery(
        id=tables.new_id("d"),
        webhook_id=webhook_id,
        kind=kind,
        job_id=job_id,
        state="pending",
        attempts=0,
        created_at=now,
        next_attempt_at=now,
    )
    session.add(row)
    return row


def newest(session: Session) -> Mapping[str, WebhookDelivery]:
    """The newest delivery of each webhook, by the webhook's id."""
    ids = select(func.max(WebhookDelivery.id)).group_by(WebhookDelivery.webhook_id)
    return {row.webhook_id: row for row in session.scalars(select(WebhookDelivery).where(WebhookDelivery.id.in_(ids)))}


def due(session: Session) -> Sequence[tuple[str, str]]:
    """Ids of the deliveries to try now and of their webhooks; those that have waited longest come first.

    At most `_DUE_EACH` per webhook, so that one with an unreachable receiver does not fill the list.
    """
    now = clock.now(session)
    place = func.row_number().over(partition_by=WebhookDelivery.webhook_id, order_by=WebhookDelivery.next_attempt_at)
    waiting = (
        select(WebhookDelivery.id, WebhookDelivery.webhook_id, WebhookDelivery.next_attempt_at, place.label("place"))
        .where(WebhookDelivery.state == "pending", WebhookDelivery.next_attempt_at <= now)
        .subquery()
    )
    chosen = select(waiting.c.id, waiting.c.webhook_id).where(waiting.c.place <= _DUE_EACH).order_by(waiting.c.next_attempt_at)
    return [(row[0], row[1]) for row in session.execute(chosen)]


def begin_attempt(session: Session, delivery_id: str) -> int | None:
    """Take a due delivery for one attempt and return the attempt's number; None if another worker has taken it.

    The time of the next attempt is set at once, so that a sender that dies is retried like one that fails.
    """
    now = clock.now(session)
    mine = select(WebhookDelivery).where(
        WebhookDelivery.id == delivery_id, WebhookDelivery.state == "pending", WebhookDelivery.next_attempt_at <= now
    )
    row = session.scalars(mine.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    row.attempts, row.attempted_at = row.attempts + 1, now
    row.next_attempt_at = now + min(_FIRST_PAUSE_SECONDS * 2.0 ** min(row.attempts - 1, 30), _LONGEST_PAUSE_SECONDS)
    return row.attempts


def end_attempt(session: Session, delivery_id: str, attempt: int, status: int | None, failure: str | None) -> None:
    """Record how an attempt ended: `failure` is None or the reason; a failed delivery is retried until `GIVE_UP_SECONDS` have passed."""
    mine = select(WebhookDelivery).where(
        WebhookDelivery.id == delivery_id, WebhookDelivery.state == "pending", WebhookDelivery.attempts == attempt
    )
    row = session.scalars(mine.with_for_update()).first()
    if row is None:  # deleted meanwhile, or a later attempt has finished
        return
    row.status, row.message = status, failure
    if failure is None:
        row.state = "delivered"
    elif row.next_attempt_at > row.created_at + GIVE_UP_SECONDS:
        row.state = "failed"


def address_problem(address: Address, scheme: str, *, to_private: bool) -> str | None:
    """Why nothing may be sent to an address, or None."""
    address = _inner(address)
    if address.is_link_local or address.is_multicast or address.is_unspecified:  # cloud metadata services; never a receiver of webhooks
        return f"{address} is a link-local, multicast or unspecified address, which webhooks may not use"
    if ipaddress.ip_address(address.packed) in _METADATA:  # packed: without a zone such as %eth0
        return f"{address} is the metadata service of a cloud, which webhooks may not use"
    is_public = address.is_global and not any(address in network for network in _INSIDE)
    if not is_public and not to_private:
        return f"{address} is not a public address; PARITY_WEBHOOKS_TO_PRIVATE_ADDRESSES=true allows it"
    if scheme != "https" and not address.is_loopback:
        return f"{address} is not this machine, so the URL must begin with https://"
    return None


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address embeds, or None."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def url_problem(url: str, *, to_private: bool) -> str | None:
    """Why nothing may be sent to a URL, or None; its host name is not resolved."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return "url has characters that are not allowed, expected printable ASCII without spaces (write a host name in its xn-- form)"
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        return f"url is not valid: {error}"
    if parsed.scheme not in ("http", "https") or not parsed.host:
        return f"url begins with {parsed.scheme or 'no scheme'!r}, expected https://HOST/PATH"
    if parsed.userinfo or parsed.fragment:
        return "url has a user, a password or a fragment (#), expected https://HOST/PATH; deliveries are authenticated by their signature"
    try:
        address: Address = ipaddress.ip_address("127.0.0.1" if parsed.host == "localhost" else parsed.host)
    except ValueError:
        return None if parsed.scheme == "https" else f"url begins with http://, expected https:// for {parsed.host}"
    problem = address_problem(address, parsed.scheme, to_private=to_private)
    return problem and f"url is not allowed: {problem}"
