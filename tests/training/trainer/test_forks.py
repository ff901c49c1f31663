"""A fork goes on from its parent's kept checkpoint as the run would that is trained from step 0."""

from dataclasses import replace

import numpy as np
import pytest

from training import device
from training.forks import Fork
from training.later_recipe import LaterRecipe
from training.overrides import Override
from training.rules import SpecError
from training.spec import Data, Model, RunSpec, Schedule
from training.switches import Switches
from training.trainer.checkpoint import (
    Checkpointing,
    CheckpointNotFoundError,
    kept_steps,
    read_kept,
)
from training.trainer.data import Corpus
from training.trainer.identity import identity
from training.trainer.loop import ForkStart, train
from training.trainer.run import TrainingRun

PARENT = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=32),
    data=Data(source="text", path="given", sequence_length=16, batch_size=2),
    schedule=Schedule(steps=24, warmup_steps=2, learning_rate=1e-2),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
STEP = 15
TOGGLE = Override(recipe="fp8_current", projections=("gate", "down"), from_step=STEP)


def forked(*overrides):
    return replace(PARENT, overrides=(*PARENT.overrides, *overrides))


def corpus() -> Corpus:
    tokens = (np.arange(4000) ** 2 % 13).astype(np.uint8)
    return Corpus(
        train=tokens[:3500], validation=tokens[3500:], largest=12, digest="d", description="squares"
    )


def curve(steps) -> list[list[str]]:
    return [[str(step.step), step.loss.hex(), step.param_norm.hex()] for step in steps]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The parent's checkpoints, and its curve."""
    folder = tmp_path_factory.mktemp("parent")
    plan = Checkpointing(folder=folder, every_seconds=None, every_steps=4, keep=(STEP, 24))
    return folder, curve(train(PARENT, corpus(), checkpointing=plan))


def fork_steps(parent, spec, draw=0, step=STEP):
    fork = Fork(parent=PARENT, step=step, draw=draw)
    run = TrainingRun(spec, corpus(), fast_bf16=device.describe().fast_bf16, fork=fork)
    run.start_from(read_kept(parent[0], step, identity(PARENT, corpus()), run.state))
    return run.steps()


def test_keeping_checkpoints_changes_no_bit_and_they_stay(parent):
    assert parent[1] == curve(train(PARENT, corpus()))
    assert kept_steps(parent[0]) == [STEP, 24]
    # one of those for resuming would be deleted
    assert STEP not in [int(path.name[5:]) for path in parent[0].glob("step-*")]


@pytest.mark.parametrize(
    "toggles",
    [(), (TOGGLE,), (Override(switches=Switches(rht=False), projections=("up",), from_step=STEP),)],
)
def test_a_fork_equals_the_run_from_step_0_to_the_bit(parent, toggles):
    spec = forked(*toggles)
    assert curve(fork_steps(parent, spec)) == curve(train(spec, corpus()))[STEP:]


@pytest.mark.parametrize(("recipe", "gemms"), [("bf16", "all"), ("fp8_current", "forward")])
def test_a_fork_with_a_later_recipe_is_the_run_of_that_arm_also_after_a_kill(
    parent, tmp_path, recipe, gemms
):
    then = LaterRecipe(recipe=recipe, from_step=STEP, gemms=gemms)
    spec = replace(PARENT, then=then)
    whole = curve(train(spec, corpus()))
    plan = Checkpointing(folder=tmp_path / "run", every_seconds=None, every_steps=3)
    start = ForkStart(fork=Fork(parent=PARENT, step=STEP), folder=parent[0])
    killed = train(spec, corpus(), checkpointing=plan, start=start)
    begun = [next(killed) for _ in range(6)]
    del killed
    assert curve(begun) == whole[STEP : STEP + 6]
    recorded = replace(plan, resume_at_most=STEP + 5)
    resumed = curve(train(spec, corpus(), checkpointing=recorded, start=start))
    assert resumed == whole[int(resumed[0][0]) :]
    assert STEP < int(resumed[0][0]) <= STEP + 5
    assert whole[:STEP] == parent[1][:STEP]


def test_a_fork_with_a_draw_differs_from_its_parent_a_little_and_always_alike(parent):
    once, again, other = (curve(fork_steps(parent, PARENT, draw)) for draw in (1, 1, 2))
    assert once == again
    assert once[-1] != other[-1] != parent[1][-1]
    assert abs(float.fromhex(once[-1][1]) - float.fromhex(parent[1][-1][1])) < 0.2


@pytest.mark.parametrize("step", [0, 24, 30])
def test_a_fork_outside_the_run_is_refused(step):
    with pytest.raises(SpecError, match=r"before schedule\.steps = 24"):
        Fork(parent=PARENT, step=step)


def test_a_missing_or_damaged_checkpoint_says_how_to_keep_one(parent, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match=r"keep_checkpoints: \[16\]"):
        next(fork_steps(parent, PARENT, step=16))
    with pytest.raises(CheckpointNotFoundError, match="kept"):
        next(fork_steps((tmp_path / "nowhere", []), PARENT))
