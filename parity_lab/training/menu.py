"""The menu of an analysis: the arithmetics that its programs can compute, and which of them each
GEMM takes when one GEMM is off, or on alone.

    unit         GEMM `gemm` of `projection` in `block` whose arithmetic differs between this run
                 and what it is compared with
    ingredient   a part of the recipe in all quantized GEMMs: rotation (rht), stochastic rounding
                 (sr), 2D weight scales (2d), the format of the block scales (e4m3 with a scale of
                 the tensor, against e8m0 in blocks of the same size)

A GEMM that is off has the arithmetic of what the run is compared with: bf16 everywhere, or its
baseline's. Number 0 is bf16. A choice is int32 (blocks, projections, GEMMs).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.frozen import frozen
from training.overrides import GEMMS, Gemm
from training.segments import Arithmetic, Segment, gemm_key
from training.step_values import PROJECTIONS
from training.switches import Switches, features

Choice = npt.NDArray[np.int32]
BF16 = Arithmetic("bf16")
INGREDIENTS: Mapping[str, Mapping[str, Any]] = {
    "rht": {"rht": False},
    "sr": {"stochastic_rounding": False},
    "2d": {"weight_scaling": "1d"},
}
SCALE_FORMAT = "scale_format"


class Unit(NamedTuple):
    """One GEMM of one linear layer."""

    block: int
    projection: str
    gemm: Gemm

    @property
    def name(self) -> str:
        """Such as `1.down.wgrad`."""
        return f"{self.block}.{self.projection}.{self.gemm}"

    @property
    def place(self) -> tuple[int, int, int]:
        """Its index in a choice."""
        return self.block, PROJECTIONS.index(self.projection), GEMMS.index(self.gemm)


@frozen
class Measured:
    """What stands on the menu (`arithmetics`, number 0 is bf16), what the run itself takes (`on`),
    what a GEMM takes that is off (`off`), and the GEMMs in which the two differ.

    `ingredients` are the choices of the whole run without each ingredient that it has.
    """

    arithmetics: tuple[Arithmetic, ...]
    on: Choice
    off: Choice
    units: tuple[Unit, ...]
    ingredients: Mapping[str, Choice]

    def without(self, units: Sequence[Unit]) -> Choice:
        """The run's own choice, but with these GEMMs off."""
        return changed(self.on, units, self.off)

    def alone(self, units: Sequence[Unit]) -> Choice:
        """All units off, but the run's own choice in these."""
        return changed(self.off, units, self.on)


def changed(choice: Choice, units: Sequence[Unit], to: Choice) -> Choice:
    """A choice with what `to` has in these GEMMs."""
    result = choice.copy()
    for unit in units:
        result[unit.place] = to[unit.place]
    return result


def measured(segment: Segment, n_layers: int, off: Segment | None = None) -> Measured:
    """What can be measured of the arithmetic of a segment, against that of `off` (None: bf16
    everywhere).

    Raises ValueError if the segment quantizes nothing, if one of the two computes in f32, or if
    they do not differ.
    """
    own_cells = _cells(segment)
    off_cells = dict.fromkeys(own_cells, BF16) if off is None else _cells(off)
    own_recipes, off_recipes = (
        {arithmetic.recipe for arithmetic in cells.values()} for cells in (own_cells, off_cells)
    )
    if "f32" in own_recipes | off_recipes or not any(
        _is_quantized(arithmetic) for arithmetic in own_cells.values()
    ):
        recipes = ", ".join(sorted(own_recipes))
        raise ValueError(
            f"the run computes its linear layers in {recipes}, expected a quantized recipe; there "
            "is nothing to explain"
        )
    menu = list(
        dict.fromkeys(
            [
                BF16,
                *filter(_is_quantized, own_cells.values()),
                *filter(_is_quantized, off_cells.values()),
            ]
        )
    )
    on, off_numbers = (_numbered(cells, menu, n_layers) for cells in (own_cells, off_cells))
    ingredients = {}
    for name in (*INGREDIENTS, SCALE_FORMAT):
        taken = [menu[number] for number in np.unique(on) if number]
        replacements = {
            arithmetic: replaced
            for arithmetic in taken
            if (replaced := _without_ingredient(arithmetic, name)) is not None
        }
        if replacements:
            menu = list(dict.fromkeys([*menu, *replacements.values()]))
            number = {
                menu.index(arithmetic): menu.index(replaced)
                for arithmetic, replaced in replacements.items()
            }
            ingredients[name] = np.vectorize(
                lambda at, number=number: number.get(at, at), otypes=[np.int32]
            )(on)
    different = _different(own_cells, off_cells)
    if not different:
        raise ValueError(
            "the two compute every GEMM alike, expected a difference; there is nothing to explain"
        )
    units = tuple(
        sorted(
            different,
            key=lambda unit: (
                GEMMS.index(unit.gemm),
                unit.block,
                PROJECTIONS.index(unit.projection),
            ),
        )
    )
    return Measured(
        arithmetics=tuple(menu), on=on, off=off_numbers, units=units, ingredients=ingredients
    )


