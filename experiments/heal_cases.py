"""The cases of `experiments.heal`: which candidate is healed with which recipe, on which model and
schedule.

The list was committed before any of its runs was trained, and so was the rule of its margins: a
margin is MARGIN_SHARE of the gap that the candidate itself has at its end, the mean over all seeds;
no healed arm is needed to know it. The control has CONTROL_MARGIN. The switches are the fifths of
the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training.later_recipe import GemmScope, LaterRecipe
from training.overrides import Override
from training.rules import Recipe
from training.spec import Data, Model, RunSpec, Schedule

STEPS = 400
SWITCHES = tuple(STEPS * fifth // 5 for fifth in (1, 2, 3, 4))
MARGIN_SHARE = 0.4
CONTROL_MARGIN = 0.01  # of the baseline's loss
REPLICATES = 3  # of each arm of a job; a search sees those of JOB_SEED
JOB_SEED = 0
BASELINE: Mapping[str, Any] = {"recipe": "fp8_current"}
_DATA = Data(source="parity_docs", batch_size=4, sequence_length=64)
_SMALL = Model(d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=192)
_LARGER = Model(d_model=96, n_layers=3, n_heads=3, n_kv_heads=1, d_ff=288)
_COSINE = Schedule(steps=STEPS, learning_rate=4e-3)
_WSD = Schedule(steps=STEPS, learning_rate=4e-3, decay_steps=STEPS // 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is trained: a model and a schedule."""

    name: str
    model: Model
    schedule: Schedule


SMALL_COSINE = Size(name="0.1M cosine", model=_SMALL, schedule=_COSINE)
SMALL_WSD = Size(name="0.1M WSD", model=_SMALL, schedule=_WSD)
LARGER_COSINE = Size(name="0.4M cosine", model=_LARGER, schedule=_COSINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A candidate and the recipe that it goes on with. In all of them every linear layer is
    quantized, attention's too.
    """

    name: str
    size: Size
    candidate: Mapping[str, Any]
    to: Recipe = "bf16"
    gemms: GemmScope = "all"
    is_control: bool = field(default=False)

    def later(self, step: int) -> LaterRecipe:
        """The switch at a step."""
        return LaterRecipe(recipe=self.to, from_step=step, gemms=self.gemms)


CASES = (
    Case(
        name="NVFP4 without rotation, cosine",
        size=SMALL_COSINE,
        candidate={"recipe": "nvfp4_no_rht"},
    ),
    Case(name="NVFP4 without rotation, WSD", size=SMALL_WSD, candidate={"recipe": "nvfp4_no_rht"}),
    Case(name="MXFP4, cosine", size=SMALL_COSINE, candidate={"recipe": "mxfp4"}),
    Case(name="MXFP4 to MXFP8, WSD", size=SMALL_WSD, candidate={"recipe": "mxfp4"}, to="mxfp8"),
    Case(
        name="NVFP4 in attention too, 0.4M, cosine",
        size=LARGER_COSINE,
        candidate={"recipe": "nvfp4"},
    ),
    Case(
        name="NVFP4, forward pass alone, cosine",
        size=SMALL_COSINE,
        candidate={"recipe": "nvfp4"},
        gemms="forward",
    ),
    Case(
        name="NVFP4 without stochastic rounding to FP8, WSD",
        size=SMALL_WSD,
        candidate={"recipe": "nvfp4_no_sr"},
        to="fp8_current",
    ),
    Case(
        name="NVFP4 with 1D weight scales, forward pass alone, WSD",
        size=SMALL_WSD,
        candidate={"recipe": "nvfp4_1d_weights"},
        gemms="forward",
    ),
    Case(
        name="MXFP4 in the backward pass, forward pass healed, WSD",  # nothing that costs is healed
        size=SMALL_WSD,
        candidate={
            "recipe": "mxfp8",
            "overrides": (Override(recipe="mxfp4", gemms=("dgrad", "wgrad")),),
        },
        gemms="forward",
    ),
    Case(
        name="bf16, a control",
        size=SMALL_COSINE,
        candidate={"recipe": "bf16"},
        is_control=True,
    ),
)


def run_of(size: Size, arm: Mapping[str, Any], seed: int, replicate: int) -> RunSpec:
    """A run of an arm."""
    return RunSpec(
        engine="emulated",
        model=size.model,
        data=_DATA,
        schedule=size.schedule,
        layer_policy="all_linears",
        seed=seed,
        replicate=replicate,
        devices=1,
        **arm,
    )
