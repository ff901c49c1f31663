"""The command `schema`: the JSON Schema of what other commands print."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Annotated

import typer

from parity.cli.printed_documents import NOT_PRINTED, printed_documents
from parity.cli.terminal.options import argument, flat
from parity.cli.terminal.output import print_rows
from parity.cli.terminal.wrong_calls import UsageError
from parity.extensions import LAB, lab
from parity.wording import did_you_mean

app = typer.Typer()


def schema_names() -> Sequence[str]:
    """The names of the schemas."""
    return sorted({*printed_documents(), *NOT_PRINTED})


def schema_text(name: str) -> str:
    """The JSON Schema of that name, as text."""
    package = LAB if name in lab().documents else "parity"
    return files(package).joinpath("schemas", f"{name}.json").read_text("utf-8")


@app.command(epilog="parity schema report")
@flat
def schema(
    name: Annotated[
        str | None,
        argument("[NAME]", "Document: card, gate, job, report, verdict, ... [default: list all]"),
    ] = None,
) -> int:
    """Print the JSON Schema of a document that --json prints, or list them."""
    names = schema_names()
    if name is None:
        print_rows(("schema", "what prints it"), _rows(names))
        return 0
    if name not in names:
        raise UsageError(
            f"no schema {name!r}; expected one of {', '.join(names)}{did_you_mean(name, names)}"
        )
    print(schema_text(name), end="")
    return 0


def _rows(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each schema with the commands that print such a document, or where else it is found."""
    printed = printed_documents()
    for name in names:
        commands = ", ".join(f"parity {form}" for form in printed.get(name, ()))
        yield name, commands or NOT_PRINTED[name]
