"""What a job of engine command may say, and which arm a candidate is judged against."""

import json

import pytest
from pydantic import TypeAdapter

from training.command import Command
from training.later_recipe import LaterRecipe
from training.rules import SpecError
from training.spec import ArmSpec, JobSpec, Model, Schedule, ShortReruns
from training.switches import Switches

BASE, HEAD, OTHER = ("a" * 40, "b" * 40, "c" * 64)


LATER = LaterRecipe(recipe="bf16", from_step=300)  # of 300 steps, the last of which is 299


def _arm(recipe="bf16", revision=HEAD, name="head", **more):
    return ArmSpec(recipe=recipe, revision=revision, name=name, **more)


def _job(*candidates, **more):
    asked = {
        "engine": "command",
        "command": Command(launcher="loop", parameters={"layers": 3}),
        "schedule": Schedule(steps=300, warmup_steps=10),
        "baseline": _arm(revision=BASE, name="base"),
    }
    return JobSpec(name="a change", candidates=candidates or (_arm(),), **asked | more)


def test_a_candidate_is_judged_against_the_arm_that_differs_in_one_thing():
    job = _job(
        _arm("nvfp4", name="head-nvfp4"),
        _arm(),
        _arm(revision=BASE, name="new", environment="new"),
        _arm("nvfp4", BASE, "base-nvfp4"),
    )
    assert job.comparisons() == {
        "head-nvfp4": ("head", "recipe"),
        "head": ("base", "revision"),
        "new": ("base", "environment"),
        "base-nvfp4": ("base", "recipe"),
    }
    assert [arm.against for arm in job.candidates] == ["head", "base", "base", "base"]
    named = _job(
        _arm(),
        _arm("nvfp4", name="q"),
        _arm("nvfp4", BASE, "b"),
        _arm("nvfp4", OTHER, "o", against="q"),
    )
    assert named.comparisons()["o"] == ("q", "revision")


@pytest.mark.parametrize(
    ("candidates", "field"),
    [
        ((_arm("nvfp4"),), "candidates"),
        ((_arm(revision=BASE),), "candidates"),
        ((_arm(), _arm("nvfp4", name="q", against="base")), "arm.against"),
        ((_arm(against="head"),), "arm.against"),
        ((_arm(against="nothing"),), "arm.against"),
        ((_arm("nvfp4", HEAD, "x"), _arm("nvfp4", OTHER, "y")), "candidates"),
    ],
)
def test_a_candidate_without_such_an_arm_is_refused(candidates, field):
    with pytest.raises(SpecError) as refused:
        _job(*candidates)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "revision",
    ["", "main", "HEAD", "a" * 39, "A" * 40, "a" * 41, "a" * 40 + "\n", "refs/heads/main"],
)
def test_a_revision_is_a_whole_id(revision):
    with pytest.raises(SpecError) as refused:
        _job(_arm(revision=revision))
    assert refused.value.field == "arm.revision"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"model": Model(d_model=192, n_heads=6)}, "model"),
        ({"layer_policy": "mlp_only"}, "layer_policy"),
        ({"devices": 8}, "devices"),
        ({"schedule": Schedule(steps=300, learning_rate=1.0)}, "schedule.learning_rate"),
        ({"short_reruns": ShortReruns()}, "short_reruns"),
        ({"keep_checkpoints": (10,)}, "keep_checkpoints"),
        ({"command": None}, "command"),
        ({"engine": "emulated"}, "command"),
        ({"baseline": _arm("nvfp4", BASE, "base", switches=Switches(rht=False))}, "arm.recipe"),
        ({"baseline": _arm("nvfp4", BASE, "base", then=LATER)}, "arm.then.from_step"),
    ],
)
def test_what_its_trainer_alone_can_know_is_refused(more, field):
    with pytest.raises(SpecError) as refused:
        _job(**more)
    assert refused.value.field == field


def test_other_engines_have_no_commit():
    for more in ({"revision": HEAD}, {"environment": "new"}, {"against": "x"}):
        with pytest.raises(SpecError):
            JobSpec(
                name="job",
                baseline=ArmSpec(recipe="bf16"),
                candidates=(ArmSpec(recipe="nvfp4", **more),),
            )


def test_its_document_has_what_it_says_and_that_of_other_engines_is_as_before():
    job = _job()
    document = json.loads(json.dumps(job.document()))
    assert document.keys() == {
        "name",
        "baseline",
        "candidates",
        "engine",
        "schedule",
        "seed",
        "command",
    }
    assert document["schedule"] == {"steps": 300, "warmup_steps": 10}
    assert TypeAdapter(JobSpec).validate_python(document) == job
    runs = [run.document() for _, run in job.runs()]
    assert [(run["revision"], run["seed"]) for run in runs] == [(BASE, 0), (HEAD, 0)]
    other = JobSpec(
        name="job", baseline=ArmSpec(recipe="bf16"), candidates=(ArmSpec(recipe="nvfp4"),)
    )
    assert not {"command", "revision", "environment", "against"} & {
        *other.document(),
        *other.document()["baseline"],
        *next(other.runs())[1].document(),
    }


def test_replicates_have_seeds_of_their_own():
    job = _job(_arm(replicates=3), seed=5)
    assert [run.seed for arm, run in job.runs() if arm.name == "head"] == [5, 6, 7]


def test_recipes_of_ones_own_are_allowed():
    assert _job(_arm("other:int4", BASE, "mine")).comparisons() == {"mine": ("base", "recipe")}


def test_the_largest_seed_leaves_room_for_its_replicates():
    largest = 2**31 - 3
    assert [run.seed for _, run in _job(_arm(replicates=3), seed=largest).runs()][-1] == 2**31 - 1
    with pytest.raises(SpecError) as refused:
        _job(_arm(replicates=3), seed=largest + 1)
    assert (refused.value.field, refused.value.value) == ("seed", largest + 1)


def test_an_arm_that_goes_on_with_another_recipe_is_one_of_another_recipe():
    later = LaterRecipe(recipe="bf16", from_step=240)
    spec = _job(
        _arm("nvfp4", HEAD, "nvfp4"),
        _arm("nvfp4", HEAD, "late", then=later),
        baseline=_arm("bf16", HEAD, "base"),
    )
    assert spec.comparisons() == {"nvfp4": ("base", "recipe"), "late": ("base", "recipe")}
    assert spec.labels(spec.candidates[1]) == [(0, "nvfp4"), (240, "bf16")]
