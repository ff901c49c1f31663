"""The rules of a specification: allowed values, the shapes that recipes require, and which engine
runs which recipe.

What it answers: can this combination be trained at all, and if not, which similar one can? These
rules check only what follows from the specification alone; whether a path exists or a machine has
enough memory is checked by the worker. Standard library only, like `training.spec`, whose values
call these rules when they are created.

Sources: recipe rules from Transformer Engine 2.20.2 (`common/recipe/__init__.py`, `jax/dense.py`)
and MaxText e591f30c (`layers/quantizations.py`).
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, get_args

# begins the digest of data whose contents nobody read: of their names and sizes, or their place on
# a hub
NAMED_DATA = "named:"
Engine = Literal["emulated", "transformer_engine", "maxtext", "command", "external"]
Recipe = Literal[
    "f32",
    "bf16",
    "fp8_current",
    "fp8_delayed",
    "mxfp8",
    "fp8_block",
    "nvfp4",
    "nvfp4_no_rht",
    "nvfp4_no_sr",
    "nvfp4_no_rht_no_sr",
    "nvfp4_1d_weights",
    "mxfp4",
    "mxfp4_rht_sr",
]
LayerPolicy = Literal["all_linears", "mlp_only"]
Source = Literal["parity_docs", "python_stdlib", "text", "tokens", "markov", "grain", "hf", "tfds"]
Capability = Literal["cpu", "sm90", "sm100", "command", "external"]

RECIPES: tuple[Recipe, ...] = get_args(Recipe)
OTHER = "other:"
# what a trainer of the user's own may state, and too little to train here: FP8 of any scaling
STATED_RECIPES = ("fp8",)
_LONGEST_NAME = 64  # of a recipe of the user's own

_BLOCK_SCALED = frozenset(
    {
        "mxfp8",
        "fp8_block",
        "nvfp4",
        "nvfp4_no_rht",
        "nvfp4_no_sr",
        "nvfp4_no_rht_no_sr",
        "nvfp4_1d_weights",
        "mxfp4",
        "mxfp4_rht_sr",
    }
)
# What only our emulation runs, and why; a job for a real engine is rejected.
NOT_TE_PARITY: Mapping[str, str] = {
    "fp8_block": "Transformer Engine has Float8BlockScaling for PyTorch only; the nearest that it "
    "has for JAX is mxfp8",
    "nvfp4_1d_weights": "Transformer Engine refuses 1D weight scales together with the Hadamard "
    "rotation",
    "mxfp4": "Transformer Engine has no MXFP4 recipe",
    "mxfp4_rht_sr": "Transformer Engine has no MXFP4 recipe",
}
MAXTEXT_SOURCES = frozenset({"grain", "hf", "tfds"})
MOST_KEPT = 8  # checkpoints of a run
# Parts of the names of recipes that are not emulated because they are not settled yet.
_UNSETTLED: Mapping[str, str] = {
    "ue5m3": "NVFP4 with UE5M3 block scales is not emulated: Transformer Engine's own is an open "
    "prototype (pull request 3325), which may still change how its scales are made",
}
# engines with our own model, in which single layers can be selected
_OUR_TRAINER = frozenset({"emulated", "transformer_engine"})
OTHERS_TRAINERS = frozenset({"command", "external"})  # engines with a trainer of the user's own
# there on every worker, without a path
OWN_SOURCES = frozenset({"parity_docs", "python_stdlib", "markov"})
CAPABILITY_IN_WORDS: Mapping[str, str] = {
    "cpu": "a worker with PARITY_CAPABILITY=cpu or gpu",
    "sm90": "a worker with SM 8.9 or later",
    "sm100": "a worker with SM 10.0 or 10.3",
    "command": "a worker with this launcher (PARITY_LAUNCHERS)",
    "external": "curves that the user sends",
}

_NEAR = 0.7  # how similar a word must be to be a slip of the pen: "fp3" is none for f32
_LARGEST = 2.0**53  # beyond it a whole number is no longer exact as a float


def max_items(items: int) -> dict[str, Any]:
    """The metadata of a list in a specification: whoever reads one from JSON counts its items
    before it looks at them.
    """
    return {"max_length": items}


class Strict:
    """A value of a job file: whoever reads one (pydantic) refuses a key that is none of its
    fields.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


class SpecError(ValueError):
    """An invalid value in a specification; names the field, its value, what was expected and the
    remedy.

    `close` is the right word that is nearest to the value: the message then has it in place of all
    of them.
    """

    def __init__(
        self, field: str, value: object, expected: str, remedy: str = "", close: str | None = None
    ) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        self.remedy = remedy
        shown = repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
        right = f", expected {expected}" + (f"; {remedy}" if remedy else "")
        super().__init__(
            f"{field} is {shown}" + (right if close is None else f"; did you mean {close}?")
        )


def check_at_least(field: str, value: float, least: float) -> None:
    """Raises SpecError for a value that is not a number, below `least`, or too large to be
    exact.
    """
    if not least <= value <= _LARGEST:
        raise SpecError(
            field,
            value,
            f"a number of at most {_LARGEST:,.0f}"
            if value > _LARGEST
            else f"a number of at least {least:g}",
        )


