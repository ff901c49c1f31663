"""The verb `verify`: a verdict recomputed from its evidence bundle."""

from typing import Annotated

import typer

from parity.cli.exits import EXIT_CODES
from parity.judging.evidence import Verification, verify
from parity.version import JUDGE_VERSION

app = typer.Typer()


@app.command("verify")
def verify_bundle(bundle: Annotated[str, typer.Argument(metavar="BUNDLE.zip", help="Evidence written by compare --bundle.")]) -> int:
    """Recompute a verdict from its evidence bundle, offline. Exit code 0: identical, 1: something differs, 6: another judge made it."""
    verification = verify(bundle)
    for line in verification.differences:
        print(line)
    if verification.differences:
        return EXIT_CODES["fail"]
    if not verification.same_judge:
        _print_both_verdicts(bundle, verification)
        return EXIT_CODES["other judge"]
    print(f"identical: {bundle} gives the verdicts that it states (numbers to 1e-9 relative)")
    return EXIT_CODES["pass"]


def _print_both_verdicts(bundle: str, verification: Verification) -> None:
    """What the bundle records of each candidate, and what this judge says of the same curves."""
    print(f"{bundle} was made by judge {verification.made_by}; this is judge {JUDGE_VERSION}. Every file matches the manifest.")
    for candidate in verification.rejudged:
        name = candidate.candidate.encode("ascii", "backslashreplace").decode()
        print(f"{name}: recorded as {candidate.recorded}, today {candidate.today} ({', '.join(candidate.codes)})")
