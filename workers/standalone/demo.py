"""The demo: one real job, submitted over REST like any other, followed to its verdicts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from rich.console import Console

from parity.cli import watching
from parity.client.rest import Client, ClientError
from parity.report import text
from server.settings import CHECKOUT

_JOB_FILE = CHECKOUT / "examples" / "demo.yaml"


def run(url: str, progress: Console, check: Callable[[], None], job_file: Path = _JOB_FILE) -> bool:
    """Submit the job, show its progress, print its verdicts; True when every candidate has one, whatever it says.

    `check` is called about once a second and raises when a part of the stack has ended.
    """
    began = time.monotonic()
    content = yaml.safe_load(job_file.read_text(encoding="utf-8"))
    out = Console()
    with Client(url, os.environ.get("PARITY_TOKEN")) as client:
        try:
            job = client.submit(content["job"], content["criteria"])
        except ClientError as error:
            progress.print(f"{job_file.name} was refused: {error}", markup=False, highlight=False)
            return False
        progress.print(f"submitted {job_file.name} as job {job['id']}: {client.page(job['id'])}", highlight=False)
        document = watching.follow(client, job["id"], progress, check=check)
        if document["status"] != "concluded":
            progress.print(f"the job ended without a verdict: {document['status']}, {document['message']}", markup=False, highlight=False)
            return False
        out.print()
        out.print(text.render_text(document["verdicts"]))
        out.print("A model of this size can't predict an 8 B run: recipes differ more as models and horizons grow.")
        out.print(f"{time.monotonic() - began:.0f} s. Charts and curves: {client.page(job['id'])}", highlight=False)
    return True
