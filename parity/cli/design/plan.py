"""The command `plan`: what an experiment, or a budget, can decide before you spend GPU time."""

import sys
from dataclasses import asdict, fields, replace
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from parity.cli.design.printing import PLAN_SCHEMA, design_table, print_design
from parity.cli.inputs.columns import pattern_option, stated_columns
from parity.cli.inputs.families import known_family, stated_noise_families
from parity.cli.inputs.policy import PolicyOptions, load_policy
from parity.cli.terminal.option_words import (
    EXPERIMENT,
    NOISE,
    OUTPUT,
    POLICY,
    RECIPE_WORDS,
    STATED_PROFILES,
)
from parity.cli.terminal.options import Options, flag, flat, option, refuse, repeatable
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.statements import stated_rounding
from parity.design import plan_words as sentences
from parity.design.budget import parse_budget
from parity.design.earlier_run import likeness
from parity.design.experiment import BASELINE, CANDIDATE, DEFAULT_STOP, MAX_STOP, Design
from parity.design.plan import NATS, Plan, plan
from parity.design.plan_document import plan_document
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.curve import MAX_STEP
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.policy import NVFP4
from parity.wording import percent, signed

app = typer.Typer()

MAX_REPLICATES = 64


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
    design_fields = {field.name for field in fields(Design)}
    noise_families = stated_noise_families(noise.family, noise.noise_table, (BASELINE, CANDIDATE))
    try:
        policy = load_policy(policy_options)
        arm_facts = {
            name: value
            for name, value in (asdict(asked) | asdict(noise)).items()
            if name in design_fields and value is not None
        }
        for arm in (BASELINE, CANDIDATE):
            name = f"{arm}_rounding"
            arm_facts[name] = stated_rounding(
                arm_facts.get(name), f"--{arm}-rounding", arm_facts.get(f"{arm}_recipe")
            )
        design = Design(planned_steps=planned_steps, candidates=candidates, **arm_facts)
        outlook = plan(
            design,
            policy,
            noise_families,
            None if asked.budget is None else parse_budget(asked.budget),
        )
    except ValueError as error:
        name, mark, rest = str(error).partition(" is ")
        option_name = f"--{name.replace('_', '-')}" if mark and name.isidentifier() else name
        raise UsageError(f"{option_name}{mark}{rest}") from None
    print_design(PLAN_SCHEMA, plan_document(outlook), _plan_text(outlook), as_json=as_json)
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


def _plan_text(outlook: Plan) -> Group:
    table = design_table(
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
    if outlook.looks:
        looks += [Text(""), Text("Chances at the first look:")]
    return Group(Text(head), *looks, Text(""), table, Text(""), Text(rests_on, style="dim"))
