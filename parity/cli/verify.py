"""The command `verify`: recompute a verdict from its bundle, or a card from its evidence."""

import zipfile
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from parity.cli.cards.evidence import BUNDLE_HAS_ALL
from parity.cli.cards.verify_card import is_card, verify_card
from parity.cli.compare.comparisons import ComparisonRequest, Evidence
from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.policy import PolicyOptions
from parity.cli.inputs.table_arms import TableOptions
from parity.cli.terminal.option_words import OUTPUT, POLICY
from parity.cli.terminal.options import argument, basic, flag, flat, option, refuse
from parity.cli.terminal.output import print_json
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.bundles.server_record import job_words
from parity.judging.bundles.verification import Verification, verify
from parity.judging.decision import State
from parity.version import JUDGE_VERSION

app = typer.Typer()


@app.command("verify", epilog="parity verify evidence.zip")
@basic("as_json", "recipe", "planned_steps", "margin", "server")
@flat
def verify_file(
    what: Annotated[
        list[str],
        argument(
            "BUNDLE.zip|CARD [EVIDENCE...]",
            "Evidence bundle of `parity compare --bundle`, or of a job's page. Or a card of "
            "`parity card` (YAML, JSON or Markdown) and its evidence: the id of its job, its "
            "bundle, or its runs with the options of `parity compare`.",
        ),
    ],
    as_json: bool = flag("--json", "Print JSON instead of text.", rich_help_panel=OUTPUT),
    *,
    stated: ArmOptions,
    table: TableOptions,
    policy_options: PolicyOptions,
    look: int = option(
        1, "State which of the --looks analyses this is.", "K", rich_help_panel=POLICY
    ),
    evidence: Evidence,
    server: Server,
) -> int:
    """Recompute a verdict from its evidence bundle, or a card, offline.

    Exits 0 if the result is identical, 1 if something differs, 6 if another version of the judge
    made it; 3 for a card without evidence.
    """
    first, *rest = what
    request = ComparisonRequest(
        runs=rest,
        stated=stated,
        table=table,
        policy_options=policy_options,
        evidence=evidence,
        look=look,
    )
    if is_card(first):
        return verify_card(first, request, server, as_json=as_json)
    if rest:
        raise UsageError(
            f"{first}: not a card, and only a card has further evidence; expected a bundle alone, "
            "or a card such as card.yaml first"
        )
    refuse(request.given(), BUNDLE_HAS_ALL)
    return _verify_bundle(first, as_json=as_json)


def _verify_bundle(bundle: str, *, as_json: bool) -> int:
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
        of_job = [job_words(verification.job)] if verification.job else []
        print("\n".join([*lines, *of_job, *verification.sign_offs]))
    return EXIT_CODES[code]


class RejudgedDocument(TypedDict):
    """What a bundle records of one candidate, and what this judge says of the same curves."""

    candidate: str
    recorded: State
    today: State
    codes: list[str]


class BundleCheckDocument(TypedDict):
    """What `verify BUNDLE --json` prints: whether the bundle gives the verdicts that it records,
    and a line for each difference; of a bundle of another judge both verdicts per candidate; of a
    job's bundle what its server stated of the job when the bundle was made.
    """

    identical: bool
    differences: list[str]
    made_by_judge: str
    this_judge: str
    candidates: list[RejudgedDocument]
    sign_offs: list[str]
    job: str | None
    failed_by: str | None


def _document(verification: Verification) -> BundleCheckDocument:
    return {
        "identical": not verification.differences and verification.same_judge,
        "differences": list(verification.differences),
        "made_by_judge": verification.made_by,
        "this_judge": JUDGE_VERSION,
        "candidates": [
            RejudgedDocument(
                candidate=candidate.candidate,
                recorded=candidate.recorded,
                today=candidate.today,
                codes=list(candidate.codes),
            )
            for candidate in verification.rejudged
        ],
        "sign_offs": list(verification.sign_offs),
        "job": verification.job.id if verification.job else None,
        "failed_by": verification.job.failed_by if verification.job else None,
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
