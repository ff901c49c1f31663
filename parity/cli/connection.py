"""What commands that ask a server share: its connection, how an answer is printed, and the id of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from parity.cli.options import Json, Server
from parity.client.rest import Client

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as printed by `submit` and `status`.")]


@dataclass(frozen=True, kw_only=True)
class Connection(Server):
    """A server, and the client that asks it."""

    def client(self) -> Client:
        """A client of the server."""
        return Client(self.server, self.token)


@dataclass(frozen=True, kw_only=True)
class Asked(Json, Connection):
    """A server that is asked, and how its answer is printed."""
