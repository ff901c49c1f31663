"""What makes another run, which no checkpoint of this one may continue, and another pair."""

from dataclasses import replace

import numpy as np
import pytest

from tests.changed import called, indifferent, leaves
from training import device
from training.environment import transformer_engine_installed
from training.overrides import Override
from training.spec import ArmSpec, Data, JobSpec
from training.trainer import identity as identity_module
from training.trainer.checkpoint import Checkpointing, CheckpointRefusedError, Checkpoints
from training.trainer.data import Corpus
from training.trainer.identity import identity, manifest

RULE = Override(recipe="bf16", projections=("down",))
JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="nvfp4", overrides=(RULE,)),
    candidates=(ArmSpec(recipe="bf16"),),
    data=Data(source="text", path="/a/corpus"),
)
RUN = next(run for _, run in JOB.runs())
FACTS = {"code_sha256": "a", "version.jax": "1"}


@pytest.fixture
def corpus():
    return Corpus(train=None, validation=None, largest=1, digest="d", description="")


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    """Facts of the machine and of the arithmetic, which are no fields of a run."""
    machine = device.describe()
    monkeypatch.setattr(device, "describe", lambda: machine)
    monkeypatch.setattr(identity_module, "trainer_facts", lambda _: dict(FACTS))
    monkeypatch.setattr(transformer_engine_installed, "facts", dict)
    monkeypatch.setattr(identity_module, "not_te_parity_of", lambda _: None)
    monkeypatch.setattr(identity_module, "not_te_parity", lambda *_: None)
    monkeypatch.setattr(RUN.__class__, "segments", ())
    monkeypatch.setattr(RUN.__class__, "label", "arm")
    monkeypatch.setattr(identity_module, "phrase", str)


# Engine command has no checkpoints here, and a specification of another engine has none of these.
COMMAND_FIELDS = {"command", "revision", "environment"}


def test_each_field_of_a_run_makes_another_one(corpus):
    assert indifferent(RUN, lambda run: identity(run, corpus)) == COMMAND_FIELDS


def test_each_field_but_those_of_an_arm_makes_another_pair(corpus):
    """The label of the arm is in a key of its own, which confounds no pair."""

    def shared(run):
        facts = manifest(run, corpus)
        return {key: value for key, value in facts.items() if not key.startswith("overrides.")}

    arm_fields = {
        "recipe",
        "switches",
        "overrides",
        "then",
        "seed",
        "replicate",
    }
    arm_parts = {called(path) for path in leaves(RUN) if path[0] in arm_fields}
    assert indifferent(RUN, shared) == arm_parts | COMMAND_FIELDS


def test_data_code_and_libraries_make_another_run(corpus, monkeypatch):
    first = identity(RUN, corpus)
    others = [identity(RUN, replace(corpus, digest="e"))]
    for name in FACTS:
        monkeypatch.setitem(FACTS, name, "other")
        others.append(identity(RUN, corpus))
    assert all(one != other for one, other in zip([first, *others], others, strict=False))


@pytest.mark.parametrize("fact", ["device_class", "threads", "fast_bf16"])
def test_another_machine_makes_another_run(corpus, monkeypatch, fact):
    first, machine = identity(RUN, corpus), device.describe()
    made = {"device_class": "other", "threads": 1234, "fast_bf16": not machine.fast_bf16}
    monkeypatch.setattr(device, "describe", lambda: replace(machine, **{fact: made[fact]}))
    assert {key for key, value in identity(RUN, corpus).items() if first[key] != value} == {fact}


@pytest.mark.parametrize(
    ("differing", "told"), [(1, ""), (3, ""), (4, " and 1 more"), (6, " and 3 more")]
)
def test_three_differences_are_named_and_the_rest_counted(tmp_path, differing, told):
    mine = {f"fact{number}": "mine" for number in range(6)}
    theirs = mine | {f"fact{number}": "theirs" for number in range(differing)}
    plan = Checkpointing(folder=tmp_path)
    saved = Checkpoints(plan, theirs)
    saved.save(5, {"w": np.ones(3)})
    saved.close()
    with pytest.raises(CheckpointRefusedError) as refused:
        Checkpoints(plan, mine).resume({"w": np.ones(3)})
    named = min(differing, 3)
    assert str(refused.value).count(" is mine and was theirs") == named
    assert f"fact{named - 1} is mine and was theirs{told}; expected" in str(refused.value)
