"""Sends due deliveries to webhooks: signed JSON by POST, following the Standard Webhooks specification (1.0.0).

The host name is resolved here, and the connection goes to an address that was checked, so a DNS change in between has no effect.
Redirects are not followed, no proxy is used, and only the status of the response is read. Every API process sends, so that workers
need neither the secrets of webhooks nor the key to them.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import ipaddress
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from parity.version import VERSION
from server.database.clock import time_text
from server.database.sealed import box_of
from server.database.sessions import Database
from server.database.tables import Job, WebhookDelivery
from server.documents.job import live_state
from server.documents.verdicts import verdict_summary
from server.jobs import webhooks
from server.repeating import Repeating
from server.settings import Settings

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A delivery with its URL and secret. Its repr shows neither, because the path of a URL may also be a secret."""

    id: str
    url: str = dataclasses.field(repr=False)
    secret: str = dataclasses.field(repr=False)
    body: bytes = dataclasses.field(repr=False)


class Deliverer(Repeating):
    """The thread of an API process that sends what is due, once every `reconcile_seconds`.

    If a delivery takes long when the process ends, another process or the next one sends it again.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__("webhooks", self._deliver, settings.reconcile_seconds, "webhooks could not be sent")
        self._settings = settings
        self._database = database
        self._encrypted = False

    def _deliver(self) -> None:
        self._encrypt()
        deliver_due(self._settings, self._database, lambda: self.is_stopping)

    def _encrypt(self) -> None:
        """Once: encrypt with the newest key what an earlier version or an earlier key has left."""
        box = None if self._encrypted else box_of(self._settings)
        if box is None:
            return
        with self._database.write() as session:
            changed = webhooks.encrypt_all(session, box)
        self._encrypted = True
        if changed:
            _log.info("the secrets of %d webhooks are now encrypted with the first key of PARITY_WEBHOOK_KEYS", changed)


def deliver_due(settings: Settings, database: Database, stopping: Callable[[], bool] = lambda: False) -> list[str]:
    """Try every due delivery; returns the ids of those tried. After a failure, the webhook's other deliveries wait for the next call."""
    with database.read() as session:
        waiting = webhooks.due(session)
        secrets, closed = webhooks.secrets_of(session, {webhook_id for _, webhook_id in waiting}, box_of(settings))
    if closed:
        with database.write() as session:
            noted = webhooks.note_waiting(session, closed)
        if noted:
            _log.error("%d deliveries of %d webhooks wait for a key: %s", noted, len(closed), next(iter(closed.values())))
    tried: list[str] = []
    failing: set[str] = set(closed)
    for delivery_id, webhook_id in waiting:
        if stopping():
            break
        if webhook_id in failing or webhook_id not in secrets:
            continue
        with database.write() as session:
            attempt = webhooks.begin_attempt(session, delivery_id)
        if attempt is None:
            continue
        status, failure = _try(settings, database, delivery_id, secrets[webhook_id])
        with database.write() as session:
            webhooks.end_attempt(session, delivery_id, attempt, status, failure)
        tried.append(delivery_id)
        if failure:
            failing.add(webhook_id)
            _log.warning("webhook %s: attempt %d at delivery %s failed: %s", webhook_id, attempt, delivery_id, failure)
    return tried


def _try(settings: Settings, database: Database, delivery_id: str, secret: str) -> tuple[int | None, str | None]:
    try:
        with database.read() as session:
            row = session.get(WebhookDelivery, delivery_id)
            if row is None:
                return None, "it was deleted meanwhile"
            parcel = _parcel(row, settings.public_url, secret)
        return send(parcel, to_private=settings.webhooks_to_private_addresses)
    except Exception as error:  # noqa: BLE001 (a delivery that cannot be sent must not block the others, nor be retried forever)
        _log.exception("delivery %s could not be sent", delivery_id)
        return None, f"internal error {type(error).__name__}; see the server's log"


