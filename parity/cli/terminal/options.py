"""Options that commands share: the server, its token, and JSON instead of text."""

from typing import Annotated

import typer

from parity.cli.terminal.help import OUTPUT, SERVER

Server = Annotated[str, typer.Option(metavar="URL", envvar="PARITY_URL", rich_help_panel=SERVER, help="Address of the server.")]
Token = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", envvar="PARITY_TOKEN", rich_help_panel=SERVER, help="Bearer token, if the server requires one."),
]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON instead of text.")]
