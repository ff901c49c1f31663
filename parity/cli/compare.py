"""The command `compare`: judge candidates against a baseline from files, with no server."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import typer

from parity.canonical_json import json_value
from parity.cli.inputs import (
    NOISE_RUN,
    ArmOptions,
    PolicyOptions,
    contexts_by_arm,
    load_criteria,
    pairs,
    read_arms,
    read_control,
    read_layer_snrs,
    read_noise_runs,
    stated_columns,
    stated_families,
    stated_recipes,
    stated_roundings,
)
from parity.cli.numbers import NEEDS_NUMBERS, NEEDS_RUNS, number_arms, typed_numbers
from parity.cli.publishing import check_push, push_case, write_page
from parity.cli.run_tables import (
    NO_COLUMN,
    ArmBy,
    ArmFacts,
    At,
    BaselineArm,
    Cluster,
    LossColumn,
    PairBy,
    ReportFiles,
    RunBy,
    StepColumn,
    TableOptions,
    Target,
    Times,
    TokensPerStep,
    Where,
    holds_held_out_losses,
    judge_evaluations,
    read_table_arms,
    refuse_evaluation_options,
    refuse_given,
    report_evaluations,
)
from parity.cli.terminal.exits import exit_code
from parity.cli.terminal.help import ALL_PROFILES, ARMS, EVIDENCE, OUTPUT, POLICY, RECIPE_WORDS, SERVER
from parity.cli.terminal.options import Server, Token
from parity.cli.terminal.output import UsageError, paths_by_name, show, write_file
from parity.client.address import DEFAULT_URL
from parity.comparing.case import check_arm, comparison_case
from parity.comparing.reruns import read_rerun_table
from parity.comparing.stated import check_floors, check_plan, stated_multiplicity
from parity.judging.criteria import GATES, NVFP4
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case, bundle_bytes
from parity.readers.accuracy import read_accuracy
from parity.report.economics import FullRun, worth
from parity.report.figures import draw_figure
from parity.report.junit import render_junit

app = typer.Typer()

_FULL_RUN_OPTIONS = {"device_hours": "--full-run-hours", "price": "--hour-price", "check_devices": "--devices"}


@app.command(epilog="parity compare fp8.csv nvfp4.csv --recipe nvfp4=nvfp4 --planned-steps 1500")
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE CAND [CAND...]",
            help="Baseline run, then candidates, each as FILE or NAME=FILE; `-` reads stdin, FILE:RUN one run of a table or archive, "
            "wandb:ENTITY/PROJECT/RUN, mlflow:RUN_ID or trackio:PROJECT/RUN a tracker's run. With --arm-by, one table of many runs. "
            "NAME=LOSS, such as bf16=2.242 fp8=2.276, compares two numbers.",
        ),
    ],
    baseline_run: Annotated[
        list[str] | None, typer.Option(metavar="FILE", rich_help_panel=ARMS, help="Add a further run of the baseline; repeatable.")
    ] = None,
    candidate_run: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", rich_help_panel=ARMS, help="Add a further run of candidate NAME; repeatable.")
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", rich_help_panel=ARMS, help="Add a rerun of the baseline that only measures run-to-run noise; repeatable."
        ),
    ] = None,
    shorter_baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=ARMS,
            help='Add a finished run of the baseline with 25 to 50 % of its tokens, which a margin such as "5% tokens" is measured by; '
            "repeatable.",
        ),
    ] = None,
    noise_run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            rich_help_panel=ARMS,
            help="Add a rerun of arm NAME that was stopped early, at 40 to 95 % of the planned steps; it only measures run-to-run noise. "
            "Repeatable.",
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=RECIPE",
            rich_help_panel=ARMS,
            help=f"State the recipe of an arm, which sets the run noise that is assumed: {RECIPE_WORDS}. Repeatable.",
        ),
    ] = None,
    rounding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOW",
            rich_help_panel=ARMS,
            help="State how an arm rounds gradients, stochastic or nearest, if its recipe does not say. Repeatable. "
            "[default: stochastic is assumed]",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="S,S,...",
            rich_help_panel=ARMS,
            help="State the seed of each run of an arm, in order. [default: as their batches show]",
        ),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KEY=VALUE",
            rich_help_panel=ARMS,
            help="State what an arm ran on (engine, device_class, data_digest, ...); arms that differ cannot pass. Repeatable.",
        ),
    ] = None,
    planned_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=ARMS,
            help="State the planned length of a run. [default: as a trainer's log or a tracker's config states it]",
        ),
    ] = None,
    assume_complete: Annotated[
        bool, typer.Option(rich_help_panel=ARMS, help="Assume that the longest run ended as planned, instead of --planned-steps.")
    ] = False,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="decayed",
            rich_help_panel=ARMS,
            help="State that the learning rate of all runs had decayed at their end; a recorded rate may contradict it.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="loaded", rich_help_panel=ARMS, help="State that all runs began with trained weights, not from scratch."),
    ] = None,
    loss_is: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            rich_help_panel=ARMS,
            help="State that the losses are of held-out data (validation) or of training. [default: by the name of the column named for "
            "the loss, else training]",
        ),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(
            metavar="N", rich_help_panel=ARMS, help="State the tokens that both runs were trained on, for numbers in place of files."
        ),
    ] = None,
    loss_unit: Annotated[
        str | None,
        typer.Option(
            metavar="other", rich_help_panel=ARMS, help="State that the loss is no cross-entropy in nats, such as a mean squared error."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[WHERE:]QUANTITY=NAME",
            rich_help_panel=ARMS,
            help="Name the column of step, loss, grad_norm, ... in every file, or only in WHERE: an arm or a file. Repeatable. "
            "[default: well-known names]",
        ),
    ] = None,
    layer_policy: Annotated[
        str | None, typer.Option(metavar="TEXT", rich_help_panel=ARMS, help="Name the layers that are quantized; shown in the report.")
    ] = None,
    arm_by: ArmBy = None,
    run_by: RunBy = None,
    where: Where = None,
    baseline: BaselineArm = None,
    step: StepColumn = None,
    loss: LossColumn = None,
    pair_by: PairBy = None,
    cluster: Cluster = None,
    at: At = None,
    target: Target = None,
    tokens_per_step: TokensPerStep = None,
    times: Times = None,
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            rich_help_panel=POLICY,
            help='Set the largest acceptable gap: "1.0%" of the loss, "0.01 nats", or what "5% tokens" would gain.',
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=POLICY,
            help=f"Set the margin by name: {ALL_PROFILES}. [default without a margin: {NVFP4}]",
        ),
    ] = None,
    criteria: Annotated[
        str | None,
        typer.Option(
            metavar="parity.yaml",
            rich_help_panel=POLICY,
            help="Read the policy from the `criteria:` part of this file; options override it.",
        ),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK",
            rich_help_panel=POLICY,
            help=f"Let a further check decide, in addition to the loss: {', '.join(GATES[1:])}. Repeatable.",
        ),
    ] = None,
    accuracy_margin: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS", rich_help_panel=POLICY, help="Set the acceptable loss of accuracy in percentage points. [default: 2.0]"
        ),
    ] = None,
    looks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=POLICY,
            help="Register how often this question is judged at most, with runs added in between; the looks share the error. [default: 1]",
        ),
    ] = None,
    look: Annotated[
        int, typer.Option(metavar="K", rich_help_panel=POLICY, help="State which of the registered looks this is; nobody counts them here.")
    ] = 1,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            rich_help_panel=EVIDENCE,
            help="Read the downstream accuracy of an arm, one file per arm: CSV or JSON with task,correct or task,accuracy,n; "
            "or results_*.json of lm-evaluation-harness, with samples_*.jsonl in the same folder.",
        ),
    ] = None,
    layer_snr: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            rich_help_panel=EVIDENCE,
            help="Read the quantization SNR per layer of a candidate, CSV or JSON with layer,operand,snr_db; used for advice after a fail.",
        ),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ARM=]NAME",
            rich_help_panel=EVIDENCE,
            help="Borrow the run noise of both arms, or of ARM, from this family of reruns (`parity floors list`), or any-decoder if "
            "yours is not there. Repeatable.",
        ),
    ] = None,
    floors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=EVIDENCE,
            help="Read the families from this table (CSV). [default: the public reruns shipped here]",
        ),
    ] = None,
    full_run_hours: Annotated[
        float | None,
        typer.Option(metavar="HOURS", rich_help_panel=EVIDENCE, help="Report what the full run saves; it takes HOURS device hours."),
    ] = None,
    hour_price: Annotated[
        float | None, typer.Option(metavar="PRICE", rich_help_panel=EVIDENCE, help="Set the price of a device hour.")
    ] = None,
    devices: Annotated[int, typer.Option(rich_help_panel=EVIDENCE, help="Set the number of devices that a run of this check used.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print canonical JSON instead of text.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", rich_help_panel=OUTPUT, help="Print Markdown instead of text.")] = False,
    junit: Annotated[str | None, typer.Option(metavar="out.xml", rich_help_panel=OUTPUT, help="Also write JUnit XML to this file.")] = None,
    figure: Annotated[
        str | None,
        typer.Option(metavar="out.pdf", rich_help_panel=OUTPUT, help="Also draw one figure per candidate, as .png, .svg or .pdf."),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(metavar="out.zip", rich_help_panel=OUTPUT, help="Also write an evidence bundle, which `parity verify` recomputes."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            metavar="out.html", rich_help_panel=OUTPUT, help="Also write a page with interactive charts, one file that needs no network."
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", rich_help_panel=OUTPUT, help="Write that page, to a temporary file without --html, and open it.")
    ] = False,
    push: Annotated[
        bool,
        typer.Option(
            "--push",
            rich_help_panel=SERVER,
            help="Also record runs and verdict on the server and print the address of the page. If it breaks off, run it again.",
        ),
    ] = False,
    server: Server = DEFAULT_URL,
    token: Token = None,
) -> int:
    """Judge candidates against a baseline from files, with no server.

    Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    check_plan(planned_steps, "--planned-steps", assume_complete, "--assume-complete")
    policy = PolicyOptions(
        file=criteria,
        margin=margin,
        profile=profile,
        gates=gate or (),
        accuracy_margin=accuracy_margin,
        looks=looks,
        schedule=schedule,
        start=start,
        loss_unit=loss_unit,
    )
    case_criteria = load_criteria(policy)
    recipes = stated_recipes(recipe)
    roundings = stated_roundings(rounding, recipes)
    columns = stated_columns(column)
    table = TableOptions(
        arm_by=arm_by,
        run_by=run_by,
        step=step,
        loss=loss,
        where=where,
        baseline=baseline,
        pair_by=pair_by,
        cluster=cluster,
        at=at,
        target=target,
        tokens_per_step=tokens_per_step,
        times=times,
    )
    files = ReportFiles(bundle=bundle, figure=figure, junit=junit)
    numbers = typed_numbers(runs) if table.arm_by is None else None
    if numbers is None:
        refuse_given({"--tokens": tokens}, NEEDS_NUMBERS)
    if numbers is not None:
        noise_runs, held_out = {}, True
        refuse_given({"--baseline-run": baseline_run, "--candidate-run": candidate_run, "--seeds": seeds, "--context": context}, NEEDS_RUNS)
        refuse_given(table.given() | {"--column": column, "--planned-steps": planned_steps, "--start": start}, NEEDS_RUNS)
        arms = number_arms(numbers, tokens, recipes, roundings)
        table = dataclasses.replace(table, tokens_per_step=None if tokens is None else 1.0)
    elif table.arm_by is None:
        table.refuse_alone()
        options = ArmOptions(
            runs=runs,
            baseline_runs=baseline_run or (),
            candidate_runs=candidate_run or (),
            controls=control or (),
            noise_runs=noise_run or (),
            columns=columns,
            recipes=recipes,
            roundings=roundings,
            contexts=context or (),
            seeds=seeds,
        )
        arms = read_arms(options)
        held_out = holds_held_out_losses(loss_is, columns.losses())
        noise_runs = {} if held_out else read_noise_runs(options, arms)
    else:
        noise_runs = {}
        files_of_arms = {"--baseline-run": baseline_run, "--candidate-run": candidate_run, "--control": control, "--noise-run": noise_run}
        files_of_arms |= {"--shorter-baseline": shorter_baseline}
        refuse_given(files_of_arms, "names a file, but with --arm-by all runs are in one table; remove it")
        refuse_given({"--column": column}, NO_COLUMN)
        refuse_given({"--seeds": seeds}, "is not used with --arm-by; name the column of the seed with --pair-by")
        arms = read_table_arms(runs, table, ArmFacts(recipes=recipes, roundings=roundings, contexts=contexts_by_arm(context or ())))
        held_out = holds_held_out_losses(loss_is, {loss})
        if not held_out:
            refuse_evaluation_options(table)
    if held_out:
        refuse_given(
            {
                "--gate": gate,
                "--accuracy-margin": accuracy_margin,
                "--assume-complete": assume_complete,
                "--layer-policy": layer_policy,
                "--evaluation": evaluation,
                "--layer-snr": layer_snr,
                "--family": family,
                "--floors": floors,
                "--full-run-hours": full_run_hours,
                "--hour-price": hour_price,
                "--html": html,
                "--open": open_page,
                "--push": push,
                "--control": control,
                "--noise-run": noise_run,
            },
            "needs training curves; of held-out losses only the losses are compared",
        )
        paired = seeds is not None or pair_by is not None
        judged = judge_evaluations(arms, table, case_criteria, planned_steps, look, paired=paired)
        return report_evaluations(*judged, files, as_json=as_json, markdown=markdown)
    multiplicity = stated_multiplicity(look, "--look", case_criteria.looks, len(arms) - 1)
    controls = [read_control(file, columns) for file in control or []]
    names = [name for name, _ in arms]
    evaluation_files = pairs(evaluation, "--evaluation", "NAME=FILE")
    for arm in evaluation_files:
        check_arm(arm, names, "--evaluation")
    check_floors(floors, "--floors", family, "--family")
    families = stated_families(family or [], names)
    case = comparison_case(
        arms,
        case_criteria,
        step_option="--column step=NAME",
        noise_option=NOISE_RUN,
        controls=controls,
        shorter=[read_control(file, columns) for file in shorter_baseline or []],
        noise_runs=noise_runs,
        planned_steps=planned_steps,
        assume_complete=assume_complete,
        layer_policy=layer_policy,
        layer_snr_db=read_layer_snrs(layer_snr or [], names[1:]),
        evaluations={arm: read_accuracy(file) for arm, file in evaluation_files.items()},
        floors=read_rerun_table(floors) if families else None,
        families=families,
        multiplicity=multiplicity,
    )
    if push:
        check_push(case)
    documents = case.documents()
    _write_reports(files, case, documents)
    if html is not None or open_page:
        write_page(case, documents, html, show=open_page)
    if full_run_hours is not None:
        documents = _with_worth(documents, full_run_hours, hour_price, devices)
    show(documents, as_json=as_json, markdown=markdown)
    recorded = push_case(case, documents, server, token, on_stdout=not (as_json or markdown)) if push else []
    return exit_code([*documents, *recorded])


def _write_reports(files: ReportFiles, case: Case, documents: Sequence[VerdictDocument]) -> None:
    if files.bundle:
        write_file(files.bundle, bundle_bytes(case, documents))
    if files.figure:
        _draw(files.figure, documents, case)
    if files.junit:
        write_file(files.junit, render_junit(documents).encode())


def _draw(path: str, documents: Sequence[VerdictDocument], case: Case) -> None:
    """One figure per candidate: `path` for one, the candidate's name before the ending for several."""
    paths = paths_by_name(path, list(case.candidates))
    for one, document in zip(paths, documents, strict=True):
        draw_figure(one, document, case)


def _with_worth(documents: Sequence[VerdictDocument], hours: float, price: float | None, devices: int) -> list[VerdictDocument]:
    """The documents with what each is worth over the full run."""
    try:
        full = FullRun(device_hours=hours, price=price, check_devices=devices)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise UsageError(f"{_FULL_RUN_OPTIONS.get(name, name)} {rest}") from None
    return [{**document, "worth": json_value(worth(document, full))} for document in documents]
