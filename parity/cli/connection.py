"""What commands that ask a server share: its connection, how an answer is printed, and the id of a
job.
"""

from typing import Annotated

from parity.cli.terminal.options import argument
from parity.cli.terminal.shared_options import Json, Printing, Server
from parity.client.rest import Client

JobId = Annotated[str, argument("JOB", "Id of the job, as printed by `submit` and `status`.")]


class ServerConnection(Server):
    """A server, and the client that asks it."""

    def client(self) -> Client:
        """A client of the server."""
        return Client(self.server, self.token)


class ServerQuery(Json, ServerConnection):
    """A server that is asked, and how its answer is printed."""


class VerdictQuery(Printing, ServerConnection):
    """A server that is asked for the verdicts of a job, and how they are printed."""
