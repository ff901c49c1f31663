"""Named mixes: one recipe in the forward product, another in both products of the backward pass.

What it answers: which arithmetic is "nvfp4_fwd_mxfp8_bwd"?

A mix is a short name of an arm in a job file, for engine emulated. The job holds it written out, as
the forward recipe with an override that sets dgrad and wgrad of the layers that the job quantizes.
So its label says what is done, such as "nvfp4+mxfp8@dgrad,wgrad".

The assumption that can fail: a user's framework quantizes the backward copies from the bfloat16
tensors, as here. Transformer Engine's factory mxfp8_fwd_nvfp4_bwd makes the weight of dgrad from
the MXFP8 codes of the forward pass.

Source: Transformer Engine main (2.21.0-dev0), pytorch/custom_recipes/quantizer_factory_zoo.py; its
pull request 1970 for NVFP4 forward and MXFP8 backward. Standard library only, like `training.spec`.
"""

from collections.abc import Collection, Mapping

from training.overrides import Override
from training.rules import Recipe
from training.step_values import PROJECTIONS

MIXES: Mapping[str, tuple[Recipe, Recipe]] = {
    "nvfp4_fwd_mxfp8_bwd": ("nvfp4", "mxfp8"),
    "mxfp8_fwd_nvfp4_bwd": ("mxfp8", "nvfp4_1d_weights"),
}
"""The forward and the backward recipe."""


def forward_of(recipe: str) -> str:
    """The recipe of the forward product of a mix; any other recipe as it is."""
    return MIXES[recipe][0] if recipe in MIXES else recipe


def backward_of(mix: str, quantized: Collection[str], blocks: tuple[int, int] | None) -> Override:
    """The override that makes the backward pass of a mix, of these projections in the blocks from
    first to last; None means all blocks.
    """
    projections = tuple(name for name in PROJECTIONS if name in quantized)
    return Override(
        blocks=() if blocks is None else (f"{blocks[0]}-{blocks[1]}",),
        projections=() if projections == PROJECTIONS else projections,
        gemms=("dgrad", "wgrad"),
        recipe=MIXES[mix][1],
    )
