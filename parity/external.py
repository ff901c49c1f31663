"""The verb that brings what a training script logged, and its process could not send, to the server: resend."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from parity import spool
from parity.client import Client, ClientError
from parity.delivery import Delivery
from parity.exits import EXIT_CODES
from parity.output import UsageError
from parity.spool import SpoolError

app = typer.Typer()


@app.command()
def resend(
    paths: Annotated[list[str], typer.Argument(metavar="SPOOL...", help="Spool files of parity.Run, or folders of them.")],
    server: Annotated[str | None, typer.Option(envvar="PARITY_URL", help="Address of the server. Default: the spool's own.")] = None,
    token: Annotated[str | None, typer.Option(envvar="PARITY_TOKEN", help="Bearer token, where the server asks for one.")] = None,
) -> int:
    """Send what training scripts logged with parity.Run and could not send. Spools of live processes are left to them."""
    refused = 0
    for path in _spools(paths):
        try:
            header = spool.header_of(path)
            with Client(server or header["server"], token) as client:
                delivery = Delivery(path, client)
                delivery.send_rest()
        except SpoolError as error:
            raise UsageError(str(error)) from None
        except ClientError as error:
            refused += 1
            print(f"parity: {path}: {delivery.set_aside(error)}", file=sys.stderr)
        else:
            print(f"{header['run']} {path} sent as attempt {delivery.epoch}")
    return EXIT_CODES["infrastructure"] if refused else EXIT_CODES["pass"]


def _spools(paths: list[str]) -> Iterator[Path]:
    """The files, oldest first in each folder; what was refused before is only tried again by its own name."""
    for path in map(Path, paths):
        if path.is_dir():
            for folder in sorted({path, *(each.parent for each in path.rglob(f"*{spool.SUFFIX}"))}):
                yield from spool.leftovers(folder)
        elif not path.exists():
            raise UsageError(f"{path}: there is no such spool; expected a file or folder below parity-spool")
        elif path.suffix == spool.REFUSED:
            yield path.rename(path.with_suffix(spool.SUFFIX))
        else:
            yield path
