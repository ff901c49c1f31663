"""The tables of docs/recipes.md, from the quantizers and switches of the trainer."""

from collections.abc import Callable, Mapping

from tools.tables.generated import DOCS, GeneratedTable
from training.arithmetic.quantize import Quantizer
from training.arithmetic.recipes import linear_recipe
from training.environment.maxtext_options import QUANTIZATION
from training.environment.transformer_engine_installed import NATIVE_SM
from training.rules import RECIPES
from training.switches import SWITCH_CHOICES, SWITCH_RANGES, features, switches_of

# What each switch changes; its values and recipes come from the code.
SWITCHES: Mapping[str, str] = {
    "stochastic_rounding": "gradients are rounded at random, or to nearest",
    "rht": "both operands of wgrad are rotated",
    "weight_scaling": "scales of a weight along the contracted axis, or one for a square",
    "block_size": "how many numbers share a scale",
    "gradient_format": "format of the gradients: TE's `fp8_format` E4M3 or HYBRID",
    "margin": "a scale leaves room for amaxes 2^margin times as large",
    "amax_history_len": "steps in the history, which is part of checkpoints",
    "amax_compute_algo": "which amax of the history sets the scale",
    "row_scaled_activation": "x has a float32 scale for each row in fprop, for each column in "
    "wgrad",
    "nvfp4_4over6": "a block chooses whether its largest value becomes 6 or 4",
    "nvfp4_4over6_e4m3_use_256": "tensors with four over six whose block scales end at 256, not "
    "448",
    "nvfp4_4over6_err_mode": "the error that chooses: of absolute values or of squares",
    "sr_bits": "random bits of stochastic rounding",
    "nan": "whether an amax and an FP4 code keep NaN",
}
_UNQUANTIZED = {"f32": "float32", "bf16": "bfloat16"}


def _is_block_scaled(recipe: str) -> bool:
    parts = features(recipe)
    return parts is not None and parts.block_scaled


GROUPS: Mapping[str, Callable[[str], bool]] = {
    "all quantized": lambda recipe: features(recipe) is not None,
    "block-scaled": _is_block_scaled,
    "the `nvfp4` recipes": lambda recipe: recipe.startswith("nvfp4"),
}


def recipe_table() -> str:
    """One row per recipe: how each operand is quantized, and which of TE for JAX and MaxText have
    it, too.
    """
    rows = []
    for name in RECIPES:
        recipe = linear_recipe(name, fast_bf16=True)
        if recipe.fprop_w != recipe.dgrad_w:
            raise ValueError(
                f"recipe {name} quantizes w differently in fprop and dgrad; expected one column "
                "for both, add another"
            )
        operands = (recipe.fprop_x, recipe.fprop_w, recipe.dgrad_g, recipe.wgrad_x, recipe.wgrad_g)
        cells = [
            _UNQUANTIZED.get(name, "") if operand is None else _operand(operand)
            for operand in operands
        ]
        elsewhere = [
            engine
            for engine, has in (("TE", name in NATIVE_SM), ("MaxText", name in QUANTIZATION["te"]))
            if has
        ]
        rows.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(elsewhere) or 'neither'} |")
    heads = ("recipe", "x, fprop", "w", "g, dgrad", "x, wgrad", "g, wgrad", "also in")
    return "\n".join([f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|", *rows])


def _operand(quantizer: Quantizer) -> str:
    """A quantizer in words: format, block, rotation, stochastic rounding."""
    shape = ""
    if quantizer.block > 1:
        shape = f" {quantizer.block if quantizer.two_dimensional else 1}x{quantizer.block}"
    parts = (" RHT" if quantizer.rotated else "", " SR" if quantizer.stochastic else "")
    return f"{quantizer.format.name.upper()}{shape}{''.join(parts)}"


def switch_table() -> str:
    """One row per switch: its values, the recipes that have it, and what it changes."""
    rows = [
        f"| `{name}` | {_values(name)} | {_recipes_with(name)} | {meaning} |"
        for name, meaning in SWITCHES.items()
    ]
    return "\n".join(["| switch | values | recipes | effect |", "| --- | --- | --- | --- |", *rows])


def _values(name: str) -> str:
    if name in SWITCH_RANGES:
        least, most = SWITCH_RANGES[name]
        return f"{least} to {most:,}"
    return ", ".join(map(str, SWITCH_CHOICES.get(name, ("true", "false"))))


def _recipes_with(name: str) -> str:
    """The recipes that have this switch, in words."""
    having = [recipe for recipe in RECIPES if name in switches_of(recipe)]
    for words, group in GROUPS.items():
        if having == list(filter(group, RECIPES)):
            return words
    return ", ".join(f"`{recipe}`" for recipe in having)


TABLE = GeneratedTable(
    name="recipes",
    parts={DOCS / "recipes.md": {"recipes": recipe_table, "switches": switch_table}},
)
