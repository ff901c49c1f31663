"""The commands for the design of an experiment: `plan` before you spend GPU time, `calibrate` on reruns of one configuration."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from parity.canonical_json import canonical_json, json_value
from parity.cli.inputs import PolicyOptions, known_family, load_criteria, refuse_unknown_recipe, stated_columns, stated_lenders
from parity.cli.run_tables import (
    NEEDS_ARM_BY,
    NO_COLUMN,
    ArmBy,
    LossColumn,
    RunBy,
    StepColumn,
    TableOptions,
    chosen_arm,
    read_table,
    refuse_given,
)
from parity.cli.terminal.exits import EXIT_CODES
from parity.cli.terminal.help import EXPERIMENT, NOISE, POLICY, RECIPE_WORDS, STATED_PROFILES, TABLE
from parity.cli.terminal.output import UsageError
from parity.comparing.arms import Stated, with_facts
from parity.comparing.case import refuse_mixed_recipes
from parity.comparing.stated import stated_rounding
from parity.design import sentences
from parity.design.budget import parse_budget
from parity.design.calibrate import DEFAULT_MARGINS, Calibration, calibrate
from parity.design.document import plan_document
from parity.design.experiment import BASELINE, CANDIDATE, DEFAULT_STOP, MAX_STOP, Design
from parity.design.like import likeness
from parity.design.plan import NATS, Plan, plan
from parity.judging.criteria import NVFP4, parse_margin
from parity.judging.curve import MAX_STEP
from parity.judging.early_stops.spread import MIN_STOP
from parity.judging.early_stops.usable import MAX_NOISE_RUNS
from parity.readers import read_runs
from parity.version import JUDGE_VERSION
from parity.wording import TABLE_DECIMALS, percent, signed

MAX_REPLICATES = 64
CALIBRATION_SCHEMA, PLAN_SCHEMA = "parity.calibration/1", "parity.plan/1"

app = typer.Typer()


@app.command("calibrate", epilog="parity calibrate rerun1.csv rerun2.csv rerun3.csv --margin 1%")
def calibrate_runs(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...", help="Reruns of one configuration: files, tracker runs, one .npz archive, or with --arm-by one table."
        ),
    ],
    planned_steps: Annotated[int | None, typer.Option(min=1, help="Set the planned length of a run. [default: the longest run]")] = None,
    margin: Annotated[
        list[str] | None, typer.Option(metavar="PERCENT", help="Try this relative margin; repeatable. [default: 1%, 0.5%, 0.25%]")
    ] = None,
    criteria: Annotated[
        str | None, typer.Option(metavar="parity.yaml", help="Read the policy, except for the margin, from this file's `criteria:` part.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="[FILE:]QUANTITY=NAME", help="Name the column of step or loss; repeatable. [default: well-known names]"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="RECIPE", help=f"State the recipe of the runs, which sets the run noise that is assumed: {RECIPE_WORDS}."),
    ] = None,
    rounding: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="State how the runs round gradients, stochastic or nearest, if the recipe does not say. [default: stochastic is assumed]",
        ),
    ] = None,
    arm_by: ArmBy = None,
    run_by: RunBy = None,
    arm: Annotated[
        str | None, typer.Option(metavar="ARM", rich_help_panel=TABLE, help="Name the arm whose runs are the reruns of one configuration.")
    ] = None,
    step: StepColumn = None,
    loss: LossColumn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print canonical JSON instead of a table.")] = False,
) -> int:
    """Measure how often the judge is wrong, on reruns of one configuration: run noise, false alarms, coverage and power."""
    columns = stated_columns(column)
    columns.refuse_unknown(runs)
    refuse_unknown_recipe(recipe, "--recipe")
    stated = stated_rounding(rounding, "--rounding", recipe)
    table = TableOptions(arm_by=arm_by, run_by=run_by, step=step, loss=loss)
    if arm_by is None:
        table.refuse_alone()
        refuse_given({"--arm": arm}, NEEDS_ARM_BY)
        reruns = [curve for name in runs for curve in read_runs(name, columns=columns.of(name))]
    else:
        refuse_given({"--column": column}, NO_COLUMN)
        by_arm = read_table(runs, table)
        reruns = by_arm[chosen_arm(by_arm, "--arm", arm)]
    facts = Stated(recipe=recipe, rounding=stated)
    curves = [with_facts(curve, curve.label or "a rerun", facts) for curve in reruns]
    refuse_mixed_recipes([("reruns", curves)])
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


@app.command("plan", epilog="parity plan --planned-steps 10000 --candidate-recipe nvfp4")
def plan_design(
    planned_steps: Annotated[int, typer.Option(min=1, rich_help_panel=EXPERIMENT, help="Planned length of a run.")],
    level: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            rich_help_panel=EXPERIMENT,
            help="Loss that you expect at the end, in nats. [default: the family's, else everything is a share of the loss]",
        ),
    ] = None,
    baseline_runs: Annotated[
        int | None, typer.Option(min=1, max=MAX_REPLICATES, rich_help_panel=EXPERIMENT, help="Number of baseline runs. [default: 1]")
    ] = None,
    candidate_runs: Annotated[
        int | None, typer.Option(min=1, max=MAX_REPLICATES, rich_help_panel=EXPERIMENT, help="Number of candidate runs. [default: 1]")
    ] = None,
    noise_runs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_NOISE_RUNS,
            rich_help_panel=EXPERIMENT,
            help="Number of reruns per arm that stop early and only measure run noise. [default: 0]",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=EXPERIMENT,
            help=f"Share of the steps after which they stop, {MIN_STOP:g} to {MAX_STOP:g}. [default: {DEFAULT_STOP:g}]",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            rich_help_panel=EXPERIMENT,
            help='Find the runs that decide most often for this: "200 hours" of devices, or "40000 steps" of all runs together.',
        ),
    ] = None,
    baseline_recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE", rich_help_panel=NOISE, help=f"Recipe of the baseline, which sets its assumed run noise: {RECIPE_WORDS}."
        ),
    ] = None,
    candidate_recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", rich_help_panel=NOISE, help="Recipe of the candidate, in the same words.")
    ] = None,
    baseline_rounding: Annotated[
        str | None,
        typer.Option(metavar="HOW", rich_help_panel=NOISE, help="State how the baseline rounds gradients: stochastic or nearest."),
    ] = None,
    candidate_rounding: Annotated[
        str | None,
        typer.Option(metavar="HOW", rich_help_panel=NOISE, help="State how the candidate rounds gradients: stochastic or nearest."),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ARM=]NAME",
            rich_help_panel=NOISE,
            help="Borrow the run noise of both arms, or of baseline or candidate, from this family of reruns "
            "(`parity floors list`). Repeatable.",
        ),
    ] = None,
    floors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=NOISE, help="Read the families from this table (CSV). [default: the public reruns shipped here]"
        ),
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            rich_help_panel=POLICY,
            help='Set the largest acceptable gap: "1.0%" of the loss, "0.01 nats", or "5% tokens at 0.2 nats" per e-fold of tokens.',
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=POLICY, help=f"Set the margin by name: {STATED_PROFILES}. [default without a margin: {NVFP4}]"
        ),
    ] = None,
    criteria: Annotated[
        str | None, typer.Option(metavar="parity.yaml", rich_help_panel=POLICY, help="Read the policy from this file's `criteria:` part.")
    ] = None,
    pair_sd: Annotated[
        float | None,
        typer.Option(
            metavar="NATS", rich_help_panel=NOISE, help="Step-to-step standard deviation of the paired gap. [default: 0.11 % of the loss]"
        ),
    ] = None,
    autocorrelation: Annotated[
        float, typer.Option(metavar="R", rich_help_panel=NOISE, help="Lag-1 correlation of the paired gap, from 0 to below 1.")
    ] = 0.0,
    step_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", rich_help_panel=EXPERIMENT, help="Duration of a step; with it the device hours are shown."),
    ] = None,
    devices: Annotated[int, typer.Option(min=1, rich_help_panel=EXPERIMENT, help="Number of devices per run.")] = 1,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            rich_help_panel=EXPERIMENT,
            help="Take the loss, its logging interval, and the baseline's recipe, rounding, family and time per step, from this run: "
            "a file, or a tracker's (mlflow:RUN_ID). Options override it.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="QUANTITY=NAME", rich_help_panel=EXPERIMENT, help="Name a column of the run of --like; repeatable."),
    ] = None,
    log_every: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, rich_help_panel=EXPERIMENT, help="The loss is logged every N steps. [default: every step]"),
    ] = None,
    looks: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=EXPERIMENT, help="Register N looks, with a run per arm added in between. [default: 1]"),
    ] = None,
    candidates: Annotated[
        int,
        typer.Option(metavar="N", min=1, rich_help_panel=EXPERIMENT, help="Compare N candidates, which share the error."),
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print canonical JSON instead of a table.")] = False,
) -> int:
    """Estimate what an experiment, or a budget, can decide before you spend GPU time.

    Exits 0 if it can decide, 3 if it cannot.
    """
    if planned_steps > MAX_STEP:
        raise UsageError(f"--planned-steps has {len(str(planned_steps)):,} digits; expected a number of steps, at most {MAX_STEP:,}")
    if budget is not None:
        chosen = {"--baseline-runs": baseline_runs, "--candidate-runs": candidate_runs, "--noise-runs": noise_runs, "--stop-at": stop_at}
        refuse_given(chosen, "is what --budget chooses; give only one of them")
    if stop_at is not None and not noise_runs:
        raise UsageError(f"--stop-at is {stop_at:g} without --noise-runs; state how many reruns stop there")
    if column and like is None:
        raise UsageError(f"--column is {column[0]!r} without --like; name the run whose column it is")
    earlier = None if like is None else likeness(like, stated_columns(column).of(like))
    if earlier is not None:
        level = earlier.level if level is None else level
        if baseline_recipe is None and baseline_rounding is None:
            baseline_recipe, baseline_rounding = earlier.recipe, earlier.rounding
        step_seconds = earlier.step_seconds if step_seconds is None else step_seconds
        log_every = earlier.log_every if log_every is None else log_every
        family = family or known_family(earlier.family)
        print(earlier.words, file=sys.stderr)
    lenders = stated_lenders(family or [], floors, (BASELINE, CANDIDATE))
    try:
        criteria_to_plan = load_criteria(PolicyOptions(file=criteria, margin=margin, profile=profile, looks=looks))
        design = Design(
            level=level,
            planned_steps=planned_steps,
            baseline_runs=baseline_runs or 1,
            candidate_runs=candidate_runs or 1,
            noise_runs=noise_runs or 0,
            stop_at=DEFAULT_STOP if stop_at is None else stop_at,
            baseline_recipe=baseline_recipe,
            candidate_recipe=candidate_recipe,
            baseline_rounding=stated_rounding(baseline_rounding, "--baseline-rounding", baseline_recipe),
            candidate_rounding=stated_rounding(candidate_rounding, "--candidate-rounding", candidate_recipe),
            pair_sd=pair_sd,
            autocorrelation=autocorrelation,
            step_seconds=step_seconds,
            devices=devices,
            candidates=candidates,
            log_every=log_every or 1,
        )
        outlook = plan(design, criteria_to_plan, lenders, None if budget is None else parse_budget(budget))
    except ValueError as error:
        name, mark, rest = str(error).partition(" is ")
        option = f"--{name.replace('_', '-')}" if mark and name.isidentifier() else name
        raise UsageError(f"{option}{mark}{rest}") from None
    if as_json:
        sys.stdout.write(canonical_json({"schema": PLAN_SCHEMA, "engine_version": JUDGE_VERSION, **plan_document(outlook)}))
    else:
        Console(width=80, highlight=False).print(_plan_text(outlook))
    return EXIT_CODES["pass"] if outlook.decides else EXIT_CODES["inconclusive"]


def _margins(texts: Sequence[str] | None) -> tuple[float, ...]:
    amounts = [parse_margin(text, "--margin") for text in texts or []]
    if any(amount.unit != "relative" for amount in amounts):
        raise UsageError(f"--margin is {', '.join(texts or ())}; expected a relative margin such as 1%")
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
    table = _table("true gap, nats" if outlook.unit == NATS else "true gap, of the loss", "in margins", "pass", "inconclusive", "fail")
    for power in outlook.power:
        chances = [f"{100 * value:.0f} %" for value in (power.pass_chance, power.inconclusive_chance, power.fail_chance)]
        gap = signed(power.gap, TABLE_DECIMALS) if outlook.unit == NATS else percent(power.gap)
        table.add_row(gap, f"{power.gap_in_margins:g}", *chances)
    head = f"{sentences.headline(outlook)} {sentences.advice(outlook)} {sentences.cost(outlook)}"
    about = (sentences.noise, sentences.errors, sentences.early_stops, sentences.stops)
    rests_on = " ".join(words for sentence in about if (words := sentence(outlook)))
    looks = [Text(""), Text(words)] if (words := sentences.looks(outlook)) else []
    return Group(Text(head), *looks, Text(""), table, Text(""), Text(rests_on, style="dim"))


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    return table
