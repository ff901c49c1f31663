"""The command `compare`: judge candidates against a baseline from files, with no server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from parity.canonical_json import json_value
from parity.cli.compare.comparisons import ComparisonRequest, Evidence, comparison_requests
from parity.cli.compare.evaluations import (
    NOT_BY_SIZE,
    Reports,
    holds_held_out_losses,
    judge_evaluations,
    refuse_evaluation_options,
    report_evaluations,
)
from parity.cli.compare.publishing import (
    check_evaluations_push,
    check_push,
    push_case,
    write_page,
)
from parity.cli.compare.typed_numbers import NEEDS_NUMBERS, NEEDS_RUNS, number_arms, typed_numbers
from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.arms import SHORT_RERUN, read_arms, read_layer_tables, read_short_reruns
from parity.cli.inputs.columns import ColumnNames, stated_columns
from parity.cli.inputs.families import stated_families
from parity.cli.inputs.pairs import pairs
from parity.cli.inputs.policy import PolicyOptions, load_policy
from parity.cli.inputs.statements import stated_facts
from parity.cli.inputs.table_arms import NEEDS_ARM_BY, NO_COLUMN, TableOptions, read_table_arms
from parity.cli.terminal.option_words import POLICY
from parity.cli.terminal.options import argument, basic, flat, option, refuse
from parity.cli.terminal.output import paths_by_name
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.typed_command import typed_command, without_page
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import Arm, check_parameters, stated_arms
from parity.comparing.case import check_arm, complete_case
from parity.comparing.loss_unit import BITS, case_in_nats, runs_in_nats, unit_of_policy
from parity.comparing.noise_tables import read_rerun_table
from parity.comparing.statements import HELD_OUT, check_noise_table, check_plan, stated_multiplicity
from parity.gate.exit_codes import exit_code
from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.judging.policy import Policy
from parity.judging.verdict.layer_statistics import LayerTable, late_statistics
from parity.judging.verdict.path import with_path
from parity.readers import read_run
from parity.readers.secondary.accuracy import read_accuracy
from parity.report.figures.verdict_figure import draw_figure
from parity.report.html.page import case_report, evaluation_report
from parity.report.next_steps import typed
from parity.report.view import AnyDocument
from parity.report.worth import FullRun, worth

app = typer.Typer()


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
    stated: ArmOptions,
    table: TableOptions,
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
    request = ComparisonRequest(
        runs=runs,
        stated=stated,
        table=table,
        policy_options=policy_options,
        evidence=evidence,
        look=look,
    )
    with reports.unwritten_page_named():
        return exit_code(_judge_all(request, reports, server))


def _judge_all(whole: ComparisonRequest, reports: Reports, server: Server) -> Sequence[AnyDocument]:
    """Judge each comparison of a request; the verdicts."""
    runs, requests = whole.runs, comparison_requests(whole)
    if len(requests) == 1:
        return judge(next(iter(requests.values())), reports, server, typed_command())
    if one := next(
        iter(reports.given("junit", "figure", "bundle", "html", "open_page", "push").values()), None
    ):
        raise UsageError(
            f"{one} holds one comparison; choose one: "
            f"{' or '.join(f'{runs[0]}:{name}' for name in requests)}"
        )
    documents: list[AnyDocument] = []
    for name, request in requests.items():
        if not reports.as_json:
            print(f"{name}:" if not documents else f"\n{name}:")
        command = typed_command({runs[0]: f"{runs[0]}:{name}"})
        documents += judge(request, replace(reports, is_silent=reports.as_json), server, command)
    if reports.as_json:
        reports.show_verdicts(documents)
    return documents


def judge(
    request: ComparisonRequest, reports: Reports, server: Server, command: str
) -> Sequence[AnyDocument]:
    """Judge one comparison, print and write what is wanted; its verdicts, and those of the server.
    `command` is what was typed, for next steps that add an option to it.
    """
    stated, table, evidence = request.stated, request.table, request.evidence
    runs, look = request.runs, request.look
    check_plan(stated.planned_steps, "--planned-steps", stated.assume_complete, "--assume-complete")
    policy = load_policy(
        replace(
            request.policy_options,
            schedule=stated.schedule,
            start=stated.start,
            pairing=stated.pairing,
            loss_unit=unit_of_policy(stated.loss_unit),
        )
    )
    parameters = check_parameters(stated.parameters, "--parameters")
    facts = stated_facts(stated)
    columns = replace(
        stated_columns(stated.column, stated.pattern), is_held_out=stated.loss_is == HELD_OUT
    )
    short_reruns: dict[str, list[Curve]] = {}
    numbers = typed_numbers(runs) if table.arm_by is None else None
    if numbers is not None:
        refuse(stated.given("baseline_run", "candidate_run", "seeds", "context"), NEEDS_RUNS)
        refuse(
            table.given() | stated.given("column", "pattern", "planned_steps", "start", "pairing"),
            NEEDS_RUNS,
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
        file_options = stated.given(
            "baseline_run", "candidate_run", "control", "short_rerun", "shorter_baseline"
        )
        refuse(file_options, "names a file, but with --arm-by all runs are in one table; remove it")
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
        are_final = any(
            PRINTED_STEP in run.columns
            for arms in comparisons
            for _, runs_of_arm in arms
            for run in runs_of_arm
        )
        held_out = (
            table.size_by is not None
            or are_final
            or holds_held_out_losses(stated.loss_is, {table.loss})
        )
        if not held_out:
            refuse_evaluation_options(table)
    comparisons = [
        stated_arms(arms, parameters, "--parameters", stated.loss_is) for arms in comparisons
    ]
    if stated.loss_unit == BITS:
        refuse(table.given("target"), "is a loss in nats; remove it, or convert the table")
    if held_out:
        held_out_request = replace(request, table=table)
        return _judge_held_out(held_out_request, comparisons, policy, reports, server, command)
    candidates = [arm for arm, _ in comparisons[0][1:]]
    layers = read_layer_tables(evidence.layer_snr, candidates)
    case = _case(comparisons[0], short_reruns, columns, policy, stated, evidence, layers, look)
    if stated.loss_unit == BITS:
        case = case_in_nats(case)
    if reports.push:
        check_push(case)
    verdicts = case.verdicts()
    documents = [verdict.document() for verdict in verdicts]
    reports.write(case, documents, lambda paths: _draw(paths, with_path(verdicts), case))
    if reports.html is not None or reports.open_page:
        placed = typed(with_path(verdicts), without_page(command))
        write_page(case_report(case, placed), reports.html, show=reports.open_page)
    documents = _with_worth(documents, evidence)
    reports.show_verdicts(documents if reports.as_json else typed(documents, command))
    on_stdout = not (reports.as_json or reports.markdown)
    if reports.push:
        recorded = push_case(
            case, documents, server.server, server.token, on_stdout=on_stdout, layers=layers
        )
    else:
        recorded = []
    return [*documents, *recorded]


def _judge_held_out(
    request: ComparisonRequest,
    comparisons: Sequence[Sequence[Arm]],
    policy: Policy,
    reports: Reports,
    server: Server,
    command: str,
) -> Sequence[AnyDocument]:
    """Judge arms of held-out losses, one comparison per size, print and write what is wanted."""
    stated, table = request.stated, request.table
    typed_options = request.policy_options.given("checks", "accuracy_margin") | stated.given(
        "assume_complete", "layer_policy"
    )
    typed_options |= request.evidence.given(
        "evaluation", "layer_snr", "family", "noise_table", "full_run_hours", "hour_price"
    )
    typed_options |= stated.given("control", "short_rerun")
    refuse(typed_options, "needs training curves; of held-out losses only the losses are compared")
    if stated.loss_unit == BITS:
        comparisons = [[(arm, runs_in_nats(runs)) for arm, runs in arms] for arms in comparisons]
    paired = stated.seeds is not None or table.pair_by is not None
    judged = [
        judge_evaluations(arms, table, policy, stated.planned_steps, request.look, paired=paired)
        for arms in comparisons
    ]
    if reports.push:
        check_evaluations_push([case for case, _ in judged])
    report_evaluations(judged, reports, command)
    pages = [
        evaluation_report(case, typed(documents, without_page(command)))
        for case, documents in judged
        if reports.html is not None or reports.open_page
    ]
    if reports.html is not None:  # a page per size
        names = [documents[0]["candidate"]["name"] for _, documents in judged]
        for path, page in zip(paths_by_name(reports.html, names), pages, strict=True):
            write_page(page, path, show=reports.open_page)
    elif reports.open_page:
        write_page(pages[0], None, show=True)
    documents = [document for _, judged_documents in judged for document in judged_documents]
    on_stdout = not (reports.as_json or reports.markdown)
    recorded: list[AnyDocument] = []
    if reports.push:
        case = judged[0][0]
        recorded = push_case(case, documents, server.server, server.token, on_stdout=on_stdout)
    return [*documents, *recorded]


def _case(
    arms: Sequence[Arm],
    short_reruns: Mapping[str, list[Curve]],
    columns: ColumnNames,
    policy: Policy,
    stated: ArmOptions,
    evidence: Evidence,
    layers: Mapping[str, LayerTable],
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
        planned_steps=stated.planned_steps,
        assume_complete=stated.assume_complete,
        layer_policy=stated.layer_policy,
        layer_snr_db={arm: late_statistics(table) for arm, table in layers.items()},
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
