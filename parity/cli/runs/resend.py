"""The command `resend`: send steps that a training script logged and could not send."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from parity.cli.connection import ServerQuery
from parity.cli.terminal.option_words import ARMS, SERVER
from parity.cli.terminal.options import argument, flat, option
from parity.cli.terminal.output import print_json
from parity.cli.terminal.wrong_calls import UsageError
from parity.client import spool
from parity.client.delivery import Delivery
from parity.client.rest import Client, ClientError
from parity.client.retry import may_be_accepted_later
from parity.client.spool import SpoolError
from parity.gate.exit_codes import EXIT_CODES
from parity.wording import count

app = typer.Typer()


class SentSpool(TypedDict):
    """A spool whose steps the server has now: the run that they are of, as which attempt (null
    where nothing was logged), and how many of its lines could not be read.
    """

    run: str
    spool: str
    attempt: int | None
    unreadable_lines: int


@app.command(epilog="parity resend parity-spool")
@flat
def resend(
    paths: Annotated[
        list[str], argument("SPOOL...", "Spool files of parity.Run, or folders with them.")
    ],
    server: str | None = option(
        None,
        "Address of the server. [default: the one in the spool]",
        "URL",
        envvar="PARITY_URL",
        rich_help_panel=SERVER,
    ),
    *,
    at: Annotated[ServerQuery, ("token", "as_json")],
    as_run: str | None = option(
        None,
        "Id of the run that steps logged without a run belong to.",
        "RUN",
        rich_help_panel=ARMS,
    ),
    baseline: str | None = option(
        None,
        "Baseline of the project that the steps belong to, if their script named none.",
        "ARM",
        rich_help_panel=ARMS,
    ),
) -> int:
    """Send the steps that training scripts logged with parity.Run and could not send; spools of
    running processes are skipped.
    """
    sent: list[SentSpool] = []
    tried = refused = unnamed = 0
    spools = list(_spools(paths))
    if as_run is not None:
        _refuse_other_runs(spools, as_run)
    for path in spools:
        tried += 1
        try:
            with spool.lock(path) as is_left:
                if not is_left and not (path in map(Path, paths) and spool.is_whole(path)):
                    print(
                        f"parity: {path}: skipped: in use by a running process, or owned by "
                        "another user",
                        file=sys.stderr,
                    )
                    continue
                header = spool.read_header(path)
                if not (header["run"] or as_run or header.get("project")):
                    unnamed += 1
                    again = f"`parity resend {path.parent} --as-run RUN`"
                    print(
                        f"parity: {path}: not sent: it was recorded without a run; name its run "
                        f"with {again}",
                        file=sys.stderr,
                    )
                    continue
                with Client(server or header["server"], at.token) as client:
                    delivery = Delivery(path, client, run=as_run, baseline=baseline)
                    delivery.send_rest()
                    run = (
                        delivery.sent_to or f"project {header.get('project')}, nothing was logged,"
                    )
        except SpoolError as error:
            raise UsageError(str(error)) from None
        except ClientError as error:
            refused += 1
            if may_be_accepted_later(error):
                outcome = f"{error}; the spool is kept as it is: send it again later"
            else:
                outcome = delivery.set_aside(error)
            print(f"parity: {path}: {outcome}", file=sys.stderr)
        else:
            sent.append(
                SentSpool(
                    run=run,
                    spool=str(path),
                    attempt=delivery.attempt_number,
                    unreadable_lines=delivery.unreadable,
                )
            )
            _print_sent(run, delivery, at)
    if not tried:
        print(f"parity: {_nothing_to_send(paths)}", file=sys.stderr)
    if at.as_json:
        print_json(sent)
    if refused:
        return EXIT_CODES["infrastructure"]
    return EXIT_CODES["usage"] if unnamed else EXIT_CODES["pass"]


def _print_sent(run: str, delivery: Delivery, at: ServerQuery) -> None:
    if not at.as_json:
        lost = f", but {delivery.unreadable} lines could not be read" if delivery.unreadable else ""
        print(f"{run} {delivery.path} sent as attempt {delivery.attempt_number}{lost}")
    if delivery.begun:
        print(f"parity: {delivery.path}: {delivery.begun}", file=sys.stderr)
    for problem in (delivery.left_out, delivery.without_layers):
        if problem:
            print(f"parity: {delivery.path}: {problem}", file=sys.stderr)


def _spools(paths: list[str]) -> Iterator[Path]:
    """The files, oldest first below each folder; a refused spool is only tried again when it is
    named itself.
    """
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob(f"*{spool.SUFFIX}"), key=lambda file: file.name)
        elif not path.exists():
            raise UsageError(
                f"{path}: no such file or folder; expected a spool, such as the folder parity-spool"
            )
        elif path.suffix == spool.REFUSED:
            yield path.rename(path.with_suffix(spool.SUFFIX))
        else:
            yield path


def _refuse_other_runs(spools: list[Path], as_run: str) -> None:
    """Raise UsageError unless all spools were recorded without a run, in one folder, with one
    recipe: they become one run.
    """
    headers = {path: spool.read_header(path) for path in spools}
    for path, header in headers.items():
        if header["run"]:
            raise UsageError(
                f"{path}: was recorded for run {header['run']}; expected steps without a run, "
                f"because of --as-run {as_run}"
            )
    for what, values in (
        ("folders", {str(path.parent) for path in spools}),
        ("recipes", {str(h["recipe"]) for h in headers.values()}),
    ):
        if len(values) > 1:
            raise UsageError(
                f"the spools are of {len(values)} {what} ({', '.join(sorted(values))}); expected "
                "those of one run"
            )


def _nothing_to_send(folders: list[str]) -> str:
    """The line for folders without a spool, and how to send those that a server has refused."""
    left = sorted(path for folder in folders for path in Path(folder).rglob(f"*{spool.REFUSED}"))
    if left:
        again = (
            f"; {count(len(left), 'spool')} that the server refused: `parity resend {left[0]}` "
            "tries one again"
        )
    else:
        again = ""
    return f"{', '.join(folders)}: nothing to send{again}"
