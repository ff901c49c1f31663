"""The command `compare`: judge candidates against a baseline from files or from numbers, and show
or push the verdict.
"""

import math
import os
import re
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.canonical_json import json_value, picked
from parity.cli.inputs import (
    SHORT_RERUN,
    Arms,
    ColumnNames,
    Facts,
    PolicyOptions,
    filled,
    from_folder,
    load_policy,
    pairs,
    read_arms,
    read_layer_snrs,
    read_short_reruns,
    stated_columns,
    stated_facts,
    stated_families,
)
from parity.cli.options import Options, Server, argument, basic, flat, option, refuse, repeatable
from parity.cli.output import write_file
from parity.cli.run_tables import (
    NEEDS_ARM_BY,
    NO_COLUMN,
    NOT_BY_SIZE,
    Reports,
    Table,
    holds_held_out_losses,
    judge_evaluations,
    read_table_arms,
    refuse_evaluation_options,
    report_evaluations,
)
from parity.cli.terminal import EVIDENCE, POLICY, UsageError
from parity.comparing.arms import Arm, check_parameters, with_common_facts
from parity.comparing.case import check_arm, complete_case
from parity.comparing.noise_tables import read_rerun_table
from parity.comparing.policy_file import read_yaml
from parity.comparing.statements import check_noise_table, check_plan, stated_multiplicity
from parity.gate.exit_codes import exit_code
from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import MAX_STEP, Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.policy import Policy
from parity.judging.verdict.path import with_path
from parity.readers import read_run
from parity.readers.run_tables.typed_number import is_typed_number, number_curve
from parity.readers.secondary.accuracy import read_accuracy
from parity.recipes import RECIPES
from parity.report.page import case_report, evaluation_report
from parity.report.verdict_figure import draw_figure
from parity.report.view import AnyDocument
from parity.report.worth import FullRun, worth
from parity.wording import did_you_mean

# Numbers in place of files: `parity compare bf16=2.242 fp8=2.276`, one loss an arm, as published
# tables have them.
#
# Each number becomes a run of one evaluation, at its tokens where these are stated, printed to the
# last digit that was typed. Run-to-run noise is assumed; pairing, software and schedule are not
# known, so that two numbers can fail but never pass (`evaluations.rules`).

EXPECTED = "a loss in nats per token for each arm, such as bf16=2.242 fp8=2.276"
NEEDS_NUMBERS = "needs numbers in place of files, such as bf16=2.242 fp8=2.276"
NEEDS_RUNS = "needs runs in files, but these are numbers"


def typed_numbers(runs: Sequence[str]) -> dict[str, str] | None:
    """The number of each arm as it was typed, None where all arms are files.

    Raises UsageError for numbers and files together, for one number alone, for a name given twice,
    and for what is no loss.
    """
    split = [run.rpartition("=") for run in runs]
    typed = [
        is_typed_number(value) and not (Path(run).exists() or Path(value).exists())
        for run, (_, _, value) in zip(runs, split, strict=True)
    ]
    if not any(typed):
        return None
    for run, (name, _, _), is_typed in zip(runs, split, typed, strict=True):
        if not is_typed:
            number = next(other for other, one in zip(runs, typed, strict=True) if one)
            raise UsageError(
                f"{number} is a number, but {run!r} is not; expected numbers for all arms, or "
                "files for all"
            )
        if not name:
            raise UsageError(f"{run} is a number without the name of its arm; expected {EXPECTED}")
    if len(runs) < 2:
        raise UsageError(f"only {runs[0]} was given; expected {EXPECTED}")
    numbers = {name: value for name, _, value in split}
    if len(numbers) < len(runs):
        twice = next(
            name for name, _, _ in split if sum(other == name for other, _, _ in split) > 1
        )
        raise UsageError(f"{twice} was given twice; expected a name of its own for each arm")
    for name, value in numbers.items():
        if not 0.0 < float(value) < math.inf:
            raise UsageError(f"{name} is {value}; expected a positive number: {EXPECTED}")
    return numbers


def number_arms(numbers: Mapping[str, str], tokens: float | None, facts: Facts) -> list[Arm]:
    """An arm with one run of one evaluation for each number, baseline first.

    An arm that is named as a recipe has that recipe unless another is stated.
    """
    if tokens is not None and not 1.0 <= tokens <= MAX_STEP:
        raise UsageError(
            f"--tokens is {tokens:g}; expected the tokens that both runs were trained on, such as "
            "23e9"
        )
    facts.refuse_unknown(numbers)
    return [
        (
            name,
            [
                replace(
                    number_curve(value, name, 1 if tokens is None else round(tokens)),
                    recipe=facts.recipes.get(name, name if name in RECIPES else None),
                    rounding=facts.roundings.get(name),
                )
            ],
        )
        for name, value in numbers.items()
    ]


