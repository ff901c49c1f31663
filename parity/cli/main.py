"""The command line: the only room with exit codes, written down once in `exits`.

Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2. Verbs that need a server are in `remote`.
"""

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.canonical_json import plain
from parity.cli import baselines, design, gate, jobs
from parity.cli import runs as external
from parity.cli.arguments import load_criteria, pairs
from parity.cli.exits import EXIT_CODES, exit_code
from parity.cli.inputs import hint_at_recipes, read_arms, read_layer_snrs, refuse_mixed_units
from parity.cli.output import UsageError, show
from parity.cli.watching import WatchTimeoutError
from parity.client.rest import ClientError, UnreachableError
from parity.judging.criteria import GATES, NVFP4, PROFILES, CriteriaError
from parity.judging.evidence import Case, EvidenceError, bundle_bytes, verify
from parity.judging.secondary.evaluations import EvaluationError
from parity.readers import ReadError, read_run
from parity.readers.accuracy import read_accuracy
from parity.report.economics import FullRun, worth
from parity.report.figures import FigureError, draw_figure
from parity.report.junit import render_junit
from parity.version import ENGINE_VERSION

__all__ = ["EXIT_CODES", "app", "exit_code", "main"]

app = typer.Typer(
    name="parity",
    help="Is a training recipe as good as its baseline for your model? Exit codes: "
    + ", ".join(f"{code} {name}" for name, code in EXIT_CODES.items())
    + ".",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
)

# typer's own base of "no such option" and its like, wherever its version keeps the class
_CommandLineError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with a documented exit code; never a traceback for bad input."""
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except _CommandLineError as error:
        _complain(error.format_message() if isinstance(error, typer.BadParameter) else str(error))
        code = EXIT_CODES["usage"]
    except (UsageError, ReadError, CriteriaError, EvaluationError, EvidenceError, FigureError) as error:
        _complain(str(error))
        code = EXIT_CODES["usage"]
    except ClientError as error:
        _complain(str(error))
        code = EXIT_CODES["usage"] if error.status < 500 else EXIT_CODES["infrastructure"]
    except (UnreachableError, jobs.JobEndedError) as error:
        _complain(str(error))
        code = EXIT_CODES["infrastructure"]
    except WatchTimeoutError as error:
        _complain(str(error))
        code = EXIT_CODES["timeout"]
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = EXIT_CODES["infrastructure"]
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone; nobody is left to tell
        code = EXIT_CODES["infrastructure"]
    except Exception as error:  # noqa: BLE001 (a bug of ours must not leave with Python's 1, which says "fail")
        traceback.print_exc()
        _complain(f"an error of parity itself, please report it: {error!r}")
        code = EXIT_CODES["infrastructure"]
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> None:
    print("parity: " + " ".join(message.split()), file=sys.stderr)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the engine's version.")] = False) -> None:
    """Is a training recipe as good as its baseline for your model?"""
    if version:
        print(f"parity {ENGINE_VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_CODES["usage"])


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
    policy = load_criteria(criteria, margin=margin, profile=profile, gates=gate, accuracy_margin=accuracy_margin)
    columns = pairs(column, "--column")
    arms = read_arms(runs, baseline_run or [], candidate_run or [], columns, pairs(recipe, "--recipe"), context or [], seeds)
    controls = [read_run(file, columns=columns) for file in control or []]
    refuse_mixed_units(arms, controls)
    (name, baseline), candidates = arms[0], dict(arms[1:])
    case = Case(
        baseline=baseline,
        candidates=candidates,
        criteria=policy,
        controls=controls,
        planned_steps=planned_steps,
        assume_complete=assume_complete,
        layer_policy=layer_policy,
        baseline_name=name,
        layer_snr_db=read_layer_snrs(layer_snr or [], tuple(candidates)),
        evaluations={arm: read_accuracy(file) for arm, file in pairs(evaluation, "--evaluation").items()},
    )
    documents = case.documents()
    if bundle:
        _write(bundle, bundle_bytes(case, documents))
    if figure:
        _draw(figure, documents, case)
    if junit:
        _write(junit, render_junit(documents).encode())
    if full_run_hours is not None:
        documents = _with_worth(documents, full_run_hours, hour_price, devices)
    show(documents, as_json=as_json, markdown=markdown)
    hint_at_recipes(arms)
    return exit_code(documents)


@app.command("verify")
def verify_bundle(bundle: Annotated[str, typer.Argument(metavar="BUNDLE.zip", help="Evidence written by compare --bundle.")]) -> int:
    """Recompute a verdict from its evidence bundle, offline. Exit code 0 where it is identical, 1 where something differs."""
    differences = verify(bundle)
    for line in differences:
        print(line)
    if differences:
        return EXIT_CODES["fail"]
    print(f"identical: {bundle} gives the verdicts that it states (numbers to 1e-9 relative)")
    return EXIT_CODES["pass"]


def _draw(path: str, documents: Sequence[Mapping[str, Any]], case: Case) -> None:
    """A figure a candidate: `path` for one, the candidate's name before the ending for several."""
    target = Path(path)
    for document, (name, runs) in zip(documents, case.candidates.items(), strict=True):
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        one = path if len(documents) == 1 else str(target.with_name(f"{target.stem}-{safe}{target.suffix}"))
        draw_figure(one, document, case.baseline, runs, case.criteria, case.planned_steps)


def _with_worth(documents: Sequence[Mapping[str, Any]], hours: float, price: float | None, devices: int) -> list[dict[str, Any]]:
    """The documents with what each is worth over the full run."""
    try:
        full = FullRun(device_hours=hours, price=price, check_devices=devices)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return [{**document, "worth": plain(worth(document, full))} for document in documents]


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: can't be written ({error.strerror})") from None


app.add_typer(design.app)
app.add_typer(jobs.app)
app.add_typer(gate.app)
app.add_typer(external.app)
app.add_typer(baselines.app)

if __name__ == "__main__":
    main()
