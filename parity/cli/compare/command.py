"""The command `compare`: judge candidates against a baseline from files, with no server."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from parity.canonical_json import json_value
from parity.cli.compare.comparisons import ComparisonRequest, Evidence, comparison_requests
from parity.cli.compare.evaluations import (
    Reports,
    report_evaluations,
)
from parity.cli.compare.publishing import (
    check_evaluations_push,
    check_push,
    push_case,
    write_page,
)
from parity.cli.compare.read_comparison import (
    CurveComparison,
    JudgedEvaluations,
    read_comparison,
)
from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.policy import PolicyOptions
from parity.cli.inputs.table_arms import TableOptions
from parity.cli.terminal.option_words import POLICY
from parity.cli.terminal.options import argument, basic, flat, option
from parity.cli.terminal.output import paths_by_name
from parity.cli.terminal.shared_options import Server
from parity.cli.terminal.typed_command import typed_command, without_page
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import exit_code
from parity.judging.case import AnyDocument, Case
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.path import with_path
from parity.report.figures.verdict_figure import draw_figure
from parity.report.html.page import case_report, evaluation_report
from parity.report.next_steps import typed
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
    found = read_comparison(request)
    if not isinstance(found, CurveComparison):
        return _report_evaluations(found, reports, server, command)
    case = found.case
    if reports.push:
        check_push(case)
    verdicts = case.verdicts()
    documents = [verdict.document() for verdict in verdicts]
    reports.write(case, documents, lambda paths: _draw(paths, with_path(verdicts), case))
    if reports.html is not None or reports.open_page:
        placed = typed(with_path(verdicts), without_page(command))
        write_page(case_report(case, placed), reports.html, show=reports.open_page)
    documents = _with_worth(documents, request.evidence)
    reports.show_verdicts(documents if reports.as_json else typed(documents, command))
    on_stdout = not (reports.as_json or reports.markdown)
    if reports.push:
        recorded = push_case(
            case, documents, server.server, server.token, on_stdout=on_stdout, layers=found.layers
        )
    else:
        recorded = []
    return [*documents, *recorded]


def _report_evaluations(
    judged: Sequence[JudgedEvaluations], reports: Reports, server: Server, command: str
) -> Sequence[AnyDocument]:
    """Print comparisons of held-out losses and write what is wanted."""
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
