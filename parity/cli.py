"""The command line: the only room with exit codes, written down once in `exits`.

Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2. Verbs that need a server are in `remote`.
"""

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from parity import remote, studies
from parity.advice import LayerSnr
from parity.arguments import load_criteria, pairs
from parity.client import ClientError, UnreachableError
from parity.criteria import GATES, NVFP4, PROFILES, CriteriaError
from parity.curve import Curve
from parity.economics import FullRun, worth
from parity.evaluations import EvaluationError
from parity.evidence import Case, EvidenceError, bundle_bytes, verify
from parity.exits import EXIT_CODES, exit_code
from parity.figures import FigureError, draw_figure
from parity.junit import render_junit
from parity.output import UsageError, show
from parity.plain import plain
from parity.readers import ReadError, read_run, run_name
from parity.readers.accuracy import read_accuracy
from parity.readers.layers import read_layer_snr
from parity.readers.units import other_unit
from parity.run_floor import rounds_stochastically
from parity.version import ENGINE_VERSION
from parity.watching import WatchTimeoutError

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
    except (UnreachableError, remote.JobEndedError) as error:
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
            "or task,accuracy,n. One file an arm. Default: none.",
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
    columns, recipes = pairs(column, "--column"), pairs(recipe, "--recipe")
    arms = _read_arms(runs, baseline_run or [], candidate_run or [], columns, recipes)
    controls = [read_run(file, columns=columns) for file in control or []]
    _refuse_mixed_units(arms, controls)
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
        layer_snr_db=_read_layer_snr(layer_snr or [], tuple(candidates)),
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
    _hint_at_recipes(arms)
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


def _read_layer_snr(items: Sequence[str], candidates: Sequence[str]) -> dict[str, LayerSnr]:
    """SNR by candidate; a file without a name belongs to the only candidate."""
    found: dict[str, LayerSnr] = {}
    for name, file in map(_optional_name, items):
        if name is None and len(candidates) > 1:
            raise UsageError(f"--layer-snr {file}; there are several candidates, expected NAME=FILE with one of {', '.join(candidates)}")
        arm = name or candidates[0]
        if arm not in candidates:
            raise UsageError(f"--layer-snr {arm}=...: there is no candidate {arm!r}; the candidates are {', '.join(candidates)}")
        found[arm] = read_layer_snr(file)
    return found


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


def _read_arms(
    runs: list[str], more_baseline: list[str], more_candidate: list[str], columns: Mapping[str, str], recipes: Mapping[str, str]
) -> list[tuple[str, list[Curve]]]:
    """Arms in order, baseline first: name and runs."""
    if len(runs) < 2:
        raise UsageError("only one arm was given; expected a baseline and at least one candidate")
    if sum(file == "-" for file in [*runs, *more_baseline, *more_candidate]) > 1:
        raise UsageError('"-" was given more than once; stdin can be read only once')
    files = _named(runs)
    for name in [*recipes, *(name for name, _ in map(_split_run, more_candidate))]:
        if name not in [known for known, _ in files]:
            raise UsageError(f"there is no arm {name!r}; the arms are {', '.join(known for known, _ in files)}")
    grouped = {name: [file] for name, file in files}
    grouped[files[0][0]] += more_baseline
    for name, file in map(_split_run, more_candidate):
        grouped[name].append(file)
    return [(name, _read_arm(paths, columns, recipes.get(name))) for name, paths in grouped.items()]


def _hint_at_recipes(arms: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """A name is no proof of a recipe, so it decides nothing; but whoever names an arm nvfp4 should know what that costs."""
    for name, runs in arms:
        if rounds_stochastically(name) and all(run.recipe is None for run in runs):
            print(
                f"parity: the recipe of arm {name} is not stated, so its run noise is assumed as for a deterministic one "
                f"(0.08 % of the loss); if it rounds stochastically, say so: --recipe {name}=nvfp4 (0.30 %)",
                file=sys.stderr,
            )


def _refuse_mixed_units(arms: Sequence[tuple[str, Sequence[Curve]]], controls: Sequence[Curve]) -> None:
    """Raise UsageError where a run counts something else than the first one does: tokens or samples beside steps."""
    first = arms[0][1][0]
    for name, runs in (*arms, ("control", controls)):
        for run in runs:
            if other_unit(first, run):
                raise UsageError(
                    f"{arms[0][0]} ({first.label}) counts in strides of {first.completeness.stride:,}, {name} ({run.label}) in strides of "
                    f"{run.completeness.stride:,}, with hardly a step in common: expected one unit; "
                    "name the column that counts optimizer steps with --column step=NAME"
                )


def _read_arm(files: list[str], columns: Mapping[str, str], recipe: str | None) -> list[Curve]:
    return [read_run(file, columns=columns, replicate=number, recipe=recipe) for number, file in enumerate(files)]


def _named(runs: Sequence[str]) -> list[tuple[str, str]]:
    """Arms as (name, file): NAME=FILE as given, else the file's stem, with its folder where two stems are equal."""
    split = [_optional_name(run) for run in runs]
    stems = [name or run_name(file) for name, file in split]
    found = []
    for (name, file), stem in zip(split, stems, strict=True):
        unique = stem if name or stems.count(stem) == 1 else f"{Path(file).parent.name}/{stem}"
        found.append((unique, file))
    names = [name for name, _ in found]
    if len(set(names)) == len(names):
        return found
    return [(f"{name} ({number})" if names.count(name) > 1 else name, file) for number, (name, file) in enumerate(found, 1)]


def _optional_name(run: str) -> tuple[str | None, str]:
    name, mark, file = run.partition("=")
    return (name, file) if mark and name and file and not Path(run).exists() else (None, run)


def _split_run(text: str) -> tuple[str, str]:
    name, mark, file = text.partition("=")
    if not mark or not name or not file:
        raise UsageError(f"--candidate-run {text!r}; expected NAME=FILE")
    return name, file


app.add_typer(studies.app)
app.add_typer(remote.app)

if __name__ == "__main__":
    main()
