"""The recipe of the rest of a run: `then: {recipe: bf16, from_step: 1600}` of an arm.

The NVFP4 paper returns to bf16 for the last 18 % of its steps. Standard library only, like
`training.spec`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from training.frozen import frozen
from training.overrides import Gemm, Override, arm_label, recipes
from training.rules import LayerPolicy, Recipe, SpecError, Strict, check_recipe, refusal
from training.switches import Switches

GemmScope = Literal["all", "forward"]
_EARLIER = ("bf16_from_step", "bf16_scope")


@frozen
class LaterRecipe(Strict):
    """Another recipe from the 0-based step `from_step` on, for all GEMMs that are quantized by
    then, or for their forward products alone. What is in bf16 stays in bf16.
    """

    recipe: Recipe
    from_step: int
    gemms: GemmScope = "all"

    def __post_init__(self) -> None:
        check_recipe("arm.then.recipe", self.recipe)
        if self.recipe == "f32":
            remedy = "f32 changes the whole model; use it as an arm's recipe"
            raise SpecError("arm.then.recipe", "f32", "a recipe of linear layers", remedy)
        if self.gemms not in get_args(GemmScope):
            raise SpecError("arm.then.gemms", self.gemms, "all or forward")
        if self.from_step < 1:
            raise SpecError("arm.then.from_step", self.from_step, "a step after the first")

    @property
    def override(self) -> Override:
        """The same as a rule for GEMMs."""
        gemms: tuple[Gemm, ...] = ("fprop",) if self.gemms == "forward" else ()
        return Override(recipe=self.recipe, gemms=gemms, from_step=self.from_step)

    @property
    def arm_name(self) -> str:
        """What it adds to the name of an arm that nobody named."""
        scope = "-forward" if self.gemms == "forward" else ""
        return f".then-{self.recipe}{scope}.from-step-{self.from_step}"

    def label(self, recipe: str, switches: Switches) -> str:
        """What an arm of another recipe does from that step on."""
        if self.gemms == "all":
            return self.recipe
        return arm_label(recipe, switches, [replace(self.override, from_step=None)])

    def document(self) -> dict[str, Any]:
        """As an arm's document has it."""
        return asdict(self)


def check_later_recipe(
    then: LaterRecipe, engine: str, recipe: str, layer_policy: LayerPolicy, steps: int
) -> None:
    """Raises SpecError if a run of this recipe and so many steps cannot go on with another one."""
    if engine == "maxtext":
        raise SpecError(
            "arm.then",
            then.arm_name.removeprefix("."),
            f"nothing under engine {engine}",
            "MaxText keeps one recipe for the whole run; use engine: emulated, or engine: command "
            "with a launcher that declares `then`",
        )
    if engine == "transformer_engine" and then.gemms == "forward":
        raise SpecError(
            "arm.then.gemms",
            then.gemms,
            "all under engine transformer_engine",
            "its layers quantize either all of their products or none",
        )
    if recipe in ("f32", "bf16"):
        raise SpecError(
            "arm.then",
            then.arm_name.removeprefix("."),
            f"nothing for recipe {recipe}",
            "only a quantized recipe can go on with another one",
        )
    if not 0 < then.from_step < steps:
        raise SpecError(
            "arm.then.from_step",
            then.from_step,
            f"a step after the first and before schedule.steps = {steps}",
        )
    reason = refusal(engine, then.recipe, layer_policy)
    if reason:
        raise SpecError(
            "arm.then.recipe", then.recipe, f"a recipe that engine {engine} can run", reason
        )


def needed_recipes(
    recipe: str, overrides: Sequence[Override], then: LaterRecipe | None
) -> tuple[str, ...]:
    """Every recipe that a run needs, its own first."""
    return recipes(recipe, [*overrides, *([] if then is None else [then.override])])


def later_recipe(document: Mapping[str, Any] | None) -> LaterRecipe | None:
    """The later recipe of an arm's document."""
    return None if document is None else LaterRecipe(**document)


def in_todays_form(arm: Mapping[str, Any]) -> dict[str, Any]:
    """An arm as an earlier version stored it, with `then` for its `bf16_from_step` and
    `bf16_scope`; any other as it is.
    """
    rest = {name: value for name, value in arm.items() if name not in _EARLIER}
    step = arm.get("bf16_from_step")
    if step is None:
        return rest
    return rest | {
        "then": {"recipe": "bf16", "from_step": step, "gemms": arm.get("bf16_scope", "all")}
    }


def for_digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an arm or a run with the fields that it had in the digests of earlier
    versions: a look that was counted stays counted, and a curve that was trained is found again.
    """
    rest = {name: value for name, value in document.items() if name != "then"}
    then = document.get("then")
    if then is not None and then["recipe"] != "bf16":
        return {**rest, "then": then}
    step, scope = (None, "all") if then is None else (then["from_step"], then["gemms"])
    return {**rest, "bf16_from_step": step, "bf16_scope": scope}