def _parcel(row: WebhookDelivery, public_url: str, secret: str) -> Parcel:
    document: dict[str, Any] = {"id": row.id, "type": row.kind, "created_at": time_text(row.created_at)}
    document |= _about(row.job, public_url.rstrip("/")) if row.job else {"job": None, "verdicts": [], "forecasts": [], "links": {}}
    body = json.dumps(document, allow_nan=False).encode()
    return Parcel(id=row.id, url=row.webhook.url, secret=secret, body=body)


def _about(job: Job, base: str) -> dict[str, Any]:
    """The part of a delivery about its job, without the job's message, which may contain the end of a log."""
    position = {arm.name: arm.position for arm in job.arms}
    verdicts = [verdict_summary(row) for row in sorted(job.verdicts, key=lambda row: position[row.candidate])]
    own = f"{base}/api/v1/jobs/{job.id}"
    return {
        "job": {"id": job.id, "name": job.name, "status": job.status, "code": job.code, "finished_at": time_text(job.finished_at)},
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        "forecasts": [{"candidate": arm.name} | dataclasses.asdict(live) for arm in job.arms if (live := live_state(arm))],
        "links": {"page": f"{base}/jobs/{job.id}", "job": own, "verdict": f"{own}/verdict"},
    }


def signature(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: HMAC-SHA256 over `ID.TIMESTAMP.BODY`; the key is the base64 text after `whsec_`."""
    key = base64.b64decode(secret.removeprefix(webhooks.SECRET_PREFIX))
    signed = hmac.new(key, f"{delivery_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


def send(parcel: Parcel, *, to_private: bool) -> tuple[int | None, str | None]:
    """One POST: the status of the response, if any, and why it failed (None: 2xx)."""
    url = httpx2.URL(parcel.url)
    name = _name(url)
    try:
        # The resolver has its own time limit, in addition to the ten seconds of the request.
        places = socket.getaddrinfo(name, url.port or (443 if url.scheme == "https" else 80), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return None, f"the address of {name} could not be found: {error}"
    addresses = list(dict.fromkeys(str(place[4][0]) for place in places))
    for address in addresses:
        problem = webhooks.address_problem(ipaddress.ip_address(address), url.scheme, to_private=to_private)
        if problem:
            return None, f"refused: {problem}"
    try:
        status = asyncio.run(_post(parcel, url, addresses))
    except TimeoutError:
        return None, f"no response within {_TIMEOUT_SECONDS:g} s"
    except httpx2.HTTPError as error:
        return None, f"no response: {str(error) or type(error).__name__}"
    if 200 <= status < 300:
        return status, None
    return status, f"answered {status}" + ("; redirects are not followed" if 300 <= status < 400 else ", expected 2xx")


async def _post(parcel: Parcel, url: httpx2.URL, addresses: list[str]) -> int:
    """The response status from the first reachable address."""
    timestamp = int(time.time())
    headers = {
        "Host": url.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "User-Agent": f"parity/{VERSION}",
        "webhook-id": parcel.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(parcel.secret, parcel.id, timestamp, parcel.body),
    }
    # Only the transport, because a client would log the URL. The certificate is checked for the name, not the address.
    async with asyncio.timeout(_TIMEOUT_SECONDS), httpx2.AsyncHTTPTransport(verify=_certificates(), trust_env=False) as transport:
        for address in addresses:
            request = httpx2.Request("POST", url.copy_with(host=address), headers=headers, content=parcel.body)
            request.extensions["sni_hostname"] = _name(url)
            try:
                answer = await transport.handle_async_request(request)
            except httpx2.ConnectError:
                if address == addresses[-1]:
                    raise
                continue
            await answer.aclose()
            return answer.status_code
    raise AssertionError("a name that was resolved has an address")


def _name(url: httpx2.URL) -> str:
    """The host as registered, in ASCII. Decoded, an older IDNA standard would turn xn--strae-oqa into strasse, another host."""
    return url.raw_host.decode("ascii")


@cache
def _certificates() -> ssl.SSLContext:
    """The machine's certificate authorities, which include a company's own; SSL_CERT_FILE names others."""
    return ssl.create_default_context()
