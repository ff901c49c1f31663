"""Which of the files of a call are goldens, and which one is the run."""

from collections.abc import Sequence

from parity.cli.golden import on_server
from parity.cli.terminal.wrong_calls import UsageError
from parity.golden.golden_file import is_golden


def is_golden_or_kept(file: str) -> bool:
    """Whether a word names a golden: a file, or server:NAME."""
    return on_server.is_kept(file) or is_golden(file)


def run_and_goldens(files: Sequence[str]) -> tuple[str, list[str]]:
    """The run and the goldens among the files of a call, whatever their order; UsageError for any
    other number of runs than one.
    """
    goldens = [file for file in files if is_golden_or_kept(file)]
    runs = [file for file in files if file not in goldens]
    if len(runs) == 1 and goldens:
        return runs[0], goldens
    if not goldens:
        raise UsageError(
            f"none of {', '.join(files)} is a golden; `parity golden update NAME.golden.jsonl "
            f"{runs[0]}` writes one of a run"
        )
    named = ", ".join(runs) or "none"
    raise UsageError(
        f"expected one run in addition to {', '.join(goldens)}, found {named}: give the file or "
        "source of one run"
    )
