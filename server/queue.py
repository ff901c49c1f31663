"""Names of tasks and queues, and the doorbell. A message is empty: what is due is in the database."""

from __future__ import annotations

import logging

from celery import Celery
from kombu.exceptions import OperationalError

from server.settings import Settings

TRAIN_TASK = "parity.train"
_log = logging.getLogger(__name__)


def queue_name(capability: str) -> str:
    """The queue on which workers of one capability listen."""
    return f"parity.{capability}"


def broker(settings: Settings) -> Celery:
    """A Celery application configured as a fast, lossy doorbell: what is due is in the database, not in the broker."""
    app = Celery("parity", broker=settings.redis)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        # Do not wait for a ring that fails: submitting a job must not take longer while the broker is unreachable.
        broker_transport_options={"socket_connect_timeout": 2, "socket_timeout": 10, "max_retries": 0},
        task_acks_late=False,
        task_ignore_result=True,
        task_publish_retry=False,
        task_serializer="json",
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=1,
    )
    return app


class Doorbell:
    """Wakes workers. A failed ring is only logged, because the reconciler rings again from the database."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def ring(self, capability: str, times: int = 1) -> bool:
        """Wake `times` free slots to look for a run; False if the broker is unreachable."""
        try:
            for _ in range(times):
                self._app.send_task(TRAIN_TASK, queue=queue_name(capability))
        except (OperationalError, OSError) as error:
            _log.warning("the broker is unreachable; the reconciler will ring again: %s", error)
            return False
        return True
