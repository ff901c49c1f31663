"""What other trainers need to be told to compute a policy, or why they cannot.

MaxText has one `quantization` for all layers. Transformer Engine takes a recipe for each module, by `te.autocast` around it; single GEMMs
of a module can only be left in bf16, by the feature DisableFP8GEMM of its debug tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_GEMMS = ("fprop", "dgrad", "wgrad")
_RECIPES: Mapping[str, str] = {
    "nvfp4": "NVFP4BlockScaling()",
    "fp8_current": "Float8CurrentScaling()",
    "fp8_delayed": "DelayedScaling()",
    "mxfp8": "MXFP8BlockScaling()",
}


def export_lines(candidate: str, overrides: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines for MaxText and for Transformer Engine: a candidate's recipe, and the overrides of the policy."""
    if overrides:
        yield "MaxText: cannot express this policy; its `quantization` holds for every layer alike"
    else:
        yield f"MaxText: the candidate's own `quantization` ({candidate})"
    yield from _transformer_engine(candidate, overrides)


def _transformer_engine(candidate: str, overrides: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    places: dict[tuple[str, str, str], set[str]] = {}
    for each in overrides:
        if each.get("switches") or "recipe" not in each:
            yield "Transformer Engine: cannot express this policy; its recipes have no switch for a part of a model"
            return
        where = (", ".join(map(str, each.get("blocks", ()))) or "all", ", ".join(each.get("projections", ())), each["recipe"])
        places.setdefault(where, set()).update(each.get("gemms") or _GEMMS)
    unknown = next((name for name in (candidate, *(recipe for *_, recipe in places)) if name != "bf16" and name not in _RECIPES), None)
    if unknown is not None:
        yield f"Transformer Engine: cannot express this policy; it has no recipe {unknown}"
        return
    split = next((where for where, gemms in places.items() if len(gemms) < len(_GEMMS) and where[2] != "bf16"), None)
    if split is not None:
        yield f"Transformer Engine: cannot express this policy; one module has one recipe, and GEMMs of {split[1]} would take two"
        return
    yield f"Transformer Engine: te.autocast(recipe={_RECIPES.get(candidate, candidate)}), and in"
    for (blocks, projections, recipe), gemms in places.items():
        if len(gemms) < len(_GEMMS):
            what = f"DisableFP8GEMM with gemms: [{', '.join(gemm for gemm in _GEMMS if gemm in gemms)}]"
        else:
            what = "te.autocast(enabled=False)" if recipe == "bf16" else f"te.autocast(recipe={_RECIPES[recipe]})"
        yield f"  blocks {blocks}, {projections}: {what}"
