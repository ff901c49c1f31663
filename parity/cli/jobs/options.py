"""Options and errors that several commands about jobs share."""

from __future__ import annotations

from typing import Annotated

import typer

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as printed by `submit` and `status`.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop waiting after SECONDS with exit code 5; the job goes on.")
]
Reuse = Annotated[
    bool | None,
    typer.Option("--reuse/--no-reuse", help="Reuse the curve of an equal, earlier baseline run. [default: yes, or the job file's]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


class JobEndedError(Exception):
    """The job ended without a verdict; the message gives the reason."""
