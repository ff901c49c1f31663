"""What to keep in bf16, or quantize no more, after a recipe has failed by its gap."""

from collections.abc import Mapping
from typing import Literal

Change = Literal["last blocks in bf16", "first and last blocks in bf16", "MLP layers only"]
_CHANGES: Mapping[Change, str] = {
    "last blocks in bf16": "Keep the last blocks in bf16",
    "first and last blocks in bf16": "most sensitive layers (first and last blocks) in bf16",
    "MLP layers only": "Quantize the MLP layers only (mlp_only)",
}
_ATTENTION = frozenset({"query", "key", "value", "out"})


def is_in_bf16(recipe: str) -> bool:
    """Whether a recipe quantizes nothing."""
    return recipe in ("bf16", "f32")


def changes_after_fail(recipe: str, layer_policy: str | None) -> list[Change]:
    """What to keep in bf16 next, in order of cost, without what the recipe keeps there already."""
    recipe = recipe.lower()
    if is_in_bf16(recipe):
        return []
    in_bf16 = [part.removeprefix("bf16@") for part in recipe.split("+") if part.startswith("bf16@")]
    has_last = any(
        where.startswith("blocks:") and "last" in where and "." not in where for where in in_bf16
    )
    if "fp4" not in recipe:
        return [] if has_last else ["first and last blocks in bf16"]
    changes: list[Change] = [] if has_last else ["last blocks in bf16"]
    if layer_policy != "mlp_only" and not any(
        {*where.split(",")} >= _ATTENTION for where in in_bf16
    ):
        changes.append("MLP layers only")
    return changes


def words_after_fail(recipe: str, layer_policy: str | None) -> str:
    """The next experiments with a recipe that quantizes, in order of cost."""
    changes = changes_after_fail(recipe, layer_policy)
    if "fp4" not in recipe:
        what = f"rerun with the {_CHANGES[changes[0]]}" if changes else "look at the layers there"
        return f"Look at the first step where the arms diverge, then {what}."
    steps = [_CHANGES[change] for change in changes]
    steps.append("Switch to bf16 late in the run")
    if "no_rht" in recipe:
        steps.append("Turn the random Hadamard transform on")
    first, *rest = steps
    later = ", then ".join(step[0].lower() + step[1:] for step in rest)
    if rest:
        return f"{first}. If that fails, {later}."
    return f"{first}."
