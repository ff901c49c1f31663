"""Options that name the runs of the arms, and what else is known of each."""

from parity.cli.inputs.columns import pattern_option
from parity.cli.terminal.option_words import ARMS, RECIPE_WORDS
from parity.cli.terminal.options import Options, option, repeatable


class ArmOptions(Options, panel=ARMS):
    """The runs of the arms, in addition to those that are given first, and what is stated of
    them.
    """

    baseline_run: list[str] = repeatable("Add a further run of the baseline; repeatable.", "FILE")
    candidate_run: list[str] = repeatable(
        "Add a further run of candidate NAME; repeatable.", "NAME=FILE"
    )
    control: list[str] = repeatable(
        "Add a rerun of the baseline that only measures run-to-run noise; repeatable.", "FILE"
    )
    shorter_baseline: list[str] = repeatable(
        "Add a finished run of the baseline with 25 to 50 % of its tokens, which a margin such as "
        '"5% tokens" is measured by; repeatable.',
        "FILE",
    )
    short_rerun: list[str] = repeatable(
        "Add a rerun of arm NAME that was stopped early, at 40 to 95 % of the planned steps; it "
        "only measures run-to-run noise. Repeatable.",
        "NAME=FILE",
    )
    recipe: list[str] = repeatable(
        "State the recipe of an arm, which sets the run-to-run noise that is assumed: "
        f"{RECIPE_WORDS}. Repeatable.",
        "NAME=RECIPE",
    )
    rounding: list[str] = repeatable(
        "State how an arm rounds gradients, stochastic or nearest, if its recipe does not say. "
        "Repeatable. [default: stochastic is assumed]",
        "NAME=HOW",
    )
    seeds: str | None = option(
        None,
        "State the seed of each run of an arm, in order. [default: as their batches show]",
        "S,S,...",
    )
    context: list[str] = repeatable(
        "State what an arm ran on (engine, device_class, data_digest, ...); arms that differ "
        "cannot pass. Repeatable.",
        "NAME:KEY=VALUE",
    )
    planned_steps: int | None = option(
        None,
        "State the planned length of a run. [default: as a trainer's log or a tracker's config "
        "states it]",
        min=1,
    )
    assume_complete: bool = option(
        False, "Assume that the longest run ended as planned, instead of --planned-steps."
    )
    schedule: str | None = option(
        None,
        "State that the learning rate of all runs had fallen to the end of its schedule at their "
        "last step; what is recorded may contradict it.",
        "decayed",
    )
    start: str | None = option(
        None, "State that all runs began with trained weights, not from scratch.", "loaded"
    )
    pairing: str | None = option(
        None,
        "State that both arms read the same data in the same order where their losses cannot show "
        "it (stated), or that they are not meant to (unpaired).",
        "HOW",
    )
    parameters: str | None = option(
        None,
        "State the number of the model's parameters, such as 8B, by which run-to-run noise may be "
        "assumed. [default: as recorded]",
        "N",
    )
    loss_is: str | None = option(
        None,
        "State that the losses are of held-out data (validation) or of training. [default: by the "
        "name of the column named for the loss, else training]",
        "KIND",
    )
    tokens: float | None = option(
        None, "State the tokens that both runs were trained on, for numbers in place of files.", "N"
    )
    loss_unit: str | None = option(
        None,
        "State that all losses are in bits, which converts them, or that the loss is no "
        "cross-entropy, such as a mean squared error (other).",
        "UNIT",
    )
    column: list[str] = repeatable(
        "Name the column of step, loss, grad_norm, ... in every file, or only in WHERE: an arm or "
        "a file. Repeatable. [default: well-known names]",
        "[WHERE:]QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()
    layer_policy: str | None = option(
        None, "Name the layers that are quantized; shown in the report.", "TEXT"
    )
