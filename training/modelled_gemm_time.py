"""What the GEMMs of a run's linear layers take, modelled from their sizes and the peak rates of the
formats.

    time = sum over blocks, linear layers, GEMMs and steps of inputs x outputs / rate of the format
    there

The rates are dense peaks relative to bf16: 1 : 2 : 4 for bf16 : FP8 : FP4 on a GB200 (arXiv
2509.25149). The logits and attention itself, which no recipe changes, are no part of it.

Can fail: quantizing takes time that is not here, and small GEMMs reach no peak. It is a share of a
part of a step, never a speed of training. Standard library only, like `training.spec`.
"""

from collections.abc import Mapping
from itertools import pairwise

from training.gemm_sizes import linear_sizes
from training.spec import ArmSpec, JobSpec, Model
from training.step_values import PROJECTIONS

GB200: Mapping[str, float] = {"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}


def weights(model: Model) -> dict[str, int]:
    """Inputs times outputs of each linear layer of a block, in the order of PROJECTIONS."""
    sizes = linear_sizes(
        model.d_model, model.d_ff, model.head_size, (model.n_heads, model.n_kv_heads)
    )
    return {name: sizes[name][0].value * sizes[name][1].value for name in PROJECTIONS}


def rate(recipe: str, rates: Mapping[str, float] = GB200) -> float:
    """The rate of a recipe's GEMMs relative to bf16. Raises ValueError for one whose format is not
    among the rates.
    """
    family = next((name for name in ("fp4", "fp8") if name in recipe), recipe)
    if family not in rates:
        raise ValueError(
            f"no throughput is known for recipe {recipe!r}, expected one of {', '.join(rates)}"
        )
    return rates[family]


def gemm_time(spec: JobSpec, arm: ArmSpec, rates: Mapping[str, float] = GB200) -> float:
    """The GEMM time of an arm's run as a share of that in bf16 everywhere. Raises ValueError for a
    recipe without a rate.
    """
    segments = spec.run_of(arm, 0).segments
    starts = [*(segment.first_step for segment in segments), spec.schedule.steps]
    sizes, total = weights(spec.model), 0.0
    for segment, (start, end) in zip(segments, pairwise(starts), strict=True):
        blocks = {span.first: span.last - span.first + 1 for span in segment.spans}
        total += (end - start) * sum(
            blocks[first] * sizes[projection] / rate(arithmetic.recipe, rates)
            for first, projection, _, arithmetic in segment.cells()
        )
    return total / (spec.schedule.steps * spec.model.n_layers * 3 * sum(sizes.values()))
