"""The Celery application (`celery -A workers.app worker`), its only task, which wakes the worker,
and the worker's start and stop.
"""

import logging
import os

from celery.signals import setup_logging, worker_init, worker_shutdown, worker_shutting_down

from server import logs
from server.process_settings import settings_or_exit
from server.queue import TRAIN_TASK, broker, queue_name
from workers.commands.launchers import LauncherError
from workers.runtime import Runtime, WorkerStartError

settings = settings_or_exit()
app = broker(settings)
app.conf.update(
    imports=("workers.app",),
    task_default_queue=queue_name(settings.serves),
    # A task only wakes the slots, which are our own threads; training runs in separate processes.
    worker_concurrency=1,
    worker_pool="threads",
    worker_soft_shutdown_timeout=0,
)

_runtimes: list[Runtime] = []
_log = logging.getLogger(__name__)


@app.task(name=TRAIN_TASK)
def train() -> None:
    """Wake the worker's free slots, which then look for due runs; twice is harmless."""
    _runtimes[-1].wake()


@setup_logging.connect
def _log_lines(**_: object) -> None:
    logs.configure(settings.log)


@worker_init.connect
def _start(**_: object) -> None:
    try:
        runtime = Runtime(settings)
        runtime.start()
    except (LauncherError, WorkerStartError) as error:
        _log.error("the worker could not start: %s", error)
        os._exit(1)
    except Exception:  # noqa: BLE001
        _log.exception("the worker could not start")
        os._exit(1)
    _runtimes.append(runtime)


@worker_shutting_down.connect
def _stop(**_: object) -> None:
    _runtimes[-1].stop()


@worker_shutdown.connect
def _sign_off(**_: object) -> None:
    _runtimes[-1].sign_off()
