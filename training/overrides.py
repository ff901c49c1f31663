"""Overrides: rules that give some GEMMs of an arm another recipe or other switches.

What it answers: what does one rule say, where does it hold, and is it well formed?
`training.segments` says what all rules make of a run.

An override says where (`blocks`, `projections`, `gemms`; one that is left out means all of them),
what (`recipe`, `switches` or both) and optionally since when (`from_step`). With a recipe, the
GEMMs get that recipe as it is plus the override's switches. With switches alone, they keep the
recipe that they have, and those that are not quantized stay so. Standard library only, like
`training.spec`.

The assumption that can fail: that the parts of a layer act independently. A GEMM in bf16 removes
its own error alone; the errors of the others were trained with it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from training.frozen import frozen
from training.rules import (
    RECIPES,
    Recipe,
    SpecError,
    Strict,
    max_items,
)
from training.step_values import PROJECTIONS, Projection
from training.switches import NO_SWITCHES, Switches, features, label

Gemm = Literal["fprop", "dgrad", "wgrad"]
GEMMS: tuple[Gemm, ...] = get_args(Gemm)
_BLOCKS = re.compile(
    r"(?P<end>first|last) +(?P<count>\d{1,9})|(?P<first>\d{1,9})(?: *- *(?P<last>\d{1,9}))?",
    re.ASCII,
)
_BLOCKS_IN_WORDS = "numbers such as 3, ranges such as 0-1, and first 2 or last 2"


@frozen
class Override(Strict):
    """One rule of an arm: another recipe, or other switches, for some GEMMs of some linear layers.

    blocks: numbers from 0, ranges such as 0-1, first 2, last 2. What is left out means all.
    from_step: the 0-based step from which the rule holds; from the first one by default.
    """

    blocks: tuple[int | str, ...] = field(default=(), metadata=max_items(1000))
    projections: tuple[Projection, ...] = field(default=(), metadata=max_items(64))
    gemms: tuple[Gemm, ...] = field(default=(), metadata=max_items(64))
    recipe: Recipe | None = None
    switches: Switches = NO_SWITCHES
    from_step: int | None = None

    def __post_init__(self) -> None:
        for name, words in (("projections", PROJECTIONS), ("gemms", GEMMS)):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            for word in getattr(self, name):
                _check_word(f"overrides.{name}", word, words)
        object.__setattr__(self, "blocks", tuple(self.blocks))
        for item in self.blocks:
            _parsed(item)
        if self.recipe is not None:
            _check_word("overrides.recipe", self.recipe, RECIPES)
        if self.recipe == "f32":
            remedy = "f32 changes the whole model; use it as an arm's recipe"
            raise SpecError("overrides.recipe", "f32", "a recipe of linear layers", remedy)
        if self.recipe is None and not self.switches.stated():
            raise SpecError(
                "overrides",
                short(self),
                "a recipe, switches or both",
                "say what these GEMMs do, such as recipe: bf16",
            )
        if self.recipe is not None:
            check_features("overrides", self.recipe, self.switches)
        if self.from_step is not None and self.from_step < 1:
            raise SpecError(
                "overrides.from_step",
                self.from_step,
                "a step after the first",
                "leave it out for the whole run",
            )


def recipes(recipe: str, overrides: Sequence[Override]) -> tuple[str, ...]:
    """Every recipe that an arm and its rules name, its own first."""
    named = (override.recipe for override in overrides if override.recipe is not None)
    return tuple(dict.fromkeys([recipe, *named]))


def arm_label(recipe: str, switches: Switches, overrides: Sequence[Override]) -> str:
    """The arm's recipe with its switches and overrides, such as "nvfp4+bf16@blocks:0-1.down.wgrad";
    equal texts are equal arithmetic.
    """
    return "+".join([label(recipe, switches), *map(short, overrides)])


def short(override: Override) -> str:
    """An override in one word: what it sets, where, and from which step on."""
    switches = [
        f"{name}={str(value).lower()}" for name, value in override.switches.stated().items()
    ]
    what = [*([override.recipe] if override.recipe is not None else []), *switches]
    if override.blocks:
        blocks = ["blocks:" + ",".join(str(item).replace(" ", "") for item in override.blocks)]
    else:
        blocks = []
    places = [
        *blocks,
        *(",".join(words) for words in (override.projections, override.gemms) if words),
    ]
    since = [f"from:{override.from_step}"] if override.from_step is not None else []
    return ",".join(what) + ("@" + ".".join([*places, *since]) if places or since else "")


def phrase(override: Override) -> str:
    """An override as a phrase: "wgrad of down in blocks 0-1: bf16"."""
    blocks = f"blocks {', '.join(map(str, override.blocks))}" if override.blocks else "all blocks"
    where = (
        f"{', '.join(override.gemms) or 'all GEMMs'} of "
        f"{', '.join(override.projections) or 'all projections'} in {blocks}"
    )
    since = f" from step {override.from_step}" if override.from_step is not None else ""
    return (
        f"{where}{since}: "
        f"{short(replace(override, blocks=(), projections=(), gemms=(), from_step=None)).replace(',', ', ')}"  # noqa: E501
    )


def document(override: Override) -> dict[str, Any]:
    """An override as a JSON-able dict of the keys that are set."""
    values = asdict(override) | {"switches": override.switches.stated()}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, (), {})
    }


def from_document(values: Mapping[str, Any]) -> Override:
    """The override of a `document`."""
    return Override(**{**values, "switches": Switches(**values.get("switches", {}))})


def block_ranges(number: int, rule: Override, n_layers: int) -> list[tuple[int, int]]:
    """The blocks of a rule as ranges from first to last. Raises SpecError for one that the model
    does not have.
    """
    if not rule.blocks:
        return [(0, n_layers - 1)]
    ranges = []
    for item in rule.blocks:
        end, first, last = _parsed(item)
        if end:
            first, last = (0, first - 1) if end == "first" else (n_layers - first, n_layers - 1)
        if not 0 <= first <= last < n_layers:
            nearest = f"{first}-{n_layers - 1}" if first < n_layers - 1 else f"{n_layers - 1}"
            if end:
                nearest = f"{end} {n_layers}"
            raise SpecError(
                f"arm.overrides.{number}.blocks" if number >= 0 else "arm.overrides.blocks",
                item,
                f"blocks of 0 to {n_layers - 1}, because model.n_layers is {n_layers}",
                f"the nearest is {nearest}",
            )
        ranges.append((first, last))
    return ranges


def _parsed(item: int | str) -> tuple[str, int, int]:
    """("first" or "last", count, count) or ("", first block, last block) of one entry of
    `blocks`.
    """
    match = None if isinstance(item, bool) else _BLOCKS.fullmatch(str(item).strip())
    if match is None:
        raise SpecError("overrides.blocks", item, _BLOCKS_IN_WORDS)
    if match["end"]:
        if int(match["count"]) < 1:
            raise SpecError(
                "overrides.blocks",
                item,
                f"{match['end']} 1 or more",
                f"the nearest is {match['end']} 1",
            )
        return match["end"], int(match["count"]), int(match["count"])
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if last < first:
        raise SpecError(
            "overrides.blocks",
            item,
            "a range from a lower to a higher block",
            f"the nearest is {last}-{first}",
        )
    return "", first, last


def _check_word(field: str, word: str, allowed: Sequence[str]) -> None:
    if word not in allowed:
        close = get_close_matches(str(word), allowed, n=1)
        raise SpecError(
            field,
            word,
            f"one of {', '.join(allowed)}",
            f"did you mean {close[0]}?" if close else "",
        )


def check_features(field: str, recipe: Recipe, switches: Switches, where: str = "") -> None:
    """Raises SpecError, with `field` before its own, for a switch that the recipe does not have."""
    try:
        features(recipe, switches)
    except SpecError as error:
        raise SpecError(
            f"{field}.{error.field}",
            error.value,
            error.expected,
            "; ".join(filter(None, (where, error.remedy))),
        ) from None
