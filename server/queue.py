"""Names of tasks and queues, and the doorbell. A message carries nothing: the database says what is to be done."""

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
    """A Celery application configured for a lossy, fast doorbell: the record, not the broker, knows what is due."""
    app = Celery("parity", broker=settings.redis)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        # A ring that fails is not worth waiting for: nobody who submits a job should notice that the broker is away.
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
    """Rings workers. A ring that fails is only logged: the reconciler rings again from the database."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def ring(self, capability: str, times: int = 1) -> bool:
        """Ask `times` free slots to look for a run; False when the broker is away."""
        try:
            for _ in range(times):
                self._app.send_task(TRAIN_TASK, queue=queue_name(capability))
        except (OperationalError, OSError) as error:
            _log.warning("the broker is away, the reconciler will ring again: %s", error)
            return False
        return True
