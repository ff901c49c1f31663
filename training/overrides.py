"""Overrides: which arithmetic each GEMM of each linear layer has, from which step on.

What it answers: after the layer policy, the kept blocks, an arm's list of overrides and its switch to bf16, what do fprop, dgrad and wgrad
of `down` in block 3 do at step 900?

    the arm's recipe and switches everywhere
    then bf16 where the job says so                 layer_policy, projections, keep_first, keep_last
    then the arm's overrides, in their order        later ones win
    then bf16 for the last part of the run          bf16_from_step, bf16_scope

An override says where (`blocks`, `projections`, `gemms`; one that is left out means all of them), what (`recipe`, `switches` or both) and
optionally since when (`from_step`). With a recipe, the GEMMs get that recipe as it is plus the override's switches. With switches alone,
they keep the recipe that they have, and those that are not quantized stay so. The steps at which something changes cut the run into
segments, each a program of its own.

The assumption that can fail: that the parts of a layer act independently. A GEMM in bf16 removes its own error alone; the errors of the
others were trained with it. Standard library only, like `training.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import pairwise, product
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from training.rules import RECIPES, Recipe, SpecError, refusal
from training.statistics import PROJECTIONS
from training.switches import NO_SWITCHES, Rounding, Switches, features, label, not_te_parity, rounds_stochastically

Projection = Literal["query", "key", "value", "out", "gate", "up", "down"]
Gemm = Literal["fprop", "dgrad", "wgrad"]
GEMMS: tuple[Gemm, ...] = get_args(Gemm)
MOST = 64
"""Overrides of an arm."""
MOST_SEGMENTS = 8
_BLOCKS = re.compile(r"(?P<end>first|last) +(?P<count>\d{1,9})|(?P<first>\d{1,9})(?: *- *(?P<last>\d{1,9}))?")
_BLOCKS_IN_WORDS = "numbers such as 3, ranges such as 0-1, and first 2 or last 2"
# The GEMMs that a feature of a recipe reaches; all three unless it is listed here.
_REACHES: Mapping[str, tuple[Gemm, ...]] = {
    "rht": ("wgrad",),
    "stochastic_rounding": ("dgrad", "wgrad"),
    "weight_scaling": ("fprop", "dgrad"),
}
_UNQUANTIZED = ("f32", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One rule of an arm: another recipe, or other switches, for some GEMMs of some linear layers.

    blocks: numbers from 0, ranges such as 0-1, first 2, last 2. What is left out means all. from_step: the 0-based step from which the
    rule holds; from the first one by default.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    blocks: tuple[int | str, ...] = ()
    projections: tuple[Projection, ...] = ()
    gemms: tuple[Gemm, ...] = ()
    recipe: Recipe | None = None
    switches: Switches = NO_SWITCHES
    from_step: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("projections", PROJECTIONS), ("gemms", GEMMS)):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            for word in getattr(self, name):
                _check_word(f"overrides.{name}", word, known)
        object.__setattr__(self, "blocks", tuple(self.blocks))
        for item in self.blocks:
            _parsed(item)
        if self.recipe is not None:
            _check_word("overrides.recipe", self.recipe, RECIPES)
        if self.recipe == "f32":
            remedy = "f32 changes the whole model; use it as an arm's recipe"
            raise SpecError("overrides.recipe", "f32", "a recipe of linear layers", remedy)
        if self.recipe is None and not self.switches.given():
            raise SpecError("overrides", short(self), "a recipe, switches or both", "say what these GEMMs do, such as recipe: bf16")
        if self.recipe is not None:
            _features("overrides", self.recipe, self.switches)
        if self.from_step is not None and self.from_step < 1:
            raise SpecError("overrides.from_step", self.from_step, "a step after the first", "leave it out for the whole run")


class Arithmetic(NamedTuple):
    """What one GEMM does: a recipe with switches."""

    recipe: Recipe
    switches: Switches = NO_SWITCHES


Layer = tuple[Arithmetic, Arithmetic, Arithmetic]
"""Fprop, dgrad and wgrad of one linear layer."""


class Span(NamedTuple):
    """Neighbouring blocks that are alike, from the first to the last: their layers in the order of PROJECTIONS."""

    first: int
    last: int
    layers: tuple[Layer, ...]


class Segment(NamedTuple):
    """The steps from `first_step` up to the next segment, and what every GEMM does in them."""

    first_step: int
    spans: tuple[Span, ...]

    def cells(self) -> Iterator[tuple[int, str, Gemm, Arithmetic]]:
        """(first block of a span, projection, GEMM, arithmetic) of every GEMM, once for a span."""
        for span in self.spans:
            for projection, layer in zip(PROJECTIONS, span.layers, strict=True):
                for gemm, arithmetic in zip(GEMMS, layer, strict=True):
                    yield span.first, projection, gemm, arithmetic


class Plan(NamedTuple):
    """What an arm trains, in full; `segments` resolves it. `quantized` are the projections that the job quantizes."""

    recipe: Recipe
    switches: Switches
    overrides: tuple[Override, ...]
    bf16_from_step: int | None
    forward_only: bool
    quantized: frozenset[str]
    keep_first: int
    keep_last: int
    n_layers: int
    steps: int


class _Stretch(NamedTuple):
    """Blocks `first` to `last` in the steps from `start` up to the next segment, and the numbered rules that hold there, in their order."""

    start: int
    first: int
    last: int
    rules: tuple[tuple[int, Override], ...]


def uniform(recipe: Recipe, n_layers: int) -> Segment:
    """The segment of a run in which every GEMM of every layer has this recipe."""
    layer: Layer = (Arithmetic(recipe), Arithmetic(recipe), Arithmetic(recipe))
    return Segment(0, (Span(0, n_layers - 1, (layer,) * len(PROJECTIONS)),))


def segments(plan: Plan) -> tuple[Segment, ...]:
    """The run's segments in the order of their steps. Raises SpecError for an override that does not fit recipe, model or length."""
    parts: dict[int, list[Span]] = {}
    for place in _stretches(plan):
        layers = tuple(_layer(plan, place, projection) for projection in PROJECTIONS)
        parts.setdefault(place.start, []).append(Span(place.first, place.last, layers))
    return tuple(Segment(start, tuple(spans)) for start, spans in parts.items())


