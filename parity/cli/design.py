"""The commands for the design of an experiment: `plan` before you spend GPU time, `calibrate` on
reruns of one configuration.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from parity.canonical_json import canonical_json, json_value
from parity.cli.inputs import (
    PolicyOptions,
    known_family,
    load_policy,
    pattern_option,
    refuse_unknown_recipe,
    stated_columns,
    stated_lenders,
)
from parity.cli.options import Options, argument, flag, flat, option, refuse, repeatable
from parity.cli.run_tables import NEEDS_ARM_BY, NO_COLUMN, Table, chosen_arm, read_table
from parity.cli.terminal import (
    ARMS,
    EXPERIMENT,
    NOISE,
    OUTPUT,
    POLICY,
    RECIPE_WORDS,
    STATED_PROFILES,
    TABLE,
    UsageError,
)
from parity.comparing.arms import Stated, with_facts
from parity.comparing.case import refuse_mixed_recipes
from parity.comparing.statements import stated_rounding
from parity.design import plan_words as sentences
from parity.design.budget import parse_budget
from parity.design.calibrate import DEFAULT_MARGINS, Calibration, calibrate
from parity.design.earlier_run import likeness
from parity.design.experiment import BASELINE, CANDIDATE, DEFAULT_STOP, MAX_STOP, Design
from parity.design.plan import NATS, Plan, plan
from parity.design.plan_document import plan_document
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.curve import MAX_STEP
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.policy import NVFP4, parse_margin
from parity.readers import read_runs
from parity.version import JUDGE_VERSION
from parity.wording import percent, signed

MAX_REPLICATES = 64
CALIBRATION_SCHEMA, PLAN_SCHEMA = "parity.calibration/1", "parity.plan/1"

app = typer.Typer()


class Reruns(Table):
    """Reruns of one configuration: files, or an arm of a table."""

    arm: str | None = option(
        None,
        "Name the arm whose runs are the reruns of one configuration.",
        "ARM",
        rich_help_panel=TABLE,
    )


class Settings(Options, panel=ARMS):
    """What is stated of reruns, and which margins are tried on them."""

    planned_steps: int | None = option(
        None, "Set the planned length of a run. [default: the longest run]", min=1
    )
    margin: list[str] = repeatable(
        "Try this relative margin; repeatable. [default: 1%, 0.5%, 0.25%]",
        "PERCENT",
        rich_help_panel=POLICY,
    )
    policy: str | None = option(
        None,
        "Read the policy, except for the margin, from this file's `policy:` part.",
        "parity.yaml",
        rich_help_panel=POLICY,
    )
    column: list[str] = repeatable(
        "Name the column of step or loss; repeatable. [default: well-known names]",
        "[FILE:]QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()
    recipe: str | None = option(
        None,
        "State the recipe of the runs, which sets the run-to-run noise that is assumed: "
        f"{RECIPE_WORDS}.",
        "RECIPE",
    )
    rounding: str | None = option(
        None,
        "State how the runs round gradients, stochastic or nearest, if the recipe does not say. "
        "[default: stochastic is assumed]",
        "HOW",
    )


@app.command("calibrate", epilog="parity calibrate rerun1.csv rerun2.csv rerun3.csv --margin 1%")
@flat
def calibrate_runs(
    runs: Annotated[
        list[str],
        argument(
            "RUN RUN...",
            "Reruns of one configuration: files, tracker runs, one .npz archive, or with --arm-by "
            "one table.",
        ),
    ],
    stated: Settings,
    table: Annotated[Reruns, ("arm_by", "run_by", "arm", "step", "loss")],
    as_json: bool = flag(
        "--json", "Print canonical JSON instead of a table.", rich_help_panel=OUTPUT
    ),
) -> int:
    """Measure run-to-run noise on reruns of one configuration, and check the judge against it.

    Prints how often equal runs would pass and fail, and with an added gap, at each margin.
    """
    columns = stated_columns(stated.column, stated.pattern)
    columns.refuse_unknown(runs)
    refuse_unknown_recipe(stated.recipe, "--recipe")
    facts = Stated(
        recipe=stated.recipe, rounding=stated_rounding(stated.rounding, "--rounding", stated.recipe)
    )
    if table.arm_by is None:
        refuse(table.given(), NEEDS_ARM_BY)
        reruns = [curve for name in runs for curve in read_runs(name, columns=columns.of(name))]
    else:
        refuse(stated.given("column", "pattern"), NO_COLUMN)
        by_arm = read_table(runs, table)
        reruns = by_arm[chosen_arm(by_arm, "--arm", table.arm)]
    curves = [with_facts(curve, curve.label or "a rerun", facts) for curve in reruns]
    refuse_mixed_recipes([("reruns", curves)])
    policy = load_policy(PolicyOptions(policy=stated.policy)) if stated.policy else None
    try:
        calibration = calibrate(
            curves,
            planned_steps=stated.planned_steps,
            margins=_margins(stated.margin),
            policy=policy,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    _print(
        CALIBRATION_SCHEMA, json_value(calibration), _calibration_text(calibration), as_json=as_json
    )
    return EXIT_CODES["pass"]


class Experiment(Options, panel=EXPERIMENT):
    """The experiment that is planned: how many runs, of how many steps."""

    level: float | None = option(
        None,
        "Loss that you expect at the end, in nats. [default: the family's, else everything is a "
        "share of the loss]",
        "NATS",
    )
    baseline_runs: int | None = option(
        None, "Number of baseline runs. [default: 1]", min=1, max=MAX_REPLICATES
    )
    candidate_runs: int | None = option(
        None, "Number of candidate runs. [default: 1]", min=1, max=MAX_REPLICATES
    )
    short_reruns: int | None = option(
        None,
        "Number of reruns per arm that stop early and only measure run-to-run noise. [default: 0]",
        min=0,
        max=MAX_SHORT_RERUNS,
    )
    stop_at: float | None = option(
        None,
        f"Share of the steps after which they stop, {MIN_STOP:g} to {MAX_STOP:g}. [default: "
        f"{DEFAULT_STOP:g}]",
        "SHARE",
    )
    budget: str | None = option(
        None,
        'Find the runs that decide most often for this: "200 hours" of devices, or "40000 steps" '
        "of all runs together.",
        "AMOUNT",
    )
    step_seconds: float | None = option(
        None, "Duration of a step; with it the device hours are shown.", "SECONDS"
    )
    devices: int = option(1, "Number of devices per run.", min=1)
    like: str | None = option(
        None,
        "Take the loss, its batch noise and logging interval, and the baseline's recipe, rounding, "
        "family and time per step, from this "
        "run: a file, or a tracker's (mlflow:RUN_ID). Options override it.",
        "RUN",
    )
    column: list[str] = repeatable(
        "Name a column of the run of --like; repeatable.", "QUANTITY=NAME"
    )
    pattern: list[str] = pattern_option()
    log_every: int | None = option(
        None, "The loss is logged every N steps. [default: every step]", "N", min=1
    )


class Noise(Options, panel=NOISE):
    """What is known of the run-to-run noise of both arms."""

    baseline_recipe: str | None = option(
        None,
        f"Recipe of the baseline, which sets its assumed run-to-run noise: {RECIPE_WORDS}.",
        "RECIPE",
    )
    candidate_recipe: str | None = option(
        None, "Recipe of the candidate, in the same words.", "RECIPE"
    )
    baseline_rounding: str | None = option(
        None, "State how the baseline rounds gradients: stochastic or nearest.", "HOW"
    )
    candidate_rounding: str | None = option(
        None, "State how the candidate rounds gradients: stochastic or nearest.", "HOW"
    )
    family: list[str] = repeatable(
        "Borrow the run-to-run noise of both arms, or of baseline or candidate, from this family "
        "(`parity noise list`). Repeatable.",
        "[ARM=]NAME",
    )
    noise_table: str | None = option(
        None,
        "Read the families from this table (CSV). [default: the public reruns shipped here]",
        "FILE",
    )
    pair_sd: float | None = option(
        None,
        "Step-to-step standard deviation of the paired gap. [default: 0.11 % of the loss; with "
        "--like at least 15 % of its batch noise]",
        "NATS",
    )
    autocorrelation: float = option(
        0.0, "Lag-1 correlation of the paired gap, from 0 to below 1.", "R"
    )


class PlannedPolicy(PolicyOptions, panel=POLICY):
    """The part of a policy that a plan depends on."""

    margin: str | None = option(
        None,
        'Set the largest acceptable gap: "1.0%" of the loss, "0.01 nats", or "5% tokens at 0.2 '
        'nats" per e-fold of tokens.',
        "AMOUNT",
    )
    profile: str | None = option(
        None,
        f"Set the margin by name: {STATED_PROFILES}. [default without a margin: {NVFP4}]",
        "NAME",
    )
    policy: str | None = option(
        None, "Read the policy from this file's `policy:` part.", "parity.yaml"
    )
    looks: int | None = option(
        None,
        "Register N looks, with a run per arm added in between. [default: 1]",
        "N",
        rich_help_panel=EXPERIMENT,
    )


@app.command("plan", epilog="parity plan --planned-steps 10000 --candidate-recipe nvfp4")
@flat
def plan_design(
    planned_steps: Annotated[
        int, typer.Option(min=1, rich_help_panel=EXPERIMENT, help="Planned length of a run.")
    ],
    asked: Experiment,
    noise: Noise,
    policy_options: Annotated[PlannedPolicy, ("margin", "profile", "policy", "looks")],
    candidates: int = option(
        1, "Compare N candidates, which share the error.", "N", min=1, rich_help_panel=EXPERIMENT
    ),
    as_json: bool = flag(
        "--json", "Print canonical JSON instead of a table.", rich_help_panel=OUTPUT
    ),
) -> int:
    """Estimate what an experiment, or a budget, can decide before you spend GPU time.

    Exits 0 if it can decide, 3 if it cannot.
    """
    if planned_steps > MAX_STEP:
        raise UsageError(
            f"--planned-steps has {len(str(planned_steps)):,} digits; expected a number of steps, "
            f"at most {MAX_STEP:,}"
        )
    if asked.budget is not None:
        chosen = asked.given("baseline_runs", "candidate_runs", "short_reruns", "stop_at")
        refuse(chosen, "is what --budget chooses; give only one of them")
    if asked.stop_at is not None and not asked.short_reruns:
        raise UsageError(
            f"--stop-at is {asked.stop_at:g} without --short-reruns; state how many reruns stop "
            "there"
        )
    if asked.like is None:
        refuse(
            asked.given("column", "pattern"),
            "is not used without --like; name the run whose column it is",
        )
    if asked.like is not None:
        asked, noise = _like(asked.like, asked, noise)
    of_design = {each.name for each in fields(Design)}
    lenders = stated_lenders(noise.family, noise.noise_table, (BASELINE, CANDIDATE))
    try:
        policy = load_policy(policy_options)
        known = {
            name: value
            for name, value in (asdict(asked) | asdict(noise)).items()
            if name in of_design and value is not None
        }
        for arm in (BASELINE, CANDIDATE):
            name = f"{arm}_rounding"
            known[name] = stated_rounding(
                known.get(name), f"--{arm}-rounding", known.get(f"{arm}_recipe")
            )
        design = Design(planned_steps=planned_steps, candidates=candidates, **known)
        outlook = plan(
            design, policy, lenders, None if asked.budget is None else parse_budget(asked.budget)
        )
    except ValueError as error:
        name, mark, rest = str(error).partition(" is ")
        option_name = f"--{name.replace('_', '-')}" if mark and name.isidentifier() else name
        raise UsageError(f"{option_name}{mark}{rest}") from None
    _print(PLAN_SCHEMA, plan_document(outlook), _plan_text(outlook), as_json=as_json)
    if outlook.decides:
        return EXIT_CODES["pass"]
    return EXIT_CODES["inconclusive"]


def _like(run: str, asked: Experiment, noise: Noise) -> tuple[Experiment, Noise]:
    """The plan with what an earlier run shows, where no option says otherwise."""
    earlier = likeness(run, stated_columns(asked.column, asked.pattern).of(run))
    print(earlier.words, file=sys.stderr)
    missing = {
        name: getattr(earlier, name)
        for name in ("level", "step_seconds", "log_every")
        if getattr(asked, name) is None
    }
    if noise.pair_sd is None and asked.level is None:
        noise = replace(noise, pair_sd=earlier.pair_sd)
    if noise.baseline_recipe is None and noise.baseline_rounding is None:
        noise = replace(noise, baseline_recipe=earlier.recipe, baseline_rounding=earlier.rounding)
    return replace(asked, **missing), replace(
        noise, family=noise.family or known_family(earlier.family)
    )


def _print(schema: str, document: Mapping[str, Any], text: Group, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(
            canonical_json({"schema": schema, "engine_version": JUDGE_VERSION, **document})
        )
    else:
        Console(width=80, highlight=False).print(text)


def _margins(texts: Sequence[str]) -> tuple[float, ...]:
    amounts = [parse_margin(text, "--margin") for text in texts]
    if any(amount.unit != "relative" for amount in amounts):
        raise UsageError(f"--margin is {', '.join(texts)}; expected a relative margin such as 1%")
    return tuple(amount.value for amount in amounts) or DEFAULT_MARGINS


def _calibration_text(result: Calibration) -> Group:
    tau = result.tau
    ends = f"{tau.lo:.4f} to {tau.hi:.4f}" if math.isfinite(tau.hi) else "unknown"
    head = (
        f"{result.runs} runs, {result.pairs} ordered pairs, loss {result.level:.3f}. Run-to-run "
        f"noise {tau.value:.4f} nats (95 % interval {ends}), {percent(tau.rel)} of the loss. The "
        f"interval covers 0 in {percent(result.covers_zero, 3)} of the pairs; without the "
        f"between-run term {percent(result.naive_rejects, 3)} would be called different."
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
    table = _table(
        "true gap, nats" if outlook.unit == NATS else "true gap, of the loss",
        "in margins",
        "pass",
        "inconclusive",
        "fail",
    )
    for power in outlook.power:
        chances = [
            f"{100 * value:.0f} %"
            for value in (power.pass_chance, power.inconclusive_chance, power.fail_chance)
        ]
        gap = signed(power.gap) if outlook.unit == NATS else percent(power.gap)
        table.add_row(gap, f"{power.gap_in_margins:g}", *chances)
    head = f"{sentences.headline(outlook)} {sentences.advice(outlook)} {sentences.cost(outlook)}"
    about = (sentences.noise, sentences.errors, sentences.early_stops, sentences.stops)
    rests_on = " ".join(words for sentence in about if (words := sentence(outlook)))
    looks = [Text(""), Text(words)] if (words := sentences.looks(outlook)) else []
    return Group(Text(head), *looks, Text(""), table, Text(""), Text(rests_on, style="dim"))


def _table(*names: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    return table
