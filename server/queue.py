"""The queue: names of tasks and queues, the notifier of workers, and a client for the broker.

A message is empty: what is due is in the database.
"""

import logging
import threading
from collections import Counter
from typing import Any

import redis
from celery import Celery
from kombu.exceptions import OperationalError
from kombu.utils.url import parse_url
from redis.backoff import NoBackoff
from redis.retry import Retry

from server.settings import Settings

TRAIN_TASK = "parity.train"
_MOST_WAITING = 1000  # that wait while the broker hangs; workers find the rest in the database
_log = logging.getLogger(__name__)


def queue_name(capability: str) -> str:
    """The queue on which workers of one capability listen."""
    return f"parity.{capability}"


def broker(settings: Settings) -> Celery:
    """A Celery application whose messages are fast and may be lost: what is due is in the database,
    not in the broker.
    """
    app = Celery("parity", broker=settings.redis)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "socket_connect_timeout": 2,
            "socket_timeout": 10,
            "max_retries": 0,
        },
        task_acks_late=False,
        task_ignore_result=True,
        task_publish_retry=False,
        task_serializer="json",
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=1,
    )
    return app


class WorkerNotifier:
    """Wakes workers, from a thread of its own: no request waits for the broker.

    A failed notification is only logged, because the reconciler notifies workers again, from the
    database.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._wanted: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def notify(self, capability: str, times: int = 1) -> None:
        """Wake `times` free slots to look for a run, soon."""
        with self._changed:
            self._wanted[capability] = min(self._wanted[capability] + times, _MOST_WAITING)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="notifier", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                capability, times = self._wanted.popitem()
            try:
                for _ in range(times):
                    self._app.send_task(TRAIN_TASK, queue=queue_name(capability))
            except (OperationalError, OSError) as error:
                _log.warning(
                    "the broker is unreachable; the reconciler will notify workers again: %s", error
                )


def redis_client(url: str, seconds: float) -> redis.Redis:
    """A client for the broker's URL that tries once, and waits so long to connect and again for
    each answer.

    kombu spells a unix socket `redis+socket://`, the client `unix://`.
    """
    # Its own default is to try four times, with pauses.
    once: dict[str, Any] = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
    }
    if url.startswith("redis+socket://"):
        return redis.Redis(
            unix_socket_path="/" + parse_url(url)["virtual_host"].lstrip("/"), **once
        )
    return redis.Redis.from_url(url, **once)