def checked_segments(plan: Plan, engine: str) -> tuple[Segment, ...]:
    """`segments`, after the refusals of overrides that the engine does not have and of those that change nothing."""
    _check_arm(plan, engine)
    parts = segments(plan)
    if plan.overrides:
        _check_needed(plan)
        _check_delayed(parts)
        if engine == "transformer_engine":
            _check_whole_layers(plan)
    return parts


def rounding(parts: Sequence[Segment]) -> Rounding:
    """How a run rounds gradients: stochastic if any of its GEMMs does, in any of its steps."""
    return "stochastic" if any(_stochastic(gemm, each) for part in parts for _, _, gemm, each in part.cells()) else "nearest"


def recipes(recipe: Recipe, overrides: Sequence[Override]) -> tuple[Recipe, ...]:
    """Every recipe that an arm names, its own first."""
    return tuple(dict.fromkeys([recipe, *(each.recipe for each in overrides if each.recipe is not None)]))


def arm_label(recipe: str, switches: Switches, overrides: Sequence[Override]) -> str:
    """The arm's recipe with its switches and overrides, such as "nvfp4+bf16@blocks:0-1.down.wgrad"; equal texts are equal arithmetic."""
    return "+".join([label(recipe, switches), *map(short, overrides)])


def short(override: Override) -> str:
    """An override in one word: what it sets, where, and from which step on."""
    given = [f"{name}={str(value).lower()}" for name, value in override.switches.given().items()]
    what = [*([override.recipe] if override.recipe is not None else []), *given]
    blocks = ["blocks:" + ",".join(str(item).replace(" ", "") for item in override.blocks)] if override.blocks else []
    places = [*blocks, *(",".join(words) for words in (override.projections, override.gemms) if words)]
    since = [f"from:{override.from_step}"] if override.from_step is not None else []
    return ",".join(what) + ("@" + ".".join([*places, *since]) if places or since else "")


def phrase(override: Override) -> str:
    """An override as a phrase: "wgrad of down in blocks 0-1: bf16"."""
    blocks = f"blocks {', '.join(map(str, override.blocks))}" if override.blocks else "all blocks"
    where = f"{', '.join(override.gemms) or 'all GEMMs'} of {', '.join(override.projections) or 'all projections'} in {blocks}"
    since = f" from step {override.from_step}" if override.from_step is not None else ""
    return f"{where}{since}: {short(replace(override, blocks=(), projections=(), gemms=(), from_step=None)).replace(',', ', ')}"


