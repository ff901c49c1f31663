"""The verb `compare`: candidates judged against a baseline from files, with no server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from parity.canonical_json import json_value
from parity.cli.exits import exit_code
from parity.cli.inputs import (
    ArmOptions,
    PolicyOptions,
    load_criteria,
    pairs,
    read_arms,
    read_layer_snrs,
    refuse_mixed_units,
    warn_of_unstated_recipes,
)
from parity.cli.output import UsageError, show, write_file
from parity.judging.criteria import GATES, NVFP4, PROFILES
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case, bundle_bytes
from parity.readers import read_run
from parity.readers.accuracy import read_accuracy
from parity.report.economics import FullRun, worth
from parity.report.figures import draw_figure
from parity.report.junit import render_junit

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """Paths of what `compare` writes in addition to stdout; None where it is not wanted."""

    bundle: str | None
    figure: str | None
    junit: str | None


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="BASE CAND [CAND...]", help="Baseline run, then candidates; [NAME=]FILE, - or x.npz:run.")
    ],
    baseline_run: Annotated[list[str] | None, typer.Option(help="A further run of the baseline (file).")] = None,
    candidate_run: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE", help="A further run of candidate NAME.")] = None,
    control: Annotated[list[str] | None, typer.Option(help="An A/A control: a rerun of the baseline (file).")] = None,
    margin: Annotated[
        str | None, typer.Option(help='Largest acceptable gap: "1.0%" of the loss, or "0.01 nats". Default: the profile\'s.')
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help=f"Margin by name: {', '.join(PROFILES)}. Default {NVFP4} where no margin is set.")
    ] = None,
    criteria: Annotated[
        str | None, typer.Option(metavar="parity.yaml", help="File whose `criteria:` part is the policy. Flags override it.")
    ] = None,
    planned_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps that each run was planned to take. No default: without it no pass.")
    ] = None,
    assume_complete: Annotated[bool, typer.Option(help="The longest run ended by plan. Default: not assumed.")] = False,
    column: Annotated[
        list[str] | None, typer.Option(metavar="QUANTITY=NAME", help="Column of step, loss, grad_norm, ... Default: known names.")
    ] = None,
    recipe: Annotated[
        list[str] | None, typer.Option(metavar="NAME=RECIPE", help="Recipe of an arm (sets its assumed run noise). Default: unknown.")
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KEY=VALUE", help="What arm NAME ran on (engine, device_class, data_digest, ...): must agree. Default: not stated."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="S,S,...", help="Seeds of each arm's runs in order (one data order each). Default: all of one seed."),
    ] = None,
    layer_policy: Annotated[str | None, typer.Option(help="Which layers are quantized; named in the headline. Default: not named.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print canonical JSON instead of text.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of text.")] = False,
    junit: Annotated[str | None, typer.Option(metavar="out.xml", help="Also write JUnit XML here. Default: not written.")] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="out.pdf", help="Also draw it: png, svg, pdf; one a candidate. Default: none.")
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Downstream accuracy of arm NAME, CSV or JSON: task,correct an item a row (then paired by the column item, or by order), "
            "or task,accuracy,n; or lm-evaluation-harness's results_*.json, with its samples_*.jsonl where they lie beside it. "
            "One file an arm. Default: none.",
        ),
    ] = None,
    accuracy_margin: Annotated[
        float | None, typer.Option(metavar="POINTS", help="Accuracy that may be lost, percentage points. Default: the policy's, 1.0.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help=f"A check that decides beside the loss: {', '.join(GATES[1:])}. Default: the policy's, none."),
    ] = None,
    layer_snr: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Quantization SNR (dB) by layer of candidate NAME, CSV or JSON: layer,operand,snr_db; advice after a fail. Default: none.",
        ),
    ] = None,
    full_run_hours: Annotated[float | None, typer.Option(help="Device hours of the full run, to say what is saved. Default: none.")] = None,
    hour_price: Annotated[float | None, typer.Option(help="Price of a device hour. Default: not priced.")] = None,
    devices: Annotated[int, typer.Option(help="Devices that a run of this check used.")] = 1,
    bundle: Annotated[
        str | None, typer.Option(metavar="out.zip", help="Also write the evidence bundle here. Default: not written.")
    ] = None,
) -> int:
    """Judge candidates against a baseline from files, with no server. Exit code: the worst of fail, inconclusive, pass."""
    policy = PolicyOptions(file=criteria, margin=margin, profile=profile, gates=gate or (), accuracy_margin=accuracy_margin)
    case_criteria = load_criteria(policy)
    columns = pairs(column, "--column")
    arms = read_arms(
        ArmOptions(
            runs=runs,
            baseline_runs=baseline_run or (),
            candidate_runs=candidate_run or (),
            columns=columns,
            recipes=pairs(recipe, "--recipe"),
            contexts=context or (),
            seeds=seeds,
        )
    )
    controls = [read_run(file, columns=columns) for file in control or []]
    refuse_mixed_units(arms, controls)
    (name, baseline), candidates = arms[0], dict(arms[1:])
    case = Case(
        baseline=baseline,
        candidates=candidates,
        criteria=case_criteria,
        controls=controls,
        planned_steps=planned_steps,
        assume_complete=assume_complete,
        layer_policy=layer_policy,
        baseline_name=name,
        layer_snr_db=read_layer_snrs(layer_snr or [], tuple(candidates)),
        evaluations={arm: read_accuracy(file) for arm, file in pairs(evaluation, "--evaluation").items()},
    )
    documents = case.documents()
    _write_reports(ReportFiles(bundle=bundle, figure=figure, junit=junit), case, documents)
    if full_run_hours is not None:
        documents = _with_worth(documents, full_run_hours, hour_price, devices)
    show(documents, as_json=as_json, markdown=markdown)
    warn_of_unstated_recipes(arms)
    return exit_code(documents)


def _write_reports(files: ReportFiles, case: Case, documents: Sequence[VerdictDocument]) -> None:
    if files.bundle:
        write_file(files.bundle, bundle_bytes(case, documents))
    if files.figure:
        _draw(files.figure, documents, case)
    if files.junit:
        write_file(files.junit, render_junit(documents).encode())


def _draw(path: str, documents: Sequence[VerdictDocument], case: Case) -> None:
    """A figure a candidate: `path` for one, the candidate's name before the ending for several."""
    target = Path(path)
    for document, (name, runs) in zip(documents, case.candidates.items(), strict=True):
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        one = path if len(documents) == 1 else str(target.with_name(f"{target.stem}-{safe}{target.suffix}"))
        draw_figure(one, document, case.baseline, runs, case.criteria, case.planned_steps)


def _with_worth(documents: Sequence[VerdictDocument], hours: float, price: float | None, devices: int) -> list[VerdictDocument]:
    """The documents with what each is worth over the full run."""
    try:
        full = FullRun(device_hours=hours, price=price, check_devices=devices)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return [{**document, "worth": json_value(worth(document, full))} for document in documents]
