"""The effective recipe of an arm: what it does from which step on, in one text, and whether a name
says so.

    nvfp4 then bf16 from step 1,600           the step is 0-based; from there on every layer that
      was quantized is in bf16
    nvfp4+no_rht+bf16@blocks:last2            switches and overrides follow the recipe, as the
      trainer writes them (`training.switches`)

Whoever shows an arm shows this text with its name (`title`), unless the name is the recipe itself.
A name claims a recipe where it contains the word of one: `nvfp4-run2` claims nvfp4, `head` claims
nothing. Where steps are judged in which an arm did not do what its name claims, the verdict is no
evidence about the claimed recipe (`not_claimed`).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from parity.frozen import frozen

_SWITCH = re.compile(r" then (?P<recipe>\S+) from step (?P<step>\d{1,3}(?:,\d{3})*|\d{1,15})")
_PART = re.compile(r"[A-Za-z0-9_.:\-]+(?:\+[A-Za-z0-9_.,:=@\-]+)*")
# Words of recipes that a name can claim, and the beginnings of the recipes that each is true of.
_CLAIMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvfp4", ("nvfp4",)),
    ("mxfp4", ("mxfp4",)),
    ("mxfp8", ("mxfp8",)),
    ("bf16", ("bf16",)),
    ("bfloat16", ("bf16",)),
    ("fp32", ("f32",)),
    ("f32", ("f32",)),
    ("float32", ("f32",)),
    ("fp8", ("fp8", "mxfp8")),
    ("fp4", ("nvfp4", "mxfp4")),
)


@frozen
class Phase:
    """What an arm does from a 0-based step on, as a recipe with its switches and overrides."""

    first_step: int
    recipe: str


def written(phases: Sequence[tuple[int, str]]) -> str:
    """The text of what an arm does from which steps on; neighbours that do the same are one."""
    parts: list[tuple[int, str]] = []
    for step, recipe in phases:
        if not parts or parts[-1][1] != recipe:
            parts.append((step, recipe))
    first, *later = parts
    return first[1] + "".join(f" then {recipe} from step {step:,}" for step, recipe in later)


def phases(recipe: str) -> tuple[Phase, ...]:
    """What a text says that an arm does; a text that is not written so is one phase."""
    at = recipe.find(" then ")
    if at < 0 or not is_written(recipe):
        return (Phase(first_step=0, recipe=recipe),)
    later = (
        Phase(first_step=int(switch["step"].replace(",", "")), recipe=switch["recipe"])
        for switch in _SWITCH.finditer(recipe, at)
    )
    return (Phase(first_step=0, recipe=recipe[:at]), *later)


def is_written(recipe: str) -> bool:
    """Whether a text is a recipe with switches, overrides and later recipes as they are written
    here, its steps rising.
    """
    at = recipe.find(" then ")
    first, rest = (recipe, "") if at < 0 else (recipe[:at], recipe[at:])
    steps = [int(switch["step"].replace(",", "")) for switch in _SWITCH.finditer(rest)]
    whole = "".join(switch[0] for switch in _SWITCH.finditer(rest)) == rest
    parts = [first, *(switch["recipe"] for switch in _SWITCH.finditer(rest))]
    return (
        whole
        and all(map(_PART.fullmatch, parts))
        and all(low < high for low, high in zip([0, *steps], steps, strict=False))
    )


def base_of(recipe: str) -> str:
    """The recipe that an arm begins with, without switches."""
    return phases(recipe)[0].recipe.split("+", 1)[0]


def title(name: str, recipe: str | None) -> str:
    """An arm by its name and what it did: the recipe alone where the name is that, the name alone
    where the recipe says no more.
    """
    if recipe is None or recipe.startswith("other:"):
        return name
    if "+" not in recipe and " then " not in recipe and not_claimed(name, recipe) is None:
        return name
    return recipe if _plain(name) == _plain(recipe) else f"{name} ({recipe})"


def not_claimed(
    name: str, recipe: str | None, first: int = 0, last: int | None = None
) -> Phase | None:
    """The first phase in steps `first` to `last` (inclusive) in which an arm does nothing of what
    its name claims; None where there is none, and for a name that claims no recipe.
    """
    claimed = _claims(name)
    if recipe is None or recipe.startswith("other:") or not claimed:
        return None
    did = phases(recipe)
    ends = [*(phase.first_step - 1 for phase in did[1:]), last]
    for phase, end in zip(did, ends, strict=True):
        judged = (last is None or phase.first_step <= last) and (end is None or end >= first)
        if judged and not any(
            word.startswith(start) for word in _words(phase.recipe) for start in claimed
        ):
            return phase
    return None


def _claims(name: str) -> set[str]:
    """The beginnings of the recipes of which a name says that the arm has one."""
    left, claimed = _plain(name), set[str]()
    for word, starts in _CLAIMS:  # a word is looked for after those that contain it
        if word in left:
            claimed.update(starts)
            left = left.replace(word, " ")
    return claimed


def _words(recipe: str) -> Iterable[str]:
    """The recipes in one phase: its own and those of its overrides."""
    for number, part in enumerate(recipe.split("+")):
        word = re.split(r"[@,]", part, maxsplit=1)[0]
        if number == 0 or "@" in part or "=" not in part:
            yield word


def _plain(text: str) -> str:
    """A text without what separates its words, and in one form of its letters."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