def document(override: Override) -> dict[str, Any]:
    """An override as a JSON-able dict of the keys that are set."""
    values = asdict(override) | {"switches": override.switches.given()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value not in (None, (), {})}


def from_document(values: Mapping[str, Any]) -> Override:
    """The override of a `document`."""
    return Override(**{**values, "switches": Switches(**values.get("switches", {}))})


def not_te_parity_of(parts: Sequence[Segment]) -> str | None:
    """Why Transformer Engine does not have the arithmetic of a run: the first layer that is not one of its recipes; None if all are."""
    for part in parts:
        for span in part.spans:
            for projection, layer in zip(PROJECTIONS, span.layers, strict=True):
                if problem := _not_one_recipe(layer):
                    return f"{problem[0]} of {projection} in block {span.first}: {problem[1]}"
    return None


def gemm_key(gemm: Gemm, arithmetic: Arithmetic) -> tuple[tuple[str, object], ...]:
    """What of a recipe reaches one GEMM; equal keys are equal arithmetic."""
    return _key(gemm, *arithmetic)


@cache
def _key(gemm: Gemm, recipe: Recipe, switches: Switches) -> tuple[tuple[str, object], ...]:
    resolved = features(recipe, switches)
    if resolved is None:
        return ("family", recipe), *switches.given().items()
    return tuple((name, value) for name, value in asdict(resolved).items() if gemm in _REACHES.get(name, GEMMS))


def _stochastic(gemm: Gemm, arithmetic: Arithmetic) -> bool:
    return gemm in _REACHES["stochastic_rounding"] and rounds_stochastically(*arithmetic)


def _stretches(plan: Plan) -> Iterator[_Stretch]:
    """The run cut at every step and block where a rule begins or ends, by steps, then blocks."""
    for number, each in enumerate(plan.overrides):
        if each.from_step is not None and not 0 < each.from_step < plan.steps:
            raise SpecError(
                f"arm.overrides.{number}.from_step",
                each.from_step,
                f"a step after the first and before schedule.steps = {plan.steps}",
                f"the last one is {plan.steps - 1}",
            )
    rules = [(number, rule, _where(number, rule, plan.n_layers)) for number, rule in _rules(plan)]
    starts = sorted({rule.from_step or 0 for _, rule, _ in rules} | {0})
    if len(starts) > MOST_SEGMENTS:
        count = f"{len(starts) - 1} different from_step"
        raise SpecError("arm.overrides", count, f"at most {MOST_SEGMENTS - 1}", "each is compiled as a program of its own")
    cuts = sorted({0, plan.n_layers, *(edge for _, _, where in rules for first, last in where for edge in (first, last + 1))})
    for start in starts:
        for first, after in pairwise(cuts):
            holding = tuple(
                (number, rule)
                for number, rule, where in rules
                if (rule.from_step or 0) <= start and any(low <= first <= high for low, high in where)
            )
            yield _Stretch(start, first, after - 1, holding)


def _rules(plan: Plan) -> Iterator[tuple[int, Override]]:
    """The job's and the arm's settings as one list of overrides; those that are not the arm's `overrides` have the number -1."""
    if plan.recipe not in _UNQUANTIZED:
        left_out = tuple(name for name in PROJECTIONS if name not in plan.quantized)
        for where in ({"projections": left_out}, {"blocks": _end("first", plan.keep_first)}, {"blocks": _end("last", plan.keep_last)}):
            if any(where.values()):
                yield -1, Override(recipe="bf16", **where)  # type: ignore[arg-type]
    yield from enumerate(plan.overrides)
    if plan.bf16_from_step is not None:
        yield -1, Override(recipe="bf16", gemms=("fprop",) if plan.forward_only else (), from_step=plan.bf16_from_step)


def _end(which: str, count: int) -> tuple[str, ...]:
    return (f"{which} {count}",) if count else ()


def _layer(plan: Plan, place: _Stretch, projection: str) -> Layer:
    fprop, dgrad, wgrad = (_arithmetic(plan, place, projection, gemm) for gemm in GEMMS)
    return fprop, dgrad, wgrad


