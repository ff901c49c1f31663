"""The Celery application that `celery -A workers.app worker` runs; its settings come from the environment."""

from __future__ import annotations

from server.queue import broker, queue_name
from server.settings import Settings

settings = Settings()
app = broker(settings)
app.conf.update(
    imports=("workers.tasks",),
    task_default_queue=queue_name(settings.capability),
    # A task only wakes the slots, which are our own threads; training runs in separate processes.
    worker_concurrency=1,
    worker_pool="threads",
    worker_soft_shutdown_timeout=0,
)
