"""The one task, and the life of the worker around it. A doorbell carries nothing, so ringing twice does no harm."""

from __future__ import annotations

import logging

from celery.signals import worker_init, worker_shutdown, worker_shutting_down

from server.queue import TRAIN_TASK, Doorbell
from workers.app import app, settings
from workers.runtime import Runtime

_runtimes: list[Runtime] = []


@app.task(name=TRAIN_TASK)
def train() -> None:
    """Train whatever is due until nothing is."""
    while _runtimes[-1].train_next():
        pass


@worker_init.connect
def _start(**_: object) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    runtime = Runtime(settings, Doorbell(app), capability=settings.capability, slots=settings.slots)
    _runtimes.append(runtime)
    runtime.start()


@worker_shutting_down.connect
def _stop(**_: object) -> None:
    _runtimes[-1].stop()


@worker_shutdown.connect
def _sign_off(**_: object) -> None:
    _runtimes[-1].sign_off()