def _arithmetic(plan: Plan, place: _Stretch, projection: str, gemm: Gemm, without: int | None = None) -> Arithmetic:
    """What one GEMM does after all rules, or after all but one."""
    arithmetic = Arithmetic(plan.recipe, plan.switches)
    for number, rule in place.rules:
        if _reaches(rule, projection, gemm) and (without is None or number != without):
            arithmetic = _applied(number, rule, arithmetic, f"{gemm} of {projection} in block {place.first}")
    return arithmetic


def _reaches(rule: Override, projection: str, gemm: Gemm) -> bool:
    return (not rule.projections or projection in rule.projections) and (not rule.gemms or gemm in rule.gemms)


def _applied(number: int, rule: Override, before: Arithmetic, where: str) -> Arithmetic:
    if rule.recipe is not None:
        return Arithmetic(rule.recipe, rule.switches)
    if before.recipe in _UNQUANTIZED:
        return before
    given: dict[str, Any] = before.switches.given() | rule.switches.given()
    after = Arithmetic(before.recipe, Switches(**given))
    _features(f"arm.overrides.{number}", *after, where=f"{where} has recipe {before.recipe}")
    return after


def _where(number: int, rule: Override, n_layers: int) -> list[tuple[int, int]]:
    """The blocks of a rule as ranges from first to last."""
    if not rule.blocks:
        return [(0, n_layers - 1)]
    ranges = []
    for item in rule.blocks:
        end, first, last = _parsed(item)
        if end:
            first, last = (0, first - 1) if end == "first" else (n_layers - first, n_layers - 1)
        if not 0 <= first <= last < n_layers:
            raise SpecError(
                f"arm.overrides.{number}.blocks" if number >= 0 else "arm.overrides.blocks",
                item,
                f"blocks of 0 to {n_layers - 1}, because model.n_layers is {n_layers}",
                f"the nearest is {_nearest_blocks(end, first, n_layers)}",
            )
        ranges.append((first, last))
    return ranges


def _nearest_blocks(end: str, first: int, n_layers: int) -> str:
    return f"{end} {n_layers}" if end else str(min(first, n_layers - 1)) + (f"-{n_layers - 1}" if first < n_layers - 1 else "")


def _parsed(item: int | str) -> tuple[str, int, int]:
    """("first" or "last", count, count) or ("", first block, last block) of one entry of `blocks`."""
    match = None if isinstance(item, bool) else _BLOCKS.fullmatch(str(item).strip())
    if match is None:
        raise SpecError("overrides.blocks", item, _BLOCKS_IN_WORDS)
    if match["end"]:
        if int(match["count"]) < 1:
            raise SpecError("overrides.blocks", item, f"{match['end']} 1 or more", f"the nearest is {match['end']} 1")
        return match["end"], int(match["count"]), int(match["count"])
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if last < first:
        raise SpecError("overrides.blocks", item, "a range from a lower to a higher block", f"the nearest is {last}-{first}")
    return "", first, last