# `parity compare --push`, `--html` and `--open`: a verdict on a server's page, or in a file.

# none of them set: a browser would have no screen, or take this terminal
_NO_SCREEN = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def check_push(case: Case) -> None:
    """Raise InputError where a job cannot hold the comparison."""
    from parity.comparing.push import check_pushable  # noqa: PLC0415

    check_pushable(case)


def push_case(
    case: Case,
    documents: Sequence[VerdictDocument],
    server: str,
    token: str | None,
    *,
    on_stdout: bool,
) -> list[VerdictDocument]:
    """Record the comparison on a server and print the address of its page; the server's verdicts.

    Raises InputError, ClientError and UnreachableError.
    """
    from parity.client.rest import Client  # noqa: PLC0415
    from parity.comparing.push import push  # noqa: PLC0415

    with Client(server, token) as client:
        pushed = push(client, case)
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
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in _NO_SCREEN)


# The command `compare`: judge candidates against a baseline from files, with no server.

app = typer.Typer()


class Evidence(Options, panel=EVIDENCE):
    """What else is known of the arms, and of the full run that they stand for."""

    evaluation: list[str] = repeatable(
        "Read the downstream accuracy of an arm, one file per arm: CSV or JSON with task,correct "
        "or task,accuracy,n; "
        "or results_*.json of lm-evaluation-harness, with samples_*.jsonl in the same folder.",
        "NAME=FILE",
    )
    layer_snr: list[str] = repeatable(
        "Read the quantization SNR per layer of a candidate, CSV or JSON with "
        "layer,operand,snr_db; used for advice after a fail.",
        "[NAME=]FILE",
    )
    family: list[str] = repeatable(
        "Borrow the run-to-run noise of both arms, or of ARM, from this family of reruns (`parity "
        "noise list`), or any-decoder if yours is not there. Repeatable.",
        "[ARM=]NAME",
    )
    noise_table: str | None = option(
        None,
        "Read the families from this table (CSV). [default: the public reruns shipped here]",
        "FILE",
    )
    full_run_hours: float | None = option(
        None, "Report what the full run saves; it takes HOURS device hours.", "HOURS"
    )
    hour_price: float | None = option(None, "Set the price of a device hour.", "PRICE")
    devices: int = option(1, "Set the number of devices that a run of this check used.")


@app.command(epilog="parity compare fp8.csv nvfp4.csv --recipe nvfp4=nvfp4 --planned-steps 1500")
@basic(
    *(
        "recipe",
        "planned_steps",
        "baseline_run",
        "candidate_run",
        "column",
        "arm_by",
        "run_by",
        "baseline",
        "margin",
    ),
    *("as_json", "verbose", "open_page", "push"),
)
@flat
def compare(
    runs: Annotated[
        list[str],
        argument(
            "BASE CAND [CAND...]",
            "Baseline run, then candidates, each as FILE or NAME=FILE; `-` reads stdin, FILE:RUN "
            "one run of a table or archive, wandb:ENTITY/PROJECT/RUN, mlflow:RUN_ID or "
            "trackio:PROJECT/RUN a tracker's run. With --arm-by, one table of many runs. "
            "NAME=LOSS, such as bf16=2.242 fp8=2.276, compares two numbers. parity.yaml stands for "
            "what its `compare:` holds, parity.yaml:NAME for one of several comparisons there.",
        ),
    ],
    *,
    stated: Arms,
    table: Table,
    policy_options: PolicyOptions,
    look: int = option(
        1, "State which of the --looks analyses this is.", "K", rich_help_panel=POLICY
    ),
    evidence: Evidence,
    reports: Reports,
    server: Server,
) -> int:
    """Judge candidates against a baseline from files, with no server.

    Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    asked = questions(
        Question(
            runs=runs,
            stated=stated,
            table=table,
            policy_options=policy_options,
            evidence=evidence,
            look=look,
        )
    )
    if len(asked) == 1:
        return exit_code(judge(next(iter(asked.values())), reports, server))
    if one := next(
        iter(reports.given("junit", "figure", "bundle", "html", "open_page", "push").values()), None
    ):
        raise UsageError(
            f"{one} holds one comparison; choose one: "
            f"{' or '.join(f'{runs[0]}:{name}' for name in asked)}"
        )
    documents: list[AnyDocument] = []
    for name, question in asked.items():
        if not reports.as_json:
            print(f"{name}:" if not documents else f"\n{name}:")
        documents += judge(question, replace(reports, is_silent=reports.as_json), server)
    if reports.as_json:
        reports.show_verdicts(documents)
    return exit_code(documents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One comparison: what is typed of it, or kept in a file."""

    runs: Sequence[str]
    stated: Arms
    table: Table
    policy_options: PolicyOptions
    evidence: Evidence
    look: int


