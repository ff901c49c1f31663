"""The verbs for runs that users train: resend what a script logged and could not send, import what was logged elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from parity.cli.exits import EXIT_CODES
from parity.cli.finished_runs import read_finished_run, send_run, why_incomplete
from parity.cli.inputs import pairs
from parity.cli.output import UsageError
from parity.client import spool
from parity.client.delivery import Delivery
from parity.client.rest import DEFAULT_URL, Client, ClientError, UnreachableError
from parity.client.retry import may_be_accepted_later
from parity.client.spool import SpoolError

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
            with spool.lock(path) as is_left:
                if not is_left and not (path in map(Path, paths) and spool.is_whole(path)):
                    print(f"parity: {path}: left alone: its process lives, another one sends it, or it is another user's", file=sys.stderr)
                    continue
                header = spool.read_header(path)
                with Client(server or header["server"], token) as client:
                    delivery = Delivery(path, client)
                    delivery.send_rest()
        except SpoolError as error:
            raise UsageError(str(error)) from None
        except ClientError as error:
            refused += 1
            kept = f"{error}; it is kept as it is: send it again later" if may_be_accepted_later(error) else delivery.set_aside(error)
            print(f"parity: {path}: {kept}", file=sys.stderr)
        else:
            lost = f", but {delivery.unreadable} lines could not be read" if delivery.unreadable else ""
            print(f"{header['run']} {path} sent as attempt {delivery.epoch}{lost}")
    return EXIT_CODES["infrastructure"] if refused else EXIT_CODES["pass"]


@app.command(name="import")
def import_runs(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Finished runs: CSV, JSON lines, MaxText, Parquet, TensorBoard.")],
    as_run: Annotated[list[str], typer.Option("--as-run", metavar="RUN", help="Run that a file is; once for each file, in their order.")],
    column: Annotated[
        list[str] | None, typer.Option(metavar="QUANTITY=NAME", help="Column of step, loss, grad_norm, ... Default: known names.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="What the runs ran on; must agree between arms. Default: not said."),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of these runs, checked against the arm's. Default: not checked.")] = None,
    allow_incomplete: Annotated[
        bool, typer.Option(help="Import runs with gaps, or without their beginning or end. Default: refused.")
    ] = False,
    server: Annotated[str, typer.Option(envvar="PARITY_URL", help="Address of the server.")] = DEFAULT_URL,
    token: Annotated[str | None, typer.Option(envvar="PARITY_TOKEN", help="Bearer token, where the server asks for one.")] = None,
) -> int:
    """Record finished runs of a job with engine external. Each must be complete: every step on its stride, from the first to the last."""
    if len(as_run) != len(files):
        raise UsageError(f"{len(files)} files and {len(as_run)} --as-run were given; expected one run for each file, in the same order")
    facts = pairs(context, "--context")
    curves = [read_finished_run(file, pairs(column, "--column")) for file in files]
    with Client(server, token) as client:
        for file, run, curve in zip(files, as_run, curves, strict=True):
            missing = why_incomplete(curve.completeness, client.run(run)["planned_steps"])
            if missing and not allow_incomplete:
                raise UsageError(f"{file}: {missing}; find the rest, or say --allow-incomplete (then the judge will not pass it)")
        for file, run, curve in zip(files, as_run, curves, strict=True):
            if different := send_run(client, run, curve, facts, recipe):
                raise UnreachableError(f"{file}: {different}; the run is not finished: import it again")
            completeness = curve.completeness
            print(
                f"{run} {file}: {completeness.count} steps, {completeness.first} to {completeness.last}, stride {completeness.stride}, "
                f"{completeness.gaps} gaps, {completeness.duplicates} steps logged again"
            )
    return EXIT_CODES["pass"]


def _spools(paths: list[str]) -> Iterator[Path]:
    """The files, oldest first in each folder; what was refused before is only tried again by its own name."""
    for path in map(Path, paths):
        if path.is_dir():
            for folder in sorted({path, *(each.parent for each in path.rglob(f"*{spool.SUFFIX}"))}):
                yield from spool.list_spools(folder)
        elif not path.exists():
            raise UsageError(f"{path}: there is no such spool; expected a file or folder below parity-spool")
        elif path.suffix == spool.REFUSED:
            yield path.rename(path.with_suffix(spool.SUFFIX))
        else:
            yield path
