"""The cases of `experiments.why`: what is compared, which faults are planted where, and the seed
and checkpoint of each case.

No two cases share the random numbers of a fork but a planted case and the healthy one of its seed
and step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from experiments.why_faults import MARK
from training.spec import Data, Model

DATA = Data(batch_size=4, sequence_length=64)
STEPS, FORKS_AT, FORK_STEPS, PARENTS, SEEDS = 400, tuple(range(220, 301, 10)), 100, 3, 7
ROUND = SEEDS * len(FORKS_AT)  # planted cases, and as many healthy ones
ROUNDS = 2  # the second has other seeds, and only the faults that the full runs of the first showed
RECIPE_CASES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is compared: a model, and the arithmetic of baseline and candidate. `folder` keeps the
    runs of the baseline.
    """

    settings: str
    model: Model
    baseline: Mapping[str, Any]
    candidate: Mapping[str, Any]
    folder: str


_SMALL = Model(d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=192)
_SIZES = f"{DATA.batch_size} x {DATA.sequence_length} tokens, {PARENTS} parents"
PLANTED = Trial(
    settings=f"0.1M x {STEPS}, {_SIZES}",
    model=_SMALL,
    baseline={"recipe": "nvfp4"},
    candidate={"recipe": "nvfp4", "switches": MARK},
    folder="parents",
)
LARGER = replace(
    PLANTED,
    settings=f"0.4M x {STEPS}, {_SIZES}",
    model=Model(d_model=96, n_layers=3, n_heads=3, n_kv_heads=1, d_ff=288),
    folder="larger",
)
RECIPES = Trial(
    settings=f"0.1M x {STEPS}, {_SIZES}, nvfp4 against fp8_current",
    model=_SMALL,
    baseline={"recipe": "fp8_current"},
    candidate={"recipe": "nvfp4"},
    folder="nvfp4 against fp8_current",
)


def _layers(model: Model) -> tuple[str, ...]:
    return tuple(
        f"{block}.{projection}"
        for block in range(model.n_layers)
        for projection in ("gate", "up", "down")
    )


_LAYERS = _layers(_SMALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedCase:
    """A fault of a kind in some units, or none; the seed of the runs, and the step of their
    checkpoint.
    """

    kind: str
    units: tuple[str, ...]
    seed: int
    step: int

    @property
    def name(self) -> str:
        """Such as `mxfp4 0.up.fprop seed 3 step 240`."""
        return " ".join([self.kind, *self.units, f"seed {self.seed} step {self.step}"])


def units_of(layers: Sequence[str], *gemms: str) -> tuple[str, ...]:
    """These GEMMs of these layers."""
    return tuple(f"{layer}.{gemm}" for layer in layers for gemm in gemms)


def _single(*names: str) -> list[tuple[str, ...]]:
    return [(name,) for name in names]


_EVERYTHING = ("fprop", "dgrad", "wgrad")
_DOWN = ("0.down", "1.down")
# Where each kind is planted, in this order. A kind without a visible effect in one layer is planted
# in more of them.
PLANTS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "clipped blocks": _single(
        "1.down.fprop", "0.gate.fprop", "0.down.fprop", "1.up.fprop", "1.gate.fprop", "0.up.fprop"
    ),
    "zeroed gradient": _single(
        "0.down.dgrad", "1.up.dgrad", "1.down.dgrad", "0.up.dgrad", "1.gate.dgrad", "0.gate.dgrad"
    ),
    "stale amax": _single(
        "1.gate.fprop", "0.down.fprop", "1.down.fprop", "0.up.fprop", "1.up.fprop", "0.gate.fprop"
    ),
    "mxfp4": [
        units_of(_LAYERS, "fprop"),
        units_of(["1.down"], *_EVERYTHING),
        units_of(_DOWN, *_EVERYTHING),
    ],
    "blocks of 128": [
        units_of(_LAYERS, "fprop"),
        units_of(["0.gate"], *_EVERYTHING),
        units_of(_DOWN, *_EVERYTHING),
    ],
    "scale order": [units_of(_LAYERS, "fprop"), *_single("1.down.fprop", "0.down.fprop")],
    "no stochastic rounding": [
        units_of(_LAYERS, "dgrad", "wgrad"),
        units_of(["1.up"], "dgrad", "wgrad"),
    ],
    "no rotation": [units_of(_LAYERS, "wgrad"), units_of(["1.down"], "wgrad")],
    "1D weights": [units_of(_LAYERS, "fprop", "dgrad"), units_of(["0.down"], "fprop", "dgrad")],
}
_VISIBLE = ("clipped blocks", "zeroed gradient", "stale amax", "scale order")
TRIES = 2  # seeds without a visible effect after which a place is left out


def cases(trial: Trial) -> Iterator[PlantedCase]:
    """Planted and healthy cases in turn, so that every kind has some early."""
    for case in _larger_cases() if trial is LARGER else (*_small_cases(), *_double_cases()):
        yield healthy(case)
        yield case


def healthy(case: PlantedCase) -> PlantedCase:
    """The case without its fault."""
    return replace(case, kind="healthy", units=())


def _small_cases() -> Iterator[PlantedCase]:
    for number in range(ROUNDS * ROUND):
        own_round, place = divmod(number, ROUND)
        kinds = list(PLANTS) if own_round == 0 else list(_VISIBLE)
        kind, places = kinds[place % len(kinds)], PLANTS[kinds[place % len(kinds)]]
        seed, step = SEEDS * own_round + place % SEEDS, FORKS_AT[place // SEEDS]
        yield PlantedCase(
            kind=kind, units=places[(place // len(kinds)) % len(places)], seed=seed, step=step
        )


def _larger_cases() -> Iterator[PlantedCase]:
    """Visible faults of one GEMM in every layer, with seeds that the smaller model does not
    have.
    """
    return _visible_cases([(layer,) for layer in _layers(LARGER.model)], SEEDS * ROUNDS)


def _double_cases() -> Iterator[PlantedCase]:
    """Visible faults of two GEMMs of different layers at once, with seeds of their own."""
    return _visible_cases(list(combinations(_LAYERS, 2)), SEEDS * (ROUNDS + 1))


def _visible_cases(places: Sequence[tuple[str, ...]], first_seed: int) -> Iterator[PlantedCase]:
    """Each visible fault in each of these layers or pairs of them."""
    for number in range(len(_VISIBLE) * len(places)):
        kind = _VISIBLE[number % len(_VISIBLE)]
        # neither 9 nor 15 has a factor 2
        layers = places[(number // len(_VISIBLE) * 4 + number % len(_VISIBLE)) % len(places)]
        gemm = "dgrad" if kind == "zeroed gradient" else "fprop"
        yield PlantedCase(
            kind=kind,
            units=units_of(layers, gemm),
            seed=first_seed + number % SEEDS,
            step=FORKS_AT[number // SEEDS],
        )
