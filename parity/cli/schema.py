"""The command `schema`: the JSON Schema of what other commands print."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated

import typer

from parity.cli.terminal.options import argument, flat
from parity.cli.terminal.output import print_lines
from parity.cli.terminal.wrong_calls import UsageError
from parity.wording import did_you_mean

app = typer.Typer()


def schema_names() -> Sequence[str]:
    """The names of the schemas."""
    listed = (file.name for file in files("parity").joinpath("schemas").iterdir())
    return sorted(name.removesuffix(".json") for name in listed if name.endswith(".json"))


@app.command(epilog="parity schema report")
@flat
def schema(
    name: Annotated[
        str | None,
        argument("[NAME]", "Document: card, gate, job, report, verdict, ... [default: list them]"),
    ] = None,
) -> int:
    """Print the JSON Schema of a document that --json prints, or list them."""
    names = schema_names()
    if name is None:
        print_lines(names)
        return 0
    if name not in names:
        raise UsageError(
            f"no schema {name!r}; expected one of {', '.join(names)}{did_you_mean(name, names)}"
        )
    print(files("parity").joinpath("schemas", f"{name}.json").read_text("utf-8"), end="")
    return 0
