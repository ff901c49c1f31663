"""The verb `verify`: a verdict recomputed from its evidence bundle."""

from typing import Annotated

import typer

from parity.cli.exits import EXIT_CODES
from parity.judging.evidence import verify

app = typer.Typer()


@app.command("verify")
def verify_bundle(bundle: Annotated[str, typer.Argument(metavar="BUNDLE.zip", help="Evidence written by compare --bundle.")]) -> int:
    """Recompute a verdict from its evidence bundle, offline. Exit code 0 where it is identical, 1 where something differs."""
    differences = verify(bundle)
    for line in differences:
        print(line)
    if differences:
        return EXIT_CODES["fail"]
    print(f"identical: {bundle} gives the verdicts that it states (numbers to 1e-9 relative)")
    return EXIT_CODES["pass"]