def _check_word(field: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        close = get_close_matches(str(word), known, n=1)
        raise SpecError(field, word, f"one of {', '.join(known)}", f"did you mean {close[0]}?" if close else "")


def _features(field: str, recipe: Recipe, switches: Switches, where: str = "") -> None:
    """Raises SpecError, with `field` before its own, for a switch that the recipe does not have."""
    try:
        features(recipe, switches)
    except SpecError as error:
        raise SpecError(f"{field}.{error.field}", error.value, error.expected, "; ".join(filter(None, (where, error.remedy)))) from None


def _check_arm(plan: Plan, engine: str) -> None:
    """Raises SpecError for overrides that this engine, or this arm, cannot have at all."""
    if not plan.overrides:
        return
    if len(plan.overrides) > MOST:
        raise SpecError("arm.overrides", f"{len(plan.overrides)} rules", f"at most {MOST}")
    first = short(plan.overrides[0])
    if engine == "maxtext":
        why = "MaxText selects one recipe for all layers and steps by name, and has no setting by block, projection or GEMM"
        raise SpecError("arm.overrides", first, "nothing under engine maxtext", f"{why}; use engine: emulated")
    if engine == "external":
        why = "the layers of an external trainer are not known here"
        raise SpecError("arm.overrides", first, "nothing under engine external", f"{why}; describe the arm in its name")
    if plan.recipe == "f32":
        raise SpecError("arm.overrides", first, "nothing for recipe f32", "its layers take float32 inputs; use recipe: bf16 with overrides")
    for number, override in enumerate(plan.overrides):
        reason = refusal(engine, override.recipe, "all_linears") if override.recipe is not None else None
        if reason:
            raise SpecError(f"arm.overrides.{number}.recipe", override.recipe, f"a recipe that engine {engine} can run", reason)


def _check_delayed(parts: Sequence[Segment]) -> None:
    """Raises SpecError unless all delayed GEMMs share one state that begins at step 0."""
    settings: Arithmetic | None = None
    before: dict[tuple[int, str, Gemm], Arithmetic] = {}
    for part in parts:
        now = {(block, projection, gemm): each for block, projection, gemm, each in part.cells()}
        for place, each in now.items():
            if each.recipe != "fp8_delayed":
                continue
            block, projection, gemm = place
            where = f"{gemm} of {projection} in block {block}"
            if part.first_step and before[place].recipe != "fp8_delayed":
                raise SpecError(
                    "arm.overrides",
                    "fp8_delayed",
                    f"a recipe without delayed scaling from step {part.first_step} on",
                    f"{where} has no history of amaxes by then; the nearest is fp8_current, or fp8_delayed from the first step",
                )
            settings = settings or each
            if settings != each:
                raise SpecError(
                    "arm.overrides",
                    arm_label(*each, ()),
                    f"{arm_label(*settings, ())}, as in the other layers",
                    f"{where}: delayed scaling keeps one kind of history in a run",
                )
        before = now


def _check_needed(plan: Plan) -> None:
    """Raises SpecError for an override without which every GEMM does the same."""
    idle = set(range(len(plan.overrides)))
    for place in _stretches(plan):
        for number, rule in place.rules:
            if number in idle and _is_needed(plan, place, number, rule):
                idle.remove(number)
        if not idle:
            return
    number = min(idle)
    raise SpecError(
        f"arm.overrides.{number}",
        short(plan.overrides[number]),
        "a rule that changes something",
        "its GEMMs do the same without it, or another rule or bf16_from_step covers it; remove it or correct where it holds",
    )


def _is_needed(plan: Plan, place: _Stretch, number: int, rule: Override) -> bool:
    for projection, gemm in product(PROJECTIONS, GEMMS):
        if _reaches(rule, projection, gemm):
            own = _arithmetic(plan, place, projection, gemm)
            try:
                without = _arithmetic(plan, place, projection, gemm, without=number)
            except SpecError:  # a later rule's switches need this rule's recipe
                return True
            if gemm_key(gemm, own) != gemm_key(gemm, without):
                return True
    return False


def _check_whole_layers(plan: Plan) -> None:
    """Raises SpecError if Transformer Engine cannot express a layer: its dense takes one recipe for all three GEMMs."""
    for place in _stretches(plan):
        for projection in PROJECTIONS:
            problem = _not_one_recipe(_layer(plan, place, projection))
            if problem is None:
                continue
            gemm, reason = problem
            reaching = [number for number, rule in place.rules if number >= 0 and any(_reaches(rule, projection, each) for each in GEMMS)]
            number = max(reaching, default=None)
            raise SpecError(
                "arm.overrides" if number is None else f"arm.overrides.{number}",
                "these rules" if number is None else short(plan.overrides[number]),
                "what a layer of engine transformer_engine can do",
                f"{gemm} of {projection} in block {place.first}: {reason}; name all three GEMMs, or use engine: emulated",
            )


def _not_one_recipe(layer: Layer) -> tuple[Gemm, str] | None:
    """The GEMM at which a layer's arithmetic stops being one recipe of Transformer Engine, and why; None if it is one."""
    merged: dict[str, object] = {}
    for gemm, arithmetic in zip(GEMMS, layer, strict=True):
        for name, value in gemm_key(gemm, arithmetic):
            if merged.setdefault(name, value) != value:
                what = "recipe" if name == "family" else name
                return gemm, f"{what} is {value}, and {merged[name]} in another GEMM of the layer; Transformer Engine has one for all three"
    family: Any = merged.pop("family")
    if features(family) is None:
        return None
    given: dict[str, Any] = merged
    reason = not_te_parity(family, Switches(**given))
    return None if reason is None else ("wgrad", reason)
