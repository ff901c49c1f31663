"""A plan with its cost on the terminal, and the question whether to begin."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.console import Console

from parity.cli.terminal.output import print_json, print_lines
from parity.cli.terminal.wrong_calls import UsageError


def print_plan(
    plan: Mapping[str, Any],
    lines: Iterable[str],
    progress: Console,
    *,
    plan_only: bool,
    as_json: bool,
) -> None:
    """Print a plan: as JSON or lines on standard output where it is all that is wanted, else as
    lines on `progress`.
    """
    if plan_only and as_json:
        print_json(plan)
        return
    print_lines(lines, None if plan_only else progress)


def check_agreed(remedy: str, *, yes: bool) -> None:
    """Ask on a terminal unless the answer was given; raises UsageError with `remedy` without
    a yes.
    """
    if not yes and not (sys.stdin.isatty() and typer.confirm("Queue it?", err=True)):
        raise UsageError(f"nothing was queued; add --yes to {remedy}")
