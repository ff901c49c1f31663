"""The command `calibrate`: run-to-run noise on reruns of one configuration, and a check of the
judge against it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from parity.canonical_json import json_value
from parity.cli.design.printing import CALIBRATION_SCHEMA, design_table, print_design
from parity.cli.inputs.columns import pattern_option, stated_columns
from parity.cli.inputs.policy import PolicyOptions, load_policy
from parity.cli.inputs.statements import refuse_unknown_recipe
from parity.cli.inputs.table_arms import (
    NEEDS_ARM_BY,
    NO_COLUMN,
    TableOptions,
    chosen_arm,
    read_table,
)
from parity.cli.terminal.option_words import (
    ARMS,
    OUTPUT,
    POLICY,
    RECIPE_WORDS,
    TABLE,
)
from parity.cli.terminal.options import Options, argument, flag, flat, option, refuse, repeatable
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import Stated, stated_curve
from parity.comparing.case import refuse_mixed_recipes
from parity.comparing.statements import stated_rounding
from parity.design.calibrate import DEFAULT_MARGINS, Calibration, calibrate
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.data_order import SAME_ORDER
from parity.judging.policy import parse_margin
from parity.readers import read_runs
from parity.wording import percent

app = typer.Typer()


class Reruns(TableOptions):
    """Reruns of one configuration: files, or an arm of a table."""

    arm: str | None = option(
        None,
        "Name the arm whose runs are the reruns of one configuration.",
        "ARM",
        rich_help_panel=TABLE,
    )


class CalibrationOptions(Options, panel=ARMS):
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
    stated: CalibrationOptions,
    table: Annotated[Reruns, ("arm_by", "run_by", "arm", "step", "loss")],
    as_json: bool = flag(
        "--json", "Print canonical JSON instead of a table.", rich_help_panel=OUTPUT
    ),
) -> int:
    """Measure run-to-run noise on reruns of one configuration, and check the judge against it.

    The reruns need one seed: runs of several seeds spread by initialization and data order, too,
    and are refused.

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
    curves = [stated_curve(curve, curve.label or "a rerun", facts) for curve in reruns]
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
    print_design(
        CALIBRATION_SCHEMA, json_value(calibration), _calibration_text(calibration), as_json=as_json
    )
    return EXIT_CODES["pass"]


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
    if result.correlation is None or result.correlation < SAME_ORDER:
        seen = "not seen" if result.correlation is None else f"at least {result.correlation:.2f}"
        head += (
            " That the runs read the same batches is not shown (correlation of their batch noise: "
            f"{seen}): if they have other seeds, this spread is no run-to-run noise."
        )
    head += f" What decided at {percent(result.margins[0]['margin_rel'])}: {codes}."
    rows: list[Mapping[str, Any]] = [{"gap_in_margins": 0.0, **entry} for entry in result.margins]
    rows += result.injected
    table = design_table("margin", "true gap", "pass", "inconclusive", "fail")
    for row in sorted(rows, key=lambda row: (-row["margin_rel"], row["gap_in_margins"])):
        shares = [f"{100 * row[state]:.0f} %" for state in ("pass", "inconclusive", "fail")]
        table.add_row(percent(row["margin_rel"]), f"{row['gap_in_margins']:g} x margin", *shares)
    return Group(Text(head), Text(""), table)
