"""The command `skill`: the page for agents and scripts."""

from importlib.resources import files

import typer

from parity.cli.terminal.options import flat

app = typer.Typer()


@app.command(epilog="parity skill")
@flat
def skill() -> int:
    """Print SKILL.md: for agents and scripts, what to ask, and what each exit code demands."""
    print(files("parity").joinpath("SKILL.md").read_text("utf-8"), end="")
    return 0
