"""The command `verify`: recompute a verdict from its evidence bundle."""

import dataclasses
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import argument, flag, flat
from parity.cli.terminal.output import print_json
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.bundles.evidence import Verification, verify
from parity.version import JUDGE_VERSION

app = typer.Typer()


@app.command("verify", epilog="parity verify evidence.zip")
@flat
def verify_bundle(
    bundle: Annotated[
        str,
        argument("BUNDLE.zip", "Evidence bundle of `parity compare --bundle`, or of a job's page."),
    ],
    as_json: bool = flag("--json", "Print JSON instead of text.", rich_help_panel=OUTPUT),
) -> int:
    """Recompute a verdict from its evidence bundle, offline.

    Exits 0 if the result is identical, 1 if something differs, 6 if another version of the judge
    made the bundle.
    """
    if not Path(bundle).is_file():
        problem = "is a directory" if Path(bundle).is_dir() else "no such file"
        raise UsageError(
            f"{bundle}: {problem}; expected an evidence bundle of `parity compare --bundle`"
        )
    if not zipfile.is_zipfile(bundle):
        raise UsageError(
            f"{bundle}: not a zip file; expected an evidence bundle of `parity compare --bundle`"
        )
    verification = verify(bundle)
    if verification.differences:
        code, lines = "fail", list(verification.differences)
    elif verification.same_judge:
        code, lines = (
            "pass",
            [f"identical: {bundle} reproduces its recorded verdicts (numbers to 1e-9 relative)"],
        )
    else:
        code, lines = "other judge", _both_verdicts(bundle, verification)
    if as_json:
        print_json(_document(verification))
    else:
        print("\n".join([*lines, *verification.sign_offs]))
    return EXIT_CODES[code]


def _document(verification: Verification) -> dict[str, Any]:
    return {
        "identical": not verification.differences and verification.same_judge,
        "differences": list(verification.differences),
        "made_by_judge": verification.made_by,
        "this_judge": JUDGE_VERSION,
        "candidates": [dataclasses.asdict(candidate) for candidate in verification.rejudged],
        "sign_offs": list(verification.sign_offs),
    }


def _both_verdicts(bundle: str, verification: Verification) -> list[str]:
    """The recorded verdict of each candidate, and today's verdict on the same curves."""
    lines = [
        (
            f"{bundle} was made by judge {verification.made_by}; this is judge {JUDGE_VERSION}. "
            "Every file matches the manifest."
        )
    ]
    for candidate in verification.rejudged:
        name = candidate.candidate.encode("ascii", "backslashreplace").decode()
        lines.append(
            f"{name}: recorded as {candidate.recorded}, today {candidate.today} "
            f"({', '.join(candidate.codes)})"
        )
    return lines