def check_printable(field: str, text: str, remedy: str = "") -> None:
    """Raises SpecError for a name that is empty, too long, or has characters that no page can
    show.
    """
    if not 1 <= len(text) <= 200 or not text.isprintable():
        raise SpecError(field, text, "1 to 200 printable characters", remedy)


def check_share(field: str, value: float) -> None:
    """Raises SpecError for a number outside [0, 1)."""
    if not 0.0 <= value < 1.0:
        raise SpecError(field, value, "a share of at least 0 and below 1")


def is_stated(recipe: str) -> bool:
    """Whether only a trainer of the user's own can have a recipe: `other:NAME`, or a word that does
    not say enough to train it here.
    """
    return recipe.startswith(OTHER) or recipe in STATED_RECIPES


def check_recipe(field: str, recipe: str) -> None:
    """Raises SpecError for an unknown recipe."""
    if recipe not in RECIPES:
        word = recipe.lower().replace("-", "_").removeprefix("te_")
        for part, reason in _UNSETTLED.items():
            if part in word:
                raise SpecError(
                    field,
                    recipe,
                    "a recipe that is emulated",
                    f"{reason}; a trainer of yours that has it is {OTHER}NAME under engine command "
                    "or external",
                )
        close = [name for name in RECIPES if word and name.startswith(word)] or get_close_matches(
            word, RECIPES, n=1, cutoff=_NEAR
        )
        every, others = (
            f"one of {', '.join(RECIPES)}",
            f"or {OTHER}NAME under engine command or external",
        )
        raise SpecError(field, recipe, every, others, close=close[0] if close else None)


def check_stated(engine: str, recipe: str, changes: object) -> None:
    """Raises SpecError for a recipe that only a trainer of the user's own can have: `other:`
    without a name, with changes that only our recipes have, or under another engine.
    """
    name = recipe.removeprefix(OTHER)
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise SpecError(
            "arm.recipe",
            recipe,
            f"{OTHER}NAME with 1 to {_LONGEST_NAME} printable characters as NAME",
        )
    if engine not in OTHERS_TRAINERS:
        alike = [word for word in RECIPES if word.startswith(recipe)]
        remedy = f"{OTHER}NAME needs engine: command or external"
        if alike:
            remedy = f"{recipe} names no scaling, which only engines command and external allow"
        raise SpecError(
            "arm.recipe",
            recipe,
            f"one of {', '.join(alike or RECIPES)} under engine {engine}",
            remedy,
        )
    if changes:
        raise SpecError(
            "arm.recipe",
            recipe,
            "no switches, overrides or then with it",
            f"put what it does into the NAME of {OTHER}NAME",
        )


def check_seed(seed: int) -> None:
    """Raises SpecError for a seed that is not a 31-bit number."""
    if not 0 <= seed < 2**31:
        raise SpecError("seed", seed, "a whole number from 0 to 2147483647")


def check_source(engine: str, source: str) -> None:
    """Raises SpecError if this engine cannot read that source of tokens."""
    if engine in _OUR_TRAINER and source in MAXTEXT_SOURCES:
        raise SpecError(
            "data.source",
            source,
            f"parity_docs, python_stdlib, text, tokens or markov under engine {engine}",
            "or use engine: maxtext, which reads it with its own tokenizer",
        )
    if engine == "maxtext" and source not in MAXTEXT_SOURCES:
        raise SpecError(
            "data.source",
            source,
            f"one of {', '.join(sorted(MAXTEXT_SOURCES))} under engine maxtext",
        )


def check_kept(engine: str, keep_first: int, keep_last: int, n_layers: int) -> None:
    """Raises SpecError if the first and last blocks that stay in bf16 leave no block to
    quantize.
    """
    check_at_least("job.keep_first", keep_first, 0)
    check_at_least("job.keep_last", keep_last, 0)
    bf16_blocks = keep_first + keep_last
    if bf16_blocks and engine == "maxtext":
        raise SpecError(
            "keep_first + keep_last",
            bf16_blocks,
            f"0 under engine {engine}",
            "it quantizes every block; use engine: emulated",
        )
    if bf16_blocks >= n_layers:
        raise SpecError(
            "keep_first + keep_last", bf16_blocks, f"fewer than model.n_layers = {n_layers}"
        )


def check_batch(engine: str, batch_size: int, pieces: int, devices: int) -> None:
    """Raises SpecError if a batch cannot be cut into equal pieces for accumulation and for the
    devices.
    """
    check_at_least("gradient_accumulation", pieces, 1)
    check_at_least("devices", devices, 1)
    if engine == "transformer_engine" and devices != 1:
        raise SpecError(
            "devices",
            devices,
            "1 under engine transformer_engine",
            "its kernels have not been tested with more than one device",
        )
    if engine not in OTHERS_TRAINERS and batch_size % (pieces * devices):
        raise SpecError(
            "data.batch_size",
            batch_size,
            f"a multiple of gradient_accumulation x devices = {pieces} x {devices}",
            "change one of the three",
        )


