"""The demo: one real job, submitted over REST like any other, followed to its verdicts."""

import os
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import yaml
from rich.console import Console

from parity.cli.jobs import watching
from parity.client.rest import Client, ClientError
from parity.judging.document_types import VerdictDocument
from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus
from server.settings import CHECKOUT

_MAX_AGE_DAYS = 365.0
JOB_FILE = CHECKOUT / "examples" / "demo.yaml"
QUICK_JOB_FILE = CHECKOUT / "examples" / "demo-quick.yaml"

Settled = Callable[[str, Collection[str]], Sequence[VerdictDocument]]


def run(
    url: str,
    progress: Console,
    check: Callable[[], None],
    settled: Settled,
    job_file: Path = JOB_FILE,
) -> bool:
    """Submit the job, show its progress, and print one line per candidate and the address; True if
    every candidate has a verdict.

    If this record already has the job's verdict, or is training it, nothing is trained again: the
    same question would be a further look. `check` is called about once per second and raises if a
    part of the stack has ended. `settled` (job, candidates already known) judges the candidates
    whose runs have ended while others still train; their lines are shown at once.
    """
    began = time.monotonic()
    content = yaml.safe_load(job_file.read_text(encoding="utf-8"))
    out = Console(markup=False, highlight=False)
    with Client(url, os.environ.get("PARITY_TOKEN")) as client:
        try:
            question = {"job": content["job"], "policy": content["policy"], "revision": ""}
            reply = client.gate(
                {**question, "max_age_days": _MAX_AGE_DAYS, "fresh": False}, uuid.uuid4().hex
            )
        except ClientError as error:
            progress.print(
                f"the server rejected {job_file.name}: {error}", markup=False, highlight=False
            )
            return False
        job = reply["job"]
        verb = "submitted" if reply["found"] == "new" else f"{reply['found']} already"
        progress.print(
            f"{job_file.name}: {verb}, job {job['id']}: {client.page(job['id'])}", highlight=False
        )
        shown: set[str] = set()

        def check_and_show() -> None:
            check()
            for verdict in settled(job["id"], shown):
                shown.add(verdict["candidate"]["name"])
                line = (
                    f"{words(view_of(verdict)).line} "
                    "(Its runs have ended; the record gets this when the "
                    "job concludes.)"
                )
                progress.print(line, markup=False, highlight=False)

        document = watching.follow(client, job["id"], progress, check=check_and_show)
        if document["status"] != "concluded":
            progress.print(
                f"the job ended without a verdict: {document['status']}, {document['message']}",
                markup=False,
                highlight=False,
            )
            return False
        out.print()
        for verdict in document["verdicts"]:
            out.print(minus(words(view_of(verdict)).line))
        out.print()
        out.print(
            "A model of this size cannot predict an 8 B run, because recipes differ more as models "
            "and training length grow."
        )
        out.print(f"Reasons and advice: .venv/bin/parity report {job['id']}")
        out.print(f"{time.monotonic() - began:.0f} s. Charts and curves: {client.page(job['id'])}")
    return True