_KEPT = re.compile(r"(.+\.ya?ml)(?::(.+))?")
_COMPARE = "expected `compare:` with `runs:` and options below it, or names with these below each"


def questions(typed: Question) -> Mapping[str, Question]:
    """The comparisons that a call asks for, by name: the one that is typed, or those below
    `compare:` of a file, options typed over them.

    Raises UsageError and InputError for a file of another shape.
    """
    match = _KEPT.fullmatch(typed.runs[0]) if len(typed.runs) == 1 else None
    if match is None:
        return {"": typed}
    file, name = match.groups()
    content = read_yaml(file)
    if (
        not isinstance(content, dict)
        or not isinstance(kept := content.get("compare"), dict)
        or not kept
    ):
        raise UsageError(f"{file}: has no comparison; {_COMPARE}")
    named = {"": kept} if "runs" in kept else {str(key): value for key, value in kept.items()}
    if name is not None and name not in named:
        raise UsageError(
            f"{file}: no comparison is called {name!r}; expected one of "
            f"{', '.join(named)}{did_you_mean(name, named)}"
        )
    shared = typed
    if typed.policy_options.policy is None and "policy" in content:
        shared = replace(typed, policy_options=replace(typed.policy_options, policy=file))
    # a comparison's own policy counts
    own = {key for key, each in named.items() if isinstance(each, dict) and "policy" in each}
    return {
        key: _kept(file, key, named[key], typed if key in own else shared)
        for key in (named if name is None else (name,))
    }


def _kept(file: str, name: str, kept: object, typed: Question) -> Question:
    """One comparison of a file; its files are named from the folder of that file."""
    where = f"{file}: compare{f'.{name}' if name else ''}"
    if not isinstance(kept, dict) or not kept.get("runs"):
        raise UsageError(f"{where}: has no runs; {_COMPARE}")
    groups: dict[str, Options] = {
        key: getattr(typed, key) for key in ("stated", "table", "policy_options", "evidence")
    }
    known = [option_name for group in groups.values() for option_name in group.options()]
    if unknown := [str(key) for key in kept if key not in ("runs", *known)]:
        near = did_you_mean(unknown[0], known)
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r}; expected runs, or an option of `parity compare` "
            f"with _ for -{near}"
        )
    folder = Path(file).parent
    runs = kept["runs"] if isinstance(kept["runs"], list) else [kept["runs"]]
    made: dict[str, Any] = {
        key: filled(group, kept, folder, where) for key, group in groups.items()
    }
    return replace(typed, runs=[from_folder(str(run), folder) for run in runs], **made)


