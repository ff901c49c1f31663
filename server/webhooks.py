"""Sends due deliveries to webhooks: signed JSON by POST, following the Standard Webhooks
specification (1.0.0).

Redirects are not followed, no proxy is used, and only the status of the response is read. Every API
process sends, so that workers need neither the URLs nor the secrets of webhooks.
"""

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import json
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import httpx2

from parity.judging.decision import worst
from parity.version import VERSION
from server.concurrency.repeating import Repeating
from server.database.clock import time_text
from server.database.sessions import Database
from server.database.tables import WebhookDelivery
from server.deliveries import begin_attempt, due, end_attempt, register
from server.documents.jobs import live_state
from server.jobs.verdict_rows import shown_lead, verdict_rows, verdict_summary
from server.settings import SECRET_PREFIX, Settings, WebhookSetting

_log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 10.0
_MOST_THREADS = 16


class Deliverer(Repeating):
    """The thread of an API process that sends what is due, once every `reconcile_seconds`.

    If a delivery takes long when the process ends, another process or the next one sends it again.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__(
            "webhooks", self._deliver, settings.reconcile_seconds, "webhooks could not be sent"
        )
        self._settings = settings
        self._database = database
        self._is_registered = False

    def _deliver(self) -> None:
        if not self._is_registered:
            with self._database.write() as session:
                register(session, {hook.id: hook.events for hook in self._settings.webhooks})
            self._is_registered = True
        deliver_due(self._settings, self._database, lambda: self.is_stopping)


def deliver_due(
    settings: Settings, database: Database, stopping: Callable[[], bool] = lambda: False
) -> list[str]:
    """Try every due delivery; returns the ids of those tried. After a failure, the webhook's other
    deliveries wait for the next call.

    Webhooks have a thread each, so that a slow receiver delays its own deliveries only.
    """
    hooks = {hook.id: hook for hook in settings.webhooks}
    waiting: dict[str, list[str]] = {}
    with database.read() as session:
        for delivery_id, webhook_id in due(session):
            waiting.setdefault(webhook_id, []).append(delivery_id)
    if not waiting:
        return []
    with ThreadPoolExecutor(min(_MOST_THREADS, len(waiting)), thread_name_prefix="webhook") as pool:
        tried = [
            pool.submit(_deliver_each, settings, database, hooks.get(webhook_id), ids, stopping)
            for webhook_id, ids in waiting.items()
        ]
    return [delivery_id for future in tried for delivery_id in future.result()]


def _deliver_each(
    settings: Settings,
    database: Database,
    hook: WebhookSetting | None,
    delivery_ids: Sequence[str],
    stopping: Callable[[], bool],
) -> list[str]:
    """Try the deliveries of one webhook in their order, until one fails or its time is over;
    returns the ids of those tried.
    """
    tried: list[str] = []
    until = time.monotonic() + _TIMEOUT_SECONDS  # all webhooks begin their next round together
    for delivery_id in delivery_ids:
        if stopping() or time.monotonic() > until:
            break
        with database.write() as session:
            attempt = begin_attempt(session, delivery_id)
        if attempt is None:
            continue
        status, failure = _try(settings, database, delivery_id, hook)
        with database.write() as session:
            end_attempt(session, delivery_id, attempt, status, failure)
        tried.append(delivery_id)
        if failure:
            name = hook.id if hook else "of an earlier setting"
            _log.warning(
                "webhook %s: attempt %d at delivery %s failed: %s",
                name,
                attempt,
                delivery_id,
                failure,
            )
            break
    return tried


def _try(
    settings: Settings, database: Database, delivery_id: str, hook: WebhookSetting | None
) -> tuple[int | None, str | None]:
    """One attempt: the status of the response, if any, and why it failed (None: 2xx)."""
    if hook is None:
        return None, "PARITY_WEBHOOKS no longer has this webhook"
    try:
        with database.read() as session:
            document = _document(
                session.get_one(WebhookDelivery, delivery_id), settings.public_url.rstrip("/")
            )
        status = asyncio.run(
            _post(hook, delivery_id, json.dumps(document, allow_nan=False).encode())
        )
    except TimeoutError:
        return None, f"no response within {_TIMEOUT_SECONDS:g} s"
    except httpx2.HTTPError as error:
        return None, f"no response: {str(error) or type(error).__name__}"
    except Exception as error:  # noqa: BLE001
        _log.exception("delivery %s could not be sent", delivery_id)
        return None, f"internal error {type(error).__name__}; see the server's log"
    if 200 <= status < 300:
        return status, None
    return status, f"answered {status}" + (
        "; redirects are not followed" if 300 <= status < 400 else ", expected 2xx"
    )


def _document(row: WebhookDelivery, base: str) -> dict[str, Any]:
    """What is sent, without the job's message, which may contain the end of a log."""
    job = row.job
    job_url = f"{base}/api/v1/jobs/{job.id}"
    verdicts = [verdict_summary(verdict) for verdict in verdict_rows(job)]
    return {
        "id": row.id,
        "type": row.kind,
        "created_at": time_text(row.created_at),
        "job": {
            "id": job.id,
            "name": job.name,
            "engine": job.engine,
            "status": job.status,
            "code": job.code,
            "finished_at": time_text(job.finished_at),
            "verdict": worst(verdict.verdict for verdict in verdicts) if verdicts else None,
            "lead": shown_lead(job.lead, verdicts) if verdicts else None,
        },
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        "forecasts": [
            {"candidate": arm.name} | dataclasses.asdict(live)
            for arm in job.arms
            if (live := live_state(arm))
        ],
        "links": {"page": f"{base}/jobs/{job.id}", "job": job_url, "verdict": f"{job_url}/verdict"},
    }


def signature(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: HMAC-SHA256 over `ID.TIMESTAMP.BODY`; the key is the base64
    text after `whsec_`.
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = hmac.new(key, f"{delivery_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


async def _post(hook: WebhookSetting, delivery_id: str, body: bytes) -> int:
    """The response status."""
    timestamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"parity/{VERSION}",
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(
            hook.secret.get_secret_value(), delivery_id, timestamp, body
        ),
    }
    request = httpx2.Request("POST", str(hook.url), headers=headers, content=body)
    # Only the transport, because a client would log the URL; the time limit is of all of it,
    # however slowly a response arrives.
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        httpx2.AsyncHTTPTransport(verify=_certificates(), trust_env=False) as transport,
    ):
        answer = await transport.handle_async_request(request)
        await answer.aclose()
        return answer.status_code


@cache
def _certificates() -> ssl.SSLContext:
    """The machine's certificate authorities, which include a company's own; SSL_CERT_FILE names
    others.
    """
    return ssl.create_default_context()
