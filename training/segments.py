"""Segments: which arithmetic each GEMM of each linear layer has, from which step on.

What it answers: after the layer policy, the kept blocks, an arm's overrides and its later recipe,
what do fprop, dgrad and wgrad of `down` in block 3 do at step 900, and can the engine do that?

    the arm's recipe and switches everywhere
    then bf16 where the job says so                 layer_policy, projections, keep_first, keep_last
    then the arm's overrides, in their order        later ones win
    then another recipe for the rest of the run     then

The steps at which something changes cut the run into segments, each a program of its own. Blocks
are ranges, so that a specification of any number of layers is checked at once.

The assumption that can fail: two recipes are the same for a GEMM if the features that reach it are
the same (`_REACHES`). A new feature that is not listed there counts as reaching all three GEMMs.
Standard library only, like `training.spec`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise, product
from typing import Any, NamedTuple

from training.later_recipe import LaterRecipe
from training.overrides import GEMMS, Gemm, Override, arm_label, block_ranges, check_features, short
from training.rules import Recipe, SpecError, refusal
from training.step_values import PROJECTIONS
from training.switches import (
    NO_SWITCHES,
    Rounding,
    Switches,
    features,
    kernel_refusal,
    named_operands,
    not_te_parity,
    rounds_stochastically,
)

MOST = 64
"""Overrides of an arm."""
MOST_SEGMENTS = 8
# The GEMMs that a feature of a recipe reaches; all three unless it is listed here.
_REACHES: Mapping[str, tuple[Gemm, ...]] = {
    "rht": ("wgrad",),
    "stochastic_rounding": ("dgrad", "wgrad"),
    "sr_bits": ("dgrad", "wgrad"),
    "gradient_format": ("dgrad", "wgrad"),
    "weight_scaling": ("fprop", "dgrad"),
    "row_scaled_activation": ("fprop", "wgrad"),
}
# The operands that four over six can concern, by GEMM; it never concerns gradients.
_FOUR_OVER_SIX: Mapping[Gemm, frozenset[str]] = {
    "fprop": frozenset({"activations", "weights"}),
    "dgrad": frozenset({"weights"}),
    "wgrad": frozenset({"activations"}),
}
_UNQUANTIZED = ("f32", "bf16")
_JOB, _THEN = -1, -2  # the numbers of rules that are no overrides of the arm


class Arithmetic(NamedTuple):
    """What one GEMM does: a recipe with switches."""

    recipe: Recipe
    switches: Switches = NO_SWITCHES


Layer = tuple[Arithmetic, Arithmetic, Arithmetic]
"""Fprop, dgrad and wgrad of one linear layer."""


class Span(NamedTuple):
    """Neighbouring blocks that are alike, from the first to the last: their layers in the order of
    PROJECTIONS.
    """

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


class ArmPlan(NamedTuple):
    """What an arm trains, in full; `resolve` does that. `quantized` are the projections that the
    job quantizes.
    """

    recipe: Recipe
    switches: Switches
    overrides: tuple[Override, ...]
    then: LaterRecipe | None
    quantized: frozenset[str]
    keep_first: int
    keep_last: int
    n_layers: int
    steps: int


class _Stretch(NamedTuple):
    """Blocks `first` to `last` in the steps from `start` up to the next segment, and the numbered
    rules that hold there, in their order.
    """

    start: int
    first: int
    last: int
    rules: tuple[tuple[int, Override], ...]


def uniform(recipe: Recipe, n_layers: int) -> Segment:
    """The segment of a run in which every GEMM of every layer has this recipe."""
    layer: Layer = (Arithmetic(recipe), Arithmetic(recipe), Arithmetic(recipe))
    return Segment(0, (Span(0, n_layers - 1, (layer,) * len(PROJECTIONS)),))


def resolve(plan: ArmPlan) -> tuple[Segment, ...]:
    """The run's segments in the order of their steps. Raises SpecError for an override that does
    not fit recipe, model or length.
    """
    parts: dict[int, list[Span]] = {}
    for place in _stretches(plan):
        layers = tuple(_layer(plan, place, projection) for projection in PROJECTIONS)
        parts.setdefault(place.start, []).append(Span(place.first, place.last, layers))
    return tuple(Segment(start, tuple(spans)) for start, spans in parts.items())


def checked(plan: ArmPlan, engine: str) -> tuple[Segment, ...]:
    """`resolve`, after the refusals of overrides that the engine does not have and of those that
    change nothing.
    """
    _check_arm(plan, engine)
    parts = resolve(plan)
    if plan.overrides:
        _check_needed(plan)
    if plan.then:
        _check_goes_on_otherwise(plan, plan.then)
    if plan.overrides or plan.then:
        _check_delayed(parts)
        if engine == "transformer_engine":
            _check_whole_layers(plan)
    return parts


def labels(plan: ArmPlan) -> list[tuple[int, str]]:
    """What an arm does from which step on: a recipe with its switches, and with the overrides that
    hold there for some of its GEMMs only.

    A recipe that all GEMMs have which the job lets the arm choose is that recipe, however many
    overrides say so.
    """
    left_out = [
        (number, rule)
        for number, rule in _rules(_job_plan(plan))
        if rule.from_step is None and number < 0
    ]
    found = []
    for part in resolve(plan):
        inside = {
            arithmetic
            for block, projection, _, arithmetic in part.cells()
            if not any(_holds(rule, block, projection, plan.n_layers) for _, rule in left_out)
        }
        outside = {
            arithmetic
            for block, projection, _, arithmetic in part.cells()
            if any(_holds(rule, block, projection, plan.n_layers) for _, rule in left_out)
        }
        base = inside.pop() if len(inside) == 1 else None
        if base is not None and outside <= {Arithmetic("bf16")}:
            found.append((part.first_step, arm_label(*base, ())))
            continue
        since = [
            replace(rule, from_step=None)
            for rule in plan.overrides
            if (rule.from_step or 0) <= part.first_step
        ]
        if plan.then is not None and plan.then.from_step <= part.first_step:
            since.append(replace(plan.then.override, from_step=None))
        found.append((part.first_step, arm_label(*(base or (plan.recipe, plan.switches)), since)))
    return found


def _job_plan(plan: ArmPlan) -> ArmPlan:
    """The plan without what its arm says of single GEMMs and steps: what the job itself leaves in
    bf16.
    """
    return plan._replace(overrides=(), then=None)


def _holds(rule: Override, block: int, projection: str, n_layers: int) -> bool:
    """Whether a rule holds for a layer of a block."""
    is_in_block = any(first <= block <= last for first, last in block_ranges(-1, rule, n_layers))
    return is_in_block and (not rule.projections or projection in rule.projections)


def rounding(parts: Sequence[Segment]) -> Rounding:
    """How a run rounds gradients: stochastic if any of its GEMMs does, in any of its steps."""
    rounded = (
        arithmetic
        for part in parts
        for _, _, gemm, arithmetic in part.cells()
        if gemm in _REACHES["stochastic_rounding"]
    )
    if any(rounds_stochastically(*gemm) for gemm in rounded):
        return "stochastic"
    return "nearest"


def not_te_parity_of(parts: Sequence[Segment]) -> str | None:
    """Why Transformer Engine does not have the arithmetic of a run: the first layer that is not one
    of its recipes; None if all are.
    """
    for part in parts:
        for span in part.spans:
            for projection, layer in zip(PROJECTIONS, span.layers, strict=True):
                if problem := _not_one_recipe(layer):
                    return f"{problem[0]} of {projection} in block {span.first}: {problem[1]}"
    return None


def gemm_key(gemm: Gemm, arithmetic: Arithmetic) -> tuple[tuple[str, object], ...]:
    """What of a recipe reaches one GEMM; equal keys are equal arithmetic."""
    key = dict(_key(gemm, *arithmetic))
    if "nvfp4_4over6" not in key:
        return tuple(key.items())
    chosen = _FOUR_OVER_SIX[gemm] & named_operands(key["nvfp4_4over6"])
    key |= {
        "nvfp4_4over6": chosen,
        "nvfp4_4over6_e4m3_use_256": chosen & named_operands(key["nvfp4_4over6_e4m3_use_256"]),
    }
    if not chosen:
        del key["nvfp4_4over6_err_mode"]
    return tuple(key.items())


@cache
def _key(gemm: Gemm, recipe: Recipe, switches: Switches) -> tuple[tuple[str, object], ...]:
    resolved = features(recipe, switches)
    if resolved is None:
        return ("family", recipe), *switches.stated().items()
    return tuple(
        (name, value)
        for name, value in asdict(resolved).items()
        if gemm in _REACHES.get(name, GEMMS)
    )


def _stretches(plan: ArmPlan) -> Iterator[_Stretch]:
    """The run cut at every step and block where a rule begins or ends, by steps, then blocks."""
    for number, override in enumerate(plan.overrides):
        if override.from_step is not None and not 0 < override.from_step < plan.steps:
            raise SpecError(
                f"arm.overrides.{number}.from_step",
                override.from_step,
                f"a step after the first and before schedule.steps = {plan.steps}",
                f"the last one is {plan.steps - 1}",
            )
    rules = [
        (number, rule, block_ranges(number, rule, plan.n_layers)) for number, rule in _rules(plan)
    ]
    starts = sorted({rule.from_step or 0 for _, rule, _ in rules} | {0})
    if len(starts) > MOST_SEGMENTS:
        count = f"{len(starts) - 1} different from_step"
        raise SpecError(
            "arm.overrides",
            count,
            f"at most {MOST_SEGMENTS - 1}",
            "each is compiled as a program of its own",
        )
    cuts = sorted(
        {
            0,
            plan.n_layers,
            *(edge for _, _, where in rules for first, last in where for edge in (first, last + 1)),
        }
    )
    for start in starts:
        for first, after in pairwise(cuts):
            holding = tuple(
                (number, rule)
                for number, rule, where in rules
                if (rule.from_step or 0) <= start
                and any(low <= first <= high for low, high in where)
            )
            yield _Stretch(start, first, after - 1, holding)


def _rules(plan: ArmPlan) -> Iterator[tuple[int, Override]]:
    """The job's and the arm's settings as one list of overrides; those that are not the arm's
    `overrides` have a number below 0.
    """
    if plan.recipe not in _UNQUANTIZED:
        left_out = tuple(name for name in PROJECTIONS if name not in plan.quantized)
        for where in (
            {"projections": left_out},
            {"blocks": _end("first", plan.keep_first)},
            {"blocks": _end("last", plan.keep_last)},
        ):
            if any(where.values()):
                yield _JOB, Override(recipe="bf16", **where)
    yield from enumerate(plan.overrides)
    if plan.then is not None:
        yield _THEN, plan.then.override


def _end(which: str, count: int) -> tuple[str, ...]:
    return (f"{which} {count}",) if count else ()


def _layer(plan: ArmPlan, place: _Stretch, projection: str) -> Layer:
    fprop, dgrad, wgrad = (_arithmetic(plan, place, projection, gemm) for gemm in GEMMS)
    return fprop, dgrad, wgrad


def _arithmetic(
    plan: ArmPlan, place: _Stretch, projection: str, gemm: Gemm, without: int | None = None
) -> Arithmetic:
    """What one GEMM does after all rules, or after all but one."""
    arithmetic = Arithmetic(plan.recipe, plan.switches)
    for number, rule in place.rules:
        if _reaches(rule, projection, gemm) and (without is None or number != without):
            arithmetic = _applied(
                number, rule, arithmetic, f"{gemm} of {projection} in block {place.first}"
            )
    return arithmetic


def _reaches(rule: Override, projection: str, gemm: Gemm) -> bool:
    return (not rule.projections or projection in rule.projections) and (
        not rule.gemms or gemm in rule.gemms
    )


def _applied(number: int, rule: Override, before: Arithmetic, where: str) -> Arithmetic:
    if number == _THEN and before.recipe in _UNQUANTIZED:
        return before
    if rule.recipe is not None:
        return Arithmetic(rule.recipe, rule.switches)
    if before.recipe in _UNQUANTIZED:
        return before
    switches: dict[str, Any] = before.switches.stated() | rule.switches.stated()
    after = Arithmetic(before.recipe, Switches(**switches))
    check_features(f"arm.overrides.{number}", *after, where=f"{where} has recipe {before.recipe}")
    return after


def _check_arm(plan: ArmPlan, engine: str) -> None:
    """Raises SpecError for overrides that this engine, or this arm, cannot have at all."""
    if not plan.overrides:
        return
    if len(plan.overrides) > MOST:
        raise SpecError("arm.overrides", f"{len(plan.overrides)} rules", f"at most {MOST}")
    first = short(plan.overrides[0])
    if engine == "maxtext":
        why = (
            "MaxText selects one recipe for all layers and steps by name, and has no setting by "
            "block, projection or GEMM"
        )
        raise SpecError(
            "arm.overrides", first, "nothing under engine maxtext", f"{why}; use engine: emulated"
        )
    if engine == "external":
        why = "the layers of an external trainer are not known here"
        raise SpecError(
            "arm.overrides",
            first,
            "nothing under engine external",
            f"{why}; describe the arm in its name",
        )
    if plan.recipe == "f32":
        raise SpecError(
            "arm.overrides",
            first,
            "nothing for recipe f32",
            "its layers take float32 inputs; use recipe: bf16 with overrides",
        )
    for number, override in enumerate(plan.overrides):
        reason = (
            refusal(engine, override.recipe, "all_linears") if override.recipe is not None else None
        )
        if reason:
            raise SpecError(
                f"arm.overrides.{number}.recipe",
                override.recipe,
                f"a recipe that engine {engine} can run",
                reason,
            )


def _check_delayed(parts: Sequence[Segment]) -> None:
    """Raises SpecError unless all delayed GEMMs share one state that begins at step 0."""
    settings: Arithmetic | None = None
    before: dict[tuple[int, str, Gemm], Arithmetic] = {}
    for part in parts:
        now = {
            (block, projection, gemm): arithmetic
            for block, projection, gemm, arithmetic in part.cells()
        }
        for place, arithmetic in now.items():
            if arithmetic.recipe != "fp8_delayed":
                continue
            block, projection, gemm = place
            where = f"{gemm} of {projection} in block {block}"
            if part.first_step and before[place].recipe != "fp8_delayed":
                raise SpecError(
                    "arm.overrides",
                    "fp8_delayed",
                    f"a recipe without delayed scaling from step {part.first_step} on",
                    f"{where} has no history of amaxes by then; the nearest is fp8_current, or "
                    "fp8_delayed from the first step",
                )
            settings = settings or arithmetic
            if settings != arithmetic:
                raise SpecError(
                    "arm.overrides",
                    arm_label(*arithmetic, ()),
                    f"{arm_label(*settings, ())}, as in the other layers",
                    f"{where}: delayed scaling keeps one kind of history in a run",
                )
        before = now


def _check_goes_on_otherwise(plan: ArmPlan, then: LaterRecipe) -> None:
    """Raises SpecError for a later recipe with which every GEMM goes on as it would without it."""
    for place in _stretches(plan):
        if place.start < then.from_step:
            continue
        before = place._replace(rules=tuple(rule for rule in place.rules if rule[0] != _THEN))
        for projection, gemm in product(PROJECTIONS, GEMMS):
            now = _arithmetic(plan, place, projection, gemm)
            if gemm_key(gemm, now) != gemm_key(gemm, _arithmetic(plan, before, projection, gemm)):
                return
    raise SpecError(
        "arm.then",
        then.arm_name.removeprefix("."),
        "a recipe that changes something",
        "its GEMMs do the same without it; remove it or correct its recipe",
    )


def _check_needed(plan: ArmPlan) -> None:
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
        "its GEMMs do the same without it, or another rule or `then` covers it; remove it "
        "or correct where it holds",
    )


def _is_needed(plan: ArmPlan, place: _Stretch, number: int, rule: Override) -> bool:
    for projection, gemm in product(PROJECTIONS, GEMMS):
        if _reaches(rule, projection, gemm):
            current = _arithmetic(plan, place, projection, gemm)
            try:
                without = _arithmetic(plan, place, projection, gemm, without=number)
            except SpecError:  # a later rule's switches need this rule's recipe
                return True
            if gemm_key(gemm, current) != gemm_key(gemm, without):
                return True
    return False


def _check_whole_layers(plan: ArmPlan) -> None:
    """Raises SpecError if Transformer Engine cannot express a layer: its dense takes one recipe for
    all three GEMMs.
    """
    for place in _stretches(plan):
        for projection in PROJECTIONS:
            layer = _layer(plan, place, projection)
            refused = (
                (gemm, kernel_refusal(arithmetic.switches))
                for gemm, arithmetic in zip(GEMMS, layer, strict=True)
            )
            problem = _not_one_recipe(layer) or next(
                ((gemm, reason) for gemm, reason in refused if reason), None
            )
            if problem is None:
                continue
            gemm, reason = problem
            reaching = [
                number
                for number, rule in place.rules
                if number >= 0 and any(_reaches(rule, projection, gemm) for gemm in GEMMS)
            ]
            field, rules = "arm.overrides", "these rules"
            if reaching:
                field, rules = (
                    f"arm.overrides.{max(reaching)}",
                    short(plan.overrides[max(reaching)]),
                )
            raise SpecError(
                field,
                rules,
                "what a layer of engine transformer_engine can do",
                f"{gemm} of {projection} in block {place.first}: {reason}; name all three GEMMs, "
                "or use engine: emulated",
            )


def _not_one_recipe(layer: Layer) -> tuple[Gemm, str] | None:
    """The GEMM at which a layer's arithmetic stops being one recipe of Transformer Engine, and why;
    None if it is one.
    """
    merged: dict[str, object] = {}
    for gemm, arithmetic in zip(GEMMS, layer, strict=True):
        for name, value in _key(gemm, *arithmetic):
            if merged.setdefault(name, value) != value:
                what = "recipe" if name == "family" else name
                return (
                    gemm,
                    (
                        f"{what} is {value}, and {merged[name]} in another GEMM of the layer; "
                        "Transformer Engine has one for all three"
                    ),
                )
    family: Any = merged.pop("family")
    plain = features(family)
    if plain is None:
        return None
    switches: dict[str, Any] = {
        name: value for name, value in merged.items() if value != getattr(plain, name)
    }
    reason = not_te_parity(family, Switches(**switches))
    if reason is None:
        return None
    return "wgrad", reason
