"""The verbs for the design of an experiment: `plan` before any GPU is spent, `calibrate` on reruns of one configuration."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from parity.canonical_json import canonical_json, json_value
from parity.cli.exits import EXIT_CODES
from parity.cli.inputs import PolicyOptions, load_criteria, pairs
from parity.cli.output import UsageError
from parity.design.calibrate import DEFAULT_MARGINS, Calibration, calibrate
from parity.design.plan import Design, Plan, device_hours, plan
from parity.judging.criteria import parse_margin
from parity.readers import read_runs
from parity.version import JUDGE_VERSION
from parity.wording import percent

CALIBRATION_SCHEMA, PLAN_SCHEMA = "parity.calibration/1", "parity.plan/1"

app = typer.Typer()


@app.command("calibrate")
def calibrate_runs(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Files of reruns of one configuration, or one .npz of runs.")],
    planned_steps: Annotated[int | None, typer.Option(min=1, help="Steps of a run. Default: the longest run's length.")] = None,
    margin: Annotated[list[str] | None, typer.Option(help='Relative margin to try, "1%"; repeatable. Default: 1%, 0.5%, 0.25%.')] = None,
    criteria: Annotated[
        str | None, typer.Option(metavar="parity.yaml", help="Policy for all but the margin. Default: the defaults.")
    ] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="QUANTITY=NAME", help="Column of step, loss. Default: known names.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print canonical JSON. Default: a table.")] = False,
) -> int:
    """How often is the judge wrong on reruns of one configuration? Run floor, false alarms, coverage, power."""
    columns = pairs(column, "--column")
    curves = [curve for name in runs for curve in read_runs(name, columns=columns)]
    policy = load_criteria(PolicyOptions(file=criteria)) if criteria else None
    try:
        calibration = calibrate(curves, planned_steps=planned_steps, margins=_margins(margin), criteria=policy)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        sys.stdout.write(canonical_json({"schema": CALIBRATION_SCHEMA, "engine_version": JUDGE_VERSION, **json_value(calibration)}))
    else:
        Console(width=80, highlight=False).print(_calibration_text(calibration))
    return EXIT_CODES["pass"]


@app.command("plan")
def plan_design(
    level: Annotated[float, typer.Option(help="Loss expected in the window, nats. No default.")],
    planned_steps: Annotated[int, typer.Option(min=1, help="Steps of a run. No default.")],
    baseline_runs: Annotated[int, typer.Option(min=1, help="Runs of the baseline.")] = 1,
    candidate_runs: Annotated[int, typer.Option(min=1, help="Runs of the candidate.")] = 1,
    baseline_recipe: Annotated[str | None, typer.Option(help="Sets the assumed run floor. Default: unknown, 0.08 %.")] = None,
    candidate_recipe: Annotated[str | None, typer.Option(help="Sets the assumed run floor. Default: unknown, 0.08 %.")] = None,
    margin: Annotated[str | None, typer.Option(help='"1.0%" of the loss or "0.01 nats". Default: the profile\'s.')] = None,
    profile: Annotated[str | None, typer.Option(help="Margin by name. Default nvfp4 where no margin is set.")] = None,
    criteria: Annotated[str | None, typer.Option(metavar="parity.yaml", help="File with the policy. Default: none.")] = None,
    pair_sd: Annotated[float | None, typer.Option(help="Step-to-step sd of the paired gap, nats. Default: 0.11 % of the loss.")] = None,
    autocorrelation: Annotated[float, typer.Option(help="Lag-1 correlation of the paired gap, 0 to below 1.")] = 0.0,
    step_seconds: Annotated[float | None, typer.Option(help="Seconds a step, for device hours. Default: not costed.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices a run.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print canonical JSON. Default: a table.")] = False,
) -> int:
    """Can this experiment decide? Chances before any GPU is spent. Exit code 0 where it decides, 3 where it can't."""
    try:
        design = Design(
            level=level,
            planned_steps=planned_steps,
            baseline_runs=baseline_runs,
            candidate_runs=candidate_runs,
            baseline_recipe=baseline_recipe,
            candidate_recipe=candidate_recipe,
            pair_sd=pair_sd,
            autocorrelation=autocorrelation,
            step_seconds=step_seconds,
            devices=devices,
        )
        outlook = plan(design, load_criteria(PolicyOptions(file=criteria, margin=margin, profile=profile)))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        sys.stdout.write(canonical_json({"schema": PLAN_SCHEMA, "engine_version": JUDGE_VERSION, **json_value(outlook)}))
    else:
        Console(width=80, highlight=False).print(_plan_text(outlook))
    return EXIT_CODES["pass"] if outlook.decides else EXIT_CODES["inconclusive"]


def _margins(texts: Sequence[str] | None) -> tuple[float, ...]:
    amounts = [parse_margin(text, "--margin") for text in texts or []]
    if any(amount.unit != "relative" for amount in amounts):
        raise UsageError(f"--margin {texts}; calibrate takes relative margins such as 1%")
    return tuple(amount.value for amount in amounts) or DEFAULT_MARGINS


def _calibration_text(result: Calibration) -> Group:
    tau = result.tau
    ends = f"{tau.lo:.4f} to {tau.hi:.4f}" if math.isfinite(tau.hi) else "unknown"
    head = (
        f"{result.runs} runs, {result.pairs} ordered pairs, loss {result.level:.3f}. "
        f"Run floor {tau.value:.4f} nats (95 % interval {ends}), {percent(tau.rel)} of the loss. "
        f"The interval covers 0 in {percent(result.covers_zero, 3)} of the pairs; "
        f"without the between-run term {percent(result.naive_rejects, 3)} would be called different."
    )
    codes = ", ".join(f"{code} {count}" for code, count in result.codes.items())
    head += f" What decided at {percent(result.margins[0]['margin_rel'])}: {codes}."
    rows: list[Mapping[str, Any]] = [{"gap_in_margins": 0.0, **entry} for entry in result.margins]
    rows += result.injected
    table = _table("margin", "true gap", "pass", "inconclusive", "fail")
    for row in sorted(rows, key=lambda row: (-row["margin_rel"], row["gap_in_margins"])):
        shares = [f"{100 * row[state]:.0f} %" for state in ("pass", "inconclusive", "fail")]
        table.add_row(percent(row["margin_rel"]), f"{row['gap_in_margins']:g} x margin", *shares)
    return Group(Text(head), Text(""), table)


def _plan_text(outlook: Plan) -> Group:
    table = _table("true gap, nats", "in margins", "pass", "inconclusive", "fail")
    for power in outlook.power:
        chances = [f"{100 * value:.0f} %" for value in (power.pass_chance, power.inconclusive_chance, power.fail_chance)]
        table.add_row(f"{power.gap:+.4f}", f"{power.gap_in_margins:g}", *chances)
    hours = f" As given it takes {device_hours(outlook.gpu_hours)}." if outlook.gpu_hours is not None else ""
    return Group(Text(outlook.advice + hours), Text(""), table, Text(""), Text(outlook.note, style="dim"))


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    return table