def menu_of(
    runs: Mapping[str, Segment], n_layers: int
) -> tuple[tuple[Arithmetic, ...], Mapping[str, Choice]]:
    """A menu on which the arithmetic of every one of these runs stands, number 0 is bf16, and each
    run's choice by its name.

    Raises ValueError for a run that computes in f32 or with delayed scaling, whose state lives
    where the choice is.
    """
    cells = {name: _cells(segment) for name, segment in runs.items()}
    used = dict.fromkeys(
        arithmetic for by_unit in cells.values() for arithmetic in by_unit.values()
    )
    for unfit in ("f32", "fp8_delayed"):
        if any(arithmetic.recipe == unfit for arithmetic in used):
            raise ValueError(
                f"a GEMM has the recipe {unfit}, expected one that can be chosen while the program "
                "runs, such as fp8_current"
            )
    menu = list(dict.fromkeys([BF16, *filter(_is_quantized, used)]))
    return tuple(menu), {
        name: _numbered(by_unit, menu, n_layers) for name, by_unit in cells.items()
    }


def _different(cells: Mapping[Unit, Arithmetic], others: Mapping[Unit, Arithmetic]) -> list[Unit]:
    """The GEMMs that the two compute in different ways."""
    return [
        unit
        for unit, arithmetic in cells.items()
        if gemm_key(unit.gemm, arithmetic) != gemm_key(unit.gemm, others[unit])
    ]


def _cells(segment: Segment) -> dict[Unit, Arithmetic]:
    """The arithmetic of every GEMM of every block."""
    ends = {span.first: span.last for span in segment.spans}
    return {
        Unit(block, projection, gemm): arithmetic
        for first, projection, gemm, arithmetic in segment.cells()
        for block in range(first, ends[first] + 1)
    }


def _is_quantized(arithmetic: Arithmetic) -> bool:
    return features(*arithmetic) is not None


def _numbered(
    cells: Mapping[Unit, Arithmetic], menu: Sequence[Arithmetic], n_layers: int
) -> Choice:
    """The number of every GEMM's arithmetic on the menu; 0 if it is not quantized."""
    choice = np.zeros((n_layers, len(PROJECTIONS), len(GEMMS)), np.int32)
    for unit, arithmetic in cells.items():
        choice[unit.place] = menu.index(arithmetic) if _is_quantized(arithmetic) else 0
    return choice


def _without_ingredient(arithmetic: Arithmetic, name: str) -> Arithmetic | None:
    """The arithmetic without an ingredient; None if it does not have it."""
    parts = features(*arithmetic)
    if parts is None:
        return None
    if name == SCALE_FORMAT:
        if parts.family != "nvfp4" or parts.row_scaled_activation or parts.nvfp4_4over6 != "none":
            return None
        return Arithmetic(
            "mxfp4",
            Switches(
                stochastic_rounding=parts.stochastic_rounding,
                rht=parts.rht,
                weight_scaling=parts.weight_scaling,
                block_size=parts.block_size,
                nan=parts.nan,
            ),
        )
    has = {
        "rht": parts.rht,
        "sr": parts.stochastic_rounding,
        "2d": parts.weight_scaling == "2d" and parts.block_scaled,
    }[name]
    if not has:
        return None
    without = {
        key: value
        for key, value in arithmetic.switches.stated().items()
        if not (name == "sr" and key == "sr_bits")
    }
    return Arithmetic(arithmetic.recipe, Switches(**{**without, **INGREDIENTS[name]}))
