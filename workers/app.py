"""The Celery application that `celery -A workers.app worker` runs; its settings come from the environment."""

from __future__ import annotations

from server.queue import broker, queue_name
from server.settings import Settings

settings = Settings()
app = broker(settings)
app.conf.update(
    imports=("workers.tasks",),
    task_default_queue=queue_name(settings.capability),
    worker_concurrency=settings.slots,
    # Threads: the pool only supervises; training runs in child processes, and a forked jax would hang.
    worker_pool="threads",
    # The supervisor's threads end when their children are killed, so a warm shutdown takes about a second.
    worker_soft_shutdown_timeout=0,
)
