"""Named mixes: a job holds them written out, and each GEMM gets its recipe."""

import pytest

from training.arithmetic.recipes import layer_recipe, linear_recipe
from training.mixes import MIXES
from training.overrides import GEMMS
from training.rules import SpecError
from training.spec import ArmSpec, Data, JobSpec, Model, Projections, RunSpec, Schedule
from training.step_values import PROJECTIONS
from training.switches import Switches


def job(mix: str = "nvfp4_fwd_mxfp8_bwd", switches: Switches | None = None, **changes) -> JobSpec:
    arm = ArmSpec(recipe=mix, switches=switches or Switches())
    return JobSpec(
        **{
            "name": "a mix",
            "baseline": ArmSpec(recipe="bf16"),
            "candidates": (arm,),
            "model": Model(n_layers=4),
            "schedule": Schedule(steps=100),
        }
        | changes
    )


def recipes(job: JobSpec) -> dict[tuple[int, str], set[str]]:
    """The recipes by the first block of a span and GEMM, of the candidate."""
    run = next(run for arm, run in job.runs() if arm is job.candidates[0])
    assert isinstance(run, RunSpec)
    (segment,) = run.segments
    found: dict[tuple[int, str], set[str]] = {}
    for block, _, gemm, arithmetic in segment.cells():
        found.setdefault((block, gemm), set()).add(arithmetic.recipe)
    return found


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_has_one_recipe_forward_and_another_in_both_backward_products(mix):
    forward, backward = MIXES[mix]
    assert recipes(job(mix)) == {
        (0, "fprop"): {forward},
        (0, "dgrad"): {backward},
        (0, "wgrad"): {backward},
    }


def test_the_job_says_what_is_done_and_keeps_the_name():
    (arm,) = job().candidates
    assert (arm.name, arm.label) == ("nvfp4_fwd_mxfp8_bwd", "nvfp4+mxfp8@dgrad,wgrad")
    again = JobSpec(name="again", baseline=ArmSpec(recipe="bf16"), candidates=(arm,))
    assert again.candidates[0].label == arm.label


def test_it_rounds_as_its_backward_recipe_does():
    assert [job(mix).rounding(job(mix).candidates[0]) for mix in MIXES] == ["nearest", "stochastic"]


def test_what_the_job_leaves_in_bf16_stays_so():
    left = recipes(job(layer_policy="mlp_only"))
    assert {gemm: left[0, gemm] for gemm in GEMMS} == {
        "fprop": {"bf16", "nvfp4"},
        "dgrad": {"bf16", "mxfp8"},
        "wgrad": {"bf16", "mxfp8"},
    }
    kept = recipes(job(keep_first=1, keep_last=1))
    assert {place: names for place, names in kept.items() if names == {"bf16"}}.keys() == {
        (block, gemm) for block in (0, 3) for gemm in GEMMS
    }
    single = job(projections=Projections(out="bf16"))
    assert single.candidates[0].overrides[0].projections == tuple(
        name for name in PROJECTIONS if name != "out"
    )


def test_switches_change_the_forward_recipe():
    (arm,) = job(switches=Switches(nvfp4_4over6="weights")).candidates
    assert arm.name == "nvfp4_fwd_mxfp8_bwd.nvfp4_4over6-weights"
    assert arm.label == "nvfp4+nvfp4_4over6=weights+mxfp8@dgrad,wgrad"
    with pytest.raises(SpecError, match=r"switches.margin is 1, expected nothing on recipe nvfp4"):
        job(switches=Switches(margin=1))


def test_a_layer_takes_the_operands_of_each_gemm_from_its_own_recipe():
    run = next(run for arm, run in job().runs() if arm.name != "bf16")
    layer = layer_recipe(run.segments[0].spans[0].layers[0], fast_bf16=True)
    forward, backward = (linear_recipe(name, fast_bf16=True) for name in ("nvfp4", "mxfp8"))
    assert (layer.fprop_x, layer.fprop_w) == (forward.fprop_x, forward.fprop_w)
    assert (layer.dgrad_g, layer.dgrad_w) == (backward.dgrad_g, backward.dgrad_w)
    assert (layer.wgrad_x, layer.wgrad_g) == (backward.wgrad_x, backward.wgrad_g)


@pytest.mark.parametrize("engine", ["transformer_engine", "maxtext", "external"])
def test_another_engine_has_no_mixes(engine):
    with pytest.raises(SpecError, match=f"a recipe of engine {engine}; mixes need engine: emul"):
        job(engine=engine)


def test_sizes_of_both_recipes_have_to_fit():
    with pytest.raises(SpecError, match="a multiple of 32 for wgrad of query with recipe mxfp8"):
        job(data=Data(sequence_length=48, batch_size=1))