def judge(question: Question, reports: Reports, server: Server) -> Sequence[AnyDocument]:
    """Judge one comparison, print and write what is wanted; its verdicts, and those of the
    server.
    """
    stated, table, evidence = question.stated, question.table, question.evidence
    runs, look = question.runs, question.look
    check_plan(stated.planned_steps, "--planned-steps", stated.assume_complete, "--assume-complete")
    policy = load_policy(
        replace(
            question.policy_options,
            schedule=stated.schedule,
            start=stated.start,
            loss_unit=stated.loss_unit,
        )
    )
    parameters = check_parameters(stated.parameters, "--parameters")
    facts = stated_facts(stated)
    columns = stated_columns(stated.column, stated.pattern)
    short_reruns: dict[str, list[Curve]] = {}
    numbers = typed_numbers(runs) if table.arm_by is None else None
    if numbers is not None:
        refuse(stated.given("baseline_run", "candidate_run", "seeds", "context"), NEEDS_RUNS)
        refuse(
            table.given() | stated.given("column", "pattern", "planned_steps", "start"), NEEDS_RUNS
        )
        comparisons = [number_arms(numbers, stated.tokens, facts)]
        table = replace(table, tokens_per_step=None if stated.tokens is None else 1.0)
        held_out = True
    elif table.arm_by is None:
        refuse(stated.given("tokens"), NEEDS_NUMBERS)
        refuse(table.given(), NEEDS_ARM_BY)
        comparisons = [read_arms(runs, stated, columns, facts)]
        held_out = holds_held_out_losses(stated.loss_is, columns.losses())
        if not held_out:
            short_reruns = read_short_reruns(stated.short_rerun, comparisons[0], columns, facts)
    else:
        refuse(stated.given("tokens"), NEEDS_NUMBERS)
        in_files = stated.given(
            "baseline_run", "candidate_run", "control", "short_rerun", "shorter_baseline"
        )
        refuse(in_files, "names a file, but with --arm-by all runs are in one table; remove it")
        refuse(stated.given("column", "pattern"), NO_COLUMN)
        refuse(
            stated.given("seeds"),
            "is not used with --arm-by; name the column of the seed with --pair-by",
        )
        if table.size_by is not None:
            refuse(
                stated.given("planned_steps") | table.given("at", "target", "times"), NOT_BY_SIZE
            )
        comparisons = read_table_arms(runs, table, facts)
        held_out = table.size_by is not None or holds_held_out_losses(stated.loss_is, {table.loss})
        if not held_out:
            refuse_evaluation_options(table)
    comparisons = [
        with_common_facts(arms, parameters, "--parameters", stated.loss_is) for arms in comparisons
    ]
    if held_out:
        given = question.policy_options.given("checks", "accuracy_margin") | stated.given(
            "assume_complete", "layer_policy"
        )
        given |= evidence.given(
            "evaluation", "layer_snr", "family", "noise_table", "full_run_hours", "hour_price"
        )
        given |= reports.given("push") | stated.given("control", "short_rerun")
        refuse(given, "needs training curves; of held-out losses only the losses are compared")
        paired = stated.seeds is not None or table.pair_by is not None
        judged = [
            judge_evaluations(arms, table, policy, stated.planned_steps, look, paired=paired)
            for arms in comparisons
        ]
        report_evaluations(judged, reports)
        if reports.html is not None or reports.open_page:
            write_page(evaluation_report(*judged[0]), reports.html, show=reports.open_page)
        return [document for _, own in judged for document in own]
    case = _case(comparisons[0], short_reruns, columns, policy, stated, evidence, look)
    if reports.push:
        check_push(case)
    verdicts = case.verdicts()
    documents = [verdict.document() for verdict in verdicts]
    reports.write(case, documents, lambda paths: _draw(paths, documents, case))
    if reports.html is not None or reports.open_page:
        write_page(case_report(case, with_path(verdicts)), reports.html, show=reports.open_page)
    documents = _with_worth(documents, evidence)
    reports.show_verdicts(documents)
    on_stdout = not (reports.as_json or reports.markdown)
    if reports.push:
        recorded = push_case(case, documents, server.server, server.token, on_stdout=on_stdout)
    else:
        recorded = []
    return [*documents, *recorded]


def _case(
    arms: Sequence[Arm],
    short_reruns: Mapping[str, list[Curve]],
    columns: ColumnNames,
    policy: Policy,
    stated: Arms,
    evidence: Evidence,
    look: int,
) -> Case:
    """The comparison of training curves, with what further files hold."""
    multiplicity = stated_multiplicity(look, "--look", policy.looks, len(arms) - 1)
    controls = [read_run(file, columns=columns.of_run("", file)) for file in stated.control]
    names = [name for name, _ in arms]
    evaluation_files = pairs(evidence.evaluation, "--evaluation", "NAME=FILE")
    for arm in evaluation_files:
        check_arm(arm, names, "--evaluation")
    check_noise_table(evidence.noise_table, "--noise-table", evidence.family, "--family")
    families = stated_families(evidence.family, names)
    (baseline_name, baseline), *others = arms
    case = Case(
        baseline=baseline,
        candidates=dict(others),
        policy=policy,
        baseline_name=baseline_name,
        controls=controls,
        shorter=[
            read_run(file, columns=columns.of_run("", file)) for file in stated.shorter_baseline
        ],
        short_reruns=short_reruns,
        **picked(stated, "planned_steps", "assume_complete", "layer_policy"),
        layer_snr_db=read_layer_snrs(evidence.layer_snr, names[1:]),
        evaluations={arm: read_accuracy(file) for arm, file in evaluation_files.items()},
        noise_table=read_rerun_table(evidence.noise_table) if families else None,
        families=families,
        multiplicity=multiplicity,
    )
    return complete_case(case, step_option="--column step=NAME", noise_option=SHORT_RERUN)


def _draw(paths: Sequence[str], documents: Sequence[VerdictDocument], case: Case) -> None:
    """One figure per candidate."""
    for path, document in zip(paths, documents, strict=True):
        draw_figure(path, document, case)


def _with_worth(documents: list[VerdictDocument], evidence: Evidence) -> list[VerdictDocument]:
    """The documents with what each is worth over the full run, if its hours are stated."""
    if evidence.full_run_hours is None:
        return documents
    try:
        full = FullRun(
            device_hours=evidence.full_run_hours,
            price=evidence.hour_price,
            check_devices=evidence.devices,
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        option_of = {
            "device_hours": "--full-run-hours",
            "price": "--hour-price",
            "check_devices": "--devices",
        }
        raise UsageError(f"{option_of.get(name, name)} {rest}") from None
    return [{**document, "worth": json_value(worth(document, full))} for document in documents]
