"""The limits of a specification, each at its value: allowed there, refused beyond it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from training import rules
from training.command import Command, check_name, check_revision, check_value
from training.later_recipe import LaterRecipe
from training.overrides import Override
from training.rules import SpecError
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule, ShortReruns
from training.switches import Switches

JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="fp8_current"),
    candidates=(ArmSpec(recipe="nvfp4"),),
    model=Model(d_model=32, n_layers=80, n_heads=1, n_kv_heads=1, d_ff=32),
    schedule=Schedule(steps=100, warmup_steps=2),
)
RUN = next(JOB.runs())[1]
EXTERNAL = replace(JOB, engine="external")
INF, NAN = float("inf"), float("nan")
EXACT = 2**53


def _arm(**changes: Any) -> JobSpec:
    return replace(JOB, candidates=(ArmSpec(recipe="nvfp4", **changes),))


def _overrides(number: int) -> JobSpec:
    return _arm(overrides=tuple(Override(blocks=(at,), recipe="bf16") for at in range(number)))


def _starts(number: int) -> JobSpec:
    by_turns = ("bf16", "mxfp8") * number
    return _arm(
        overrides=tuple(Override(recipe=by_turns[at], from_step=1 + at) for at in range(number))
    )


def _schedule(name: str) -> Callable[[Any], Schedule]:
    return lambda value: Schedule(**{name: value})


# What makes the value, the values that are allowed, and those that are refused.
CASES: dict[str, tuple[Callable[[Any], object], list[Any], list[Any]]] = {
    "model.vocab_size": (lambda v: Model(vocab_size=v), [1, EXACT], [0, EXACT + 1]),
    "model.n_layers": (lambda v: Model(n_layers=v), [1, EXACT], [0, EXACT + 1]),
    "model.d_ff": (lambda v: Model(d_ff=v), [1, EXACT], [0, EXACT + 1]),
    "model.n_heads": (lambda v: Model(n_heads=v), [3], [0, -3]),
    "model.n_kv_heads": (lambda v: Model(n_kv_heads=v), [1], [0, -1]),
    "model.d_model": (lambda v: Model(d_model=v, n_heads=1, n_kv_heads=1), [2], [0, EXACT + 1]),
    "model.rope_theta": (lambda v: Model(rope_theta=v), [1.0], [0.999, NAN, INF]),
    "model.head_dim": (lambda v: Model(head_dim=v), [2], [0, 1]),
    "data.sequence_length": (lambda v: Data(sequence_length=v), [2, EXACT], [1, EXACT + 1]),
    "data.batch_size": (lambda v: Data(batch_size=v), [1, EXACT], [0, EXACT + 1]),
    "data.validation_fraction": (
        lambda v: Data(validation_fraction=v),
        [0.0, 0.999],
        [-1e-9, 1.0, NAN],
    ),
    "schedule.steps": (
        lambda v: Schedule(steps=v, warmup_steps=0),
        [1, EXACT],
        [0, EXACT + 1],
    ),
    **{
        f"schedule.{name}": (_schedule(name), [0], [-1, EXACT + 1])
        for name in ("validation_every", "statistics_every", "weight_decay", "z_loss")
    },
    "schedule.gradients_every": (
        lambda v: Schedule(statistics_every=5, gradients_every=v),
        [0, 5],
        [-5, 4, 6],
    ),
    "schedule.warmup_steps": (
        lambda v: Schedule(steps=10, warmup_steps=v),
        [0, 9],
        [-1, 10],
    ),
    "schedule.decay_steps": (
        lambda v: Schedule(steps=10, warmup_steps=4, decay_steps=v),
        [0, 5],
        [-1, 6],
    ),
    **{
        f"schedule.{name}": (
            _schedule(name),
            [5e-324, 1e308],
            [0.0, -1e-9, INF, NAN],
        )
        for name in ("learning_rate", "clip_norm")
    },
    **{
        f"schedule.{name}": (
            _schedule(name),
            [0.0, math.nextafter(1.0, 0.0)],
            [-1e-9, 1.0, NAN],
        )
        for name in ("beta1", "beta2")
    },
    "schedule.final_fraction": (
        lambda v: Schedule(final_fraction=v),
        [0.0, 1.0],
        [-1e-9, 1.0 + 1e-9, NAN],
    ),
    "schedule.steps that round stochastically": (
        lambda v: rules.check_rounded("emulated", v, 42),
        [2**32 // 42],
        [2**32 // 42 + 1],
    ),
    "arm.replicates": (lambda v: ArmSpec(recipe="nvfp4", replicates=v), [1, 64], [0, 65]),
    "arm.name": (lambda v: ArmSpec(recipe="nvfp4", name=v), ["x", "x" * 64], ["x" * 65]),
    "arm.then.from_step": (
        lambda v: _arm(then=LaterRecipe(recipe="bf16", from_step=v)),
        [1, 99],
        [0, 100],
    ),
    "arm.recipe other": (
        lambda v: replace(EXTERNAL, candidates=(ArmSpec(recipe=f"other:{v}", name="a"),)),
        ["x", "x" * 64],
        ["", " ", "x" * 65],
    ),
    "arm.overrides": (_overrides, [0, 64], [65]),
    "segments of an arm": (_starts, [0, 7], [8]),
    "overrides.from_step": (
        lambda v: Override(recipe="bf16", from_step=v),
        [1, None],
        [0, -1],
    ),
    "switches.margin": (lambda v: Switches(margin=v), [0, 16], [-1, 17]),
    "switches.amax_history_len": (
        lambda v: Switches(amax_history_len=v),
        [1, 65_536],
        [0, 65_537],
    ),
    "switches.block_size": (lambda v: Switches(block_size=v), [16, 128], [8, 15, 17, 256]),
    "short_reruns.runs": (lambda v: ShortReruns(runs=v), [1, 16], [0, 17]),
    "short_reruns.stop_at": (
        lambda v: ShortReruns(stop_at=v),
        [0.4, 0.9],
        [0.4 - 1e-9, 0.9 + 1e-9, NAN],
    ),
    "job.name": (lambda v: replace(JOB, name=v), ["x", "x" * 200], ["", "x" * 201]),
    "job.family": (lambda v: replace(JOB, family=v), [None, "x" * 200], ["", "x" * 201]),
    "job.seed": (lambda v: replace(JOB, seed=v), [0, 2**31 - 1], [-1, 2**31]),
    "job.devices": (lambda v: replace(JOB, devices=v), [1, 8], [0]),
    "job.gradient_accumulation": (
        lambda v: replace(JOB, gradient_accumulation=v),
        [1, 8],
        [0],
    ),
    "job.candidates": (
        lambda v: replace(
            JOB, candidates=tuple(ArmSpec(recipe="nvfp4", name=f"c{at}") for at in range(v))
        ),
        [1, 64],
        [0, 65],
    ),
    "job.keep_checkpoints": (
        lambda v: replace(JOB, keep_checkpoints=tuple(range(1, v + 1))),
        [0, 8],
        [9],
    ),
    "a step of job.keep_checkpoints": (
        lambda v: replace(JOB, keep_checkpoints=(v,)),
        [1, 100],
        [0, 101],
    ),
    "job.keep_first": (lambda v: replace(JOB, keep_first=v), [0, 79], [-1, 80]),
    "job.keep_last": (lambda v: replace(JOB, keep_first=10, keep_last=v), [0, 69], [-1, 70]),
    "run.replicate": (lambda v: replace(RUN, replicate=v), [0, EXACT], [-1, EXACT + 1]),
    "command.parameters": (
        lambda v: Command(launcher="a", parameters={f"p{at}": at for at in range(v)}),
        [0, 64],
        [65],
    ),
    "command.launcher": (
        lambda v: check_name("command.launcher", v, "a name"),
        ["x", "x" * 64],
        ["", "x" * 65],
    ),
    "a value of command.parameters": (
        lambda v: check_value("command.parameters.a", v),
        ["", "x" * 200, 1e308],
        ["x" * 201, INF, NAN],
    ),
    "arm.revision": (
        lambda v: check_revision("arm.revision", "a" * v),
        [40, 64],
        [39, 41, 63, 65],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_is_allowed_at_its_limit_and_refused_beyond_it(name: str) -> None:
    make, allowed, refused = CASES[name]
    for value in allowed:
        make(value)
    for value in refused:
        with pytest.raises(SpecError):
            make(value)
