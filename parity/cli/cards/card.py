"""The command `card`: write the verification card of a verdict."""

from typing import Annotated

import typer

from parity.cards.card_file import card_yaml, plain
from parity.cards.card_markdown import card_markdown
from parity.cards.statements import is_author
from parity.cli.cards.evidence import card_of_evidence
from parity.cli.compare.comparisons import ComparisonRequest, Evidence
from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.policy import PolicyOptions
from parity.cli.inputs.table_arms import TableOptions
from parity.cli.terminal.option_words import OUTPUT, POLICY
from parity.cli.terminal.options import argument, basic, flag, flat, option
from parity.cli.terminal.output import print_json, print_lines
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.written_card import check_card_path, write_card
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.typed_json import shown

app = typer.Typer()


@app.command(epilog="parity card evidence.zip --to card.yaml")
@basic(*("to", "markdown", "as_json", "by", "recipe", "planned_steps", "margin", "server"))
@flat
def card(
    what: Annotated[
        list[str],
        argument(
            "JOB|BUNDLE.zip|BASE CAND [CAND...]",
            "Id of a job, an evidence bundle, or runs as `parity compare` takes them, with its "
            "options.",
        ),
    ],
    to: str | None = option(
        None,
        "Write the card to this file, and its Markdown next to it.",
        "card.yaml",
        rich_help_panel=OUTPUT,
    ),
    markdown: bool = flag(
        "--markdown",
        "Print Markdown instead of YAML; it has the YAML in it.",
        rich_help_panel=OUTPUT,
    ),
    as_json: bool = flag("--json", "Print JSON instead of YAML.", rich_help_panel=OUTPUT),
    by: str | None = option(
        None, "Name who made the statements on the card.", "NAME", rich_help_panel=OUTPUT
    ),
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
    """Write the card of a verdict, for a pull request, a model card or a paper.

    Exits with the verdict that the card has: 1 fail, 3 inconclusive, 0 pass. `parity verify`
    recomputes a card from its evidence.
    """
    if sum((to is not None, markdown, as_json)) > 1:
        raise UsageError("--to, --markdown and --json exclude each other; give only one of them")
    if to is not None:
        check_card_path(to, "--to")
    if by is not None and not is_author(by):
        raise UsageError(f"--by is {shown(by)}; expected a name of up to 100 characters without ;")
    request = ComparisonRequest(
        runs=what,
        stated=stated,
        table=table,
        policy_options=policy_options,
        evidence=evidence,
        look=look,
    )
    found = card_of_evidence(request, server, by)
    if found.card is None:
        raise UsageError(
            f"{what[0]}: {found.differences[0]}; expected evidence that `parity verify` confirms"
        )
    if to is not None:
        twin = write_card(to, found.card)
        print_lines([found.card.headline, f"written: {to} and {twin}"])
    elif as_json:
        print_json(plain(found.card))
    else:
        print((card_markdown if markdown else card_yaml)(found.card), end="")
    return EXIT_CODES[found.card.state]