def kept_checkpoints(engine: str, kept: Sequence[float], planned: int) -> tuple[int, ...]:
    """The numbers of steps after which a run keeps a checkpoint, from such numbers and from shares
    of its `planned` steps. Raises SpecError for one that a run of this engine cannot keep.
    """
    steps = [round(at * planned) if 0 < at < 1 else at for at in kept]
    if steps and engine not in _OUR_TRAINER:
        raise SpecError(
            "keep_checkpoints",
            list(kept),
            f"nothing under engine {engine}",
            "its trainer writes its own checkpoints",
        )
    if len(steps) > MOST_KEPT:
        raise SpecError(
            "keep_checkpoints",
            f"{len(steps)} steps",
            f"at most {MOST_KEPT}",
            "each takes 12 bytes per parameter and run",
        )
    for before, step, stated in zip((0, *steps), steps, kept, strict=False):
        if not before < step <= planned or step != int(step):
            raise SpecError(
                "keep_checkpoints",
                stated,
                f"increasing numbers of steps from 1 to schedule.steps = {planned}, or shares of "
                "them between 0 and 1",
                f"such as [{round(0.6 * planned)}] or [0.6], to fork at 60 % of the steps",
            )
    return tuple(int(step) for step in steps)


def check_rounded(engine: str, steps: int, tensors: int) -> None:
    """Raises SpecError if a run rounds more tensors stochastically than have numbers; `tensors` of
    them a step.
    """
    most = 2**32 // tensors
    if engine in _OUR_TRAINER and steps > most:
        raise SpecError(
            "schedule.steps",
            steps,
            f"at most {most:,} with stochastic rounding of {tensors:,} tensors a step",
            "their numbers have 32 bits, and later tensors would repeat the random bits of the "
            "first; plan fewer steps",
        )


def check_statistics(engine: str, every: int) -> None:
    """Raises SpecError if an engine cannot record statistics of the quantization of its layers."""
    if engine == "transformer_engine" and every:
        raise SpecError(
            "schedule.statistics_every",
            every,
            "0 under engine transformer_engine",
            "its kernels return no statistics; use engine: emulated",
        )


def check_gradients(every: int, statistics_every: int) -> None:
    """Raises SpecError unless gradients are compared on steps whose statistics are recorded."""
    if every and (not statistics_every or every % statistics_every):
        if statistics_every:
            expected = f"a multiple of schedule.statistics_every ({statistics_every})"
        else:
            expected = "0 without schedule.statistics_every"
        raise SpecError(
            "schedule.gradients_every",
            every,
            expected,
            "such as statistics_every: 25 and gradients_every: 100",
        )


def check_runnable(engine: str, recipe: str, layer_policy: str) -> None:
    """Raises SpecError with the reason of `refusal`, if there is one."""
    reason = refusal(engine, recipe, layer_policy)
    if reason:
        raise SpecError(
            "recipe",
            recipe,
            f"a recipe that engine {engine} can run with layer_policy {layer_policy}",
            reason,
        )


def refusal(engine: str, recipe: str, layer_policy: str) -> str | None:
    """Why this engine cannot run this recipe under this layer policy, or None if it can."""
    if recipe == "f32" and engine == "maxtext":
        return (
            "MaxText's arms may differ in `quantization` alone, and f32 would change `dtype` as "
            "well; use bf16 as the unquantized arm"
        )
    if recipe == "f32" and engine == "transformer_engine":
        return "Transformer Engine has no f32 recipe; use bf16 as the unquantized arm"
    if engine in ("maxtext", "transformer_engine") and recipe in NOT_TE_PARITY:
        return f"{NOT_TE_PARITY[recipe]}; use engine: emulated"
    if recipe in ("nvfp4_no_sr", "nvfp4_no_rht_no_sr") and engine == "maxtext":
        return (
            "MaxText has no flag that turns stochastic rounding off; use engine: emulated or "
            "transformer_engine"
        )
    if layer_policy == "mlp_only" and engine == "maxtext":
        return (
            "MaxText quantizes every DenseGeneral of the layer stack and has no flag that leaves "
            "attention projections out; use layer_policy: all_linears, or engine: emulated"
        )
    return None


def needs(engine: str, recipes: tuple[str, ...]) -> tuple[Capability, str]:
    """The kind of worker that can run all of these recipes on this engine, and the reason."""
    if engine == "external":
        return "external", "the user's own trainer sends the curves"
    if engine == "command":
        return "command", "a launcher of the worker's operator starts the trainer"
    if engine == "emulated":
        return "cpu", "engine emulated runs exact codes on any device"
    for recipe in recipes:
        if recipe in _BLOCK_SCALED:
            return "sm100", f"recipe {recipe} on engine {engine} needs a Blackwell GPU"
    return "sm90", f"engine {engine} needs an NVIDIA GPU of SM 8.9 or later"
