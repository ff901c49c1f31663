"""`parity compare --push`, `--html` and `--open`: a verdict on a server's page, or in a file."""

import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.cli.terminal.output import write_file
from parity.judging.case import AnyCase, AnyDocument, Case
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.verdict.layer_statistics import LayerColumns

# none of them set: a browser would have no screen, or take this terminal
_DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def check_push(case: Case) -> None:
    """Raise InputError where a job cannot hold the comparison."""
    from parity.comparing.push import check_pushable  # noqa: PLC0415

    check_pushable(case)


def check_evaluations_push(cases: Sequence[EvaluationCase]) -> None:
    """Raise InputError where a job cannot hold the comparisons of held-out losses."""
    from parity.comparing.push_evaluations import check_one_size  # noqa: PLC0415

    check_one_size(cases)


def push_case(
    case: AnyCase,
    documents: Sequence[AnyDocument],
    server: str,
    token: str | None,
    *,
    on_stdout: bool,
    layers: Mapping[str, LayerColumns] | None = None,
) -> list[AnyDocument]:
    """Record the comparison on a server and print the address of its page; the server's verdicts.
    `layers` are statistics by layer, by candidate.

    Raises InputError, ClientError and UnreachableError.
    """
    from parity.client.rest import Client  # noqa: PLC0415
    from parity.comparing.push import push  # noqa: PLC0415
    from parity.comparing.push_evaluations import push_evaluations  # noqa: PLC0415

    with Client(server, token) as client:
        if isinstance(case, EvaluationCase):
            pushed = push_evaluations(client, case)
        else:
            pushed = push(client, case, layers)
    print(f"page: {pushed.page}", file=sys.stdout if on_stdout else sys.stderr)
    for document in documents:
        name = document["candidate"]["name"]
        other = pushed.verdicts.get(name)
        if other is None:
            print(f"parity: the server has no verdict on {name}; see its page", file=sys.stderr)
        elif other["verdict"] != document["verdict"]:
            why = (
                f"{other['verdict']} ({other['codes'][0]}), here {document['verdict']} "
                f"({document['codes'][0]})"
            )
            print(
                f"parity: the server's verdict on {name} is {why}; the exit code is that of the "
                "worse one",
                file=sys.stderr,
            )
    return list(pushed.verdicts.values())


def write_page(page: str, path: str | None, *, show: bool) -> None:
    """Write a page to a file, a temporary one without a path, and open it in the browser if that is
    wanted and there is one.
    """
    if path is None:
        descriptor, path = tempfile.mkstemp(prefix="parity-", suffix=".html")
        os.close(descriptor)
    write_file(path, page.encode())
    opened = show and _has_screen() and webbrowser.open(Path(path).resolve().as_uri())
    print(f"{'opened' if opened else 'written'}: {path}", file=sys.stderr)


def _has_screen() -> bool:
    return not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in _DISPLAY_VARIABLES
    )
