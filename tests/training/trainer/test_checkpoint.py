"""A run that is killed goes on to the bit; what a crash tears is found; what another run made is
refused.
"""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.overrides import Override
from training.spec import Data, Model, RunSpec, Schedule
from training.switches import Switches
from training.trainer import step as step_module
from training.trainer.checkpoint import Checkpointing, CheckpointRefusedError, Checkpoints
from training.trainer.data import Corpus
from training.trainer.loop import train
from training.trainer.run import TrainingRun

ROOT = Path(__file__).parents[3]
SPEC = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=32),
    data=Data(source="text", path="given", sequence_length=16, batch_size=2),
    schedule=Schedule(steps=200, warmup_steps=2, learning_rate=1e-2),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
# Rounds stochastically, and has one projection whose scales come from its past.
KILLED = replace(SPEC, overrides=(Override(recipe="fp8_delayed", projections=("down",)),))
CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_checkpoint import KILLED, corpus
from training.trainer.checkpoint import Checkpointing
from training.trainer.loop import train
folder, recorded, pause = sys.argv[2:]
plan = Checkpointing(folder=Path(folder), every_seconds=None, every_steps=3, resume_at_most=int(recorded))
for step in train(KILLED, corpus(), checkpointing=plan):
    print(step.step, step.loss.hex(), step.param_norm.hex(), flush=True)
    time.sleep(float(pause))
"""  # noqa: E501
STATE: dict[str, Any] = {
    "w": jnp.arange(4096, dtype=jnp.float32),
    "moments": (jnp.int32(7), jnp.full((3, 5), jnp.nan)),
    "none": jnp.zeros((2, 0)),
}
IDENTITY = {"recipe": "nvfp4", "threads": "1"}


def corpus() -> Corpus:
    tokens = (np.arange(4000) ** 2 % 13).astype(np.uint8)
    return Corpus(
        train=tokens[:3500], validation=tokens[3500:], largest=12, digest="d", description="squares"
    )


def lines_of(step) -> list[str]:
    return [str(step.step), step.loss.hex(), step.param_norm.hex()]


def killed(folder: Path, recorded: int, kill_after: int) -> list[list[str]]:
    """The lines that a training process printed, a step each, until it was killed after
    `kill_after` of them and its first checkpoint.
    """
    arguments = [str(Path(__file__).parent), str(folder), str(recorded), "0.03"]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        lines = []
        for line in child.stdout:
            lines.append(line.split())
            if len(lines) >= kill_after and list(folder.glob("*/complete.json")):
                child.send_signal(signal.SIGKILL)
                break
        lines += [line.split() for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -signal.SIGKILL
    return lines


def test_a_run_killed_at_any_moment_goes_on_as_if_it_had_not_been(tmp_path):
    # not above: the killed process imports this file, and needs no database
    from tests.conftest import some

    folder = tmp_path / "run"
    uninterrupted = [lines_of(step) for step in train(KILLED, corpus())]
    recorded: list[list[str]] = []
    starts = []
    for kill_after in (*np.random.default_rng(2).integers(10, 30, some(20) // 2), None):
        if kill_after:
            lines = killed(folder, len(recorded), kill_after)
        else:
            plan = Checkpointing(
                folder=folder, every_seconds=None, every_steps=3, resume_at_most=len(recorded)
            )
            lines = [lines_of(step) for step in train(KILLED, corpus(), checkpointing=plan)]
        start = int(lines[0][0])
        starts.append(start)
        assert start <= len(recorded)
        assert lines == uninterrupted[start : start + len(lines)]
        recorded = recorded[:start] + lines
    assert recorded == uninterrupted
    assert starts[0] == 0 < starts[1]
    with pytest.raises(CheckpointRefusedError, match="seed is 3 and was 0"):
        next(train(replace(KILLED, seed=3), corpus(), checkpointing=Checkpointing(folder=folder)))


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        ({"head_dim": 12, "qk_norm": True, "tied_embeddings": False}, {"optimizer": "muon"}),
        ({}, {"decay_steps": 4}),
    ],
    ids=["heads_and_muon", "stable"],
)
def test_models_and_schedules_resume_to_the_bit(model, schedule, tmp_path):
    spec = replace(
        SPEC,
        model=replace(SPEC.model, **model),
        schedule=replace(SPEC.schedule, steps=9, **schedule),
    )
    uninterrupted = [lines_of(step) for step in train(spec, corpus())]
    plan = Checkpointing(folder=tmp_path, every_seconds=None, every_steps=3)
    started = train(spec, corpus(), checkpointing=plan)
    first = [lines_of(step) for step in islice(started, 7)]
    del started  # which ends it
    rest = [
        lines_of(step)
        for step in train(spec, corpus(), checkpointing=replace(plan, resume_at_most=7))
    ]
    assert first == uninterrupted[:7]
    assert 0 < 9 - len(rest) <= 6
    assert rest == uninterrupted[-len(rest) :]
    plain = [
        lines_of(step)
        for step in train(replace(SPEC, schedule=replace(SPEC.schedule, steps=9)), corpus())
    ]
    assert plain != uninterrupted


def test_a_run_that_is_resumed_uses_the_program_of_its_start(tmp_path):
    plan = Checkpointing(folder=tmp_path, every_seconds=None, every_steps=3)
    spec = replace(SPEC, schedule=replace(SPEC.schedule, steps=8))
    block: Any = step_module.block
    assert len(list(train(spec, corpus(), checkpointing=plan))) == 8
    programs = block._cache_size()
    assert next(train(spec, corpus(), checkpointing=plan)).step >= 3
    assert block._cache_size() == programs


def test_a_run_is_resumed_across_the_step_of_an_override(tmp_path, monkeypatch):
    save = Checkpoints.save
    # none is skipped
    monkeypatch.setattr(
        Checkpoints,
        "save",
        lambda checkpoints, step, state: (
            save(checkpoints, step, state) or checkpoints._writing.result()
        ),
    )
    late = (
        Override(projections=("down",), gemms=("wgrad",), recipe="bf16", from_step=4),
        Override(projections=("gate",), recipe="mxfp8", from_step=7),
    )
    spec = replace(SPEC, overrides=late, schedule=replace(SPEC.schedule, steps=10))
    uninterrupted = [lines_of(step) for step in train(spec, corpus())]
    plan = Checkpointing(folder=tmp_path, every_seconds=None, every_steps=3)
    assert [lines_of(step) for step in train(spec, corpus(), checkpointing=plan)] == uninterrupted
    for recorded, start in ((9, 9), (8, 6), (5, 3)):  # after both steps, between them, before them
        resumed_at = Checkpointing(folder=tmp_path, every_seconds=None, resume_at_most=recorded)
        assert [
            lines_of(step) for step in train(spec, corpus(), checkpointing=resumed_at)
        ] == uninterrupted[start:]
    with pytest.raises(CheckpointRefusedError, match=r"overrides is .*mxfp8.* and was .*bf16"):
        next(
            train(
                replace(spec, overrides=late[1:]),
                corpus(),
                checkpointing=Checkpointing(folder=tmp_path),
            )
        )


def test_a_run_with_another_history_does_not_resume_from_this_one(tmp_path):
    plan = Checkpointing(folder=tmp_path, every_seconds=None, every_steps=3)
    spec = replace(
        SPEC,
        recipe="fp8_delayed",
        schedule=replace(SPEC.schedule, steps=5),
        switches=Switches(amax_history_len=4),
    )
    first = [lines_of(step) for step in train(spec, corpus(), checkpointing=plan)]
    assert [lines_of(step) for step in train(spec, corpus(), checkpointing=plan)] == first[3:]
    with pytest.raises(CheckpointRefusedError, match=r"switches\.amax_history_len is 5 and was 4"):
        list(
            train(
                replace(spec, switches=Switches(amax_history_len=5)), corpus(), checkpointing=plan
            )
        )


def saved(folder: Path, *steps: int) -> None:
    checkpoints = Checkpoints(Checkpointing(folder=folder), IDENTITY)
    for step in steps:
        checkpoints.save(step, jax.tree.map(lambda x, step=step: x + x.dtype.type(step), STATE))
    checkpoints.close()


def resumed(folder: Path, **plan):
    checkpoints = Checkpoints(Checkpointing(folder=folder, **plan), IDENTITY)
    step, state = checkpoints.resume(STATE)
    checkpoints.close()
    return step, state


def test_the_newest_three_are_kept_and_hold_every_bit(tmp_path):
    saved(tmp_path, 10, 20, 30, 40)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{step:012d}" for step in (20, 30, 40)
    ]
    step, state = resumed(tmp_path)
    assert step == 40
    np.testing.assert_array_equal(state["w"], STATE["w"] + 40)
    assert state["moments"][0].dtype == jnp.int32
    assert int(state["moments"][0]) == 47
    assert np.isnan(state["moments"][1]).all()
    assert state["none"].shape == (2, 0)


def test_without_a_checkpoint_a_run_starts_at_its_beginning(tmp_path):
    assert resumed(tmp_path / "new") == (0, STATE)


def test_what_is_newer_than_the_record_is_not_used_and_not_kept(tmp_path):
    saved(tmp_path, 10, 20, 30)
    step, state = resumed(tmp_path, resume_at_most=29)
    assert step == 20
    np.testing.assert_array_equal(state["w"], STATE["w"] + 20)
    assert resumed(tmp_path)[0] == 20
    assert resumed(tmp_path, resume_at_most=5) == (0, STATE)
    assert not list(tmp_path.iterdir())


def test_whatever_file_is_torn_no_other_numbers_come_back(tmp_path):
    """Every file of the newest checkpoint deleted, cut short or with one bit turned: the one before
    is used.
    """
    saved(tmp_path / "whole", 10, 20)
    files = sorted(
        path.relative_to(tmp_path / "whole")
        for path in (tmp_path / "whole" / f"step-{20:012d}").rglob("*")
        if path.is_file()
    )
    for number, name in enumerate(files):
        for how in ("delete", "truncate", "turn"):
            folder = tmp_path / f"{number}-{how}"
            subprocess.run(["cp", "-r", tmp_path / "whole", folder], check=True)
            content = bytearray((folder / name).read_bytes())
            if how == "delete":
                (folder / name).unlink()
            elif how == "truncate":
                (folder / name).write_bytes(content[: len(content) // 2])
            elif content:
                content[len(content) // 2] ^= 1
                (folder / name).write_bytes(content)
            step, state = resumed(folder)
            assert step == (20 if how == "turn" and not content else 10)
            np.testing.assert_array_equal(state["w"], STATE["w"] + step)
            assert int(state["moments"][0]) == 7 + step


def test_a_folder_half_written_is_no_checkpoint(tmp_path):
    saved(tmp_path, 10)
    (tmp_path / f"step-{20:012d}.orbax-checkpoint-tmp").mkdir()
    (tmp_path / f"step-{30:012d}").mkdir()
    assert resumed(tmp_path)[0] == 10
    assert [path.name for path in tmp_path.iterdir()] == [f"step-{10:012d}"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    saved(tmp_path, 10)
    checkpoints = Checkpoints(
        Checkpointing(folder=tmp_path), IDENTITY | {"threads": "2", "code_sha256": "abc"}
    )
    with pytest.raises(
        CheckpointRefusedError,
        match=r"step 10 .* code_sha256 is abc and was None, threads is 2 and was 1;",
    ) as raised:
        checkpoints.resume(STATE)
    assert raised.value.code == "CHECKPOINT_REFUSED"
    checkpoints.close()
    assert resumed(tmp_path)[0] == 10  # and it is still there


def test_time_decides_too(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr("training.trainer.checkpoint.time.monotonic", lambda: now)
    checkpoints = Checkpoints(Checkpointing(folder=tmp_path, every_seconds=60), IDENTITY)
    assert not checkpoints.due(1000)
    now = 160.0
    assert checkpoints.due(1001)
    checkpoints.save(1001, STATE)
    assert not checkpoints.due(1002)
    checkpoints.close()
    never = Checkpoints(Checkpointing(folder=tmp_path, every_seconds=None), IDENTITY)
    now = 1e9
    assert not never.due(1002)


def test_a_disk_that_is_full_does_not_end_the_run(tmp_path, caplog):
    checkpoints = Checkpoints(Checkpointing(folder=tmp_path / "run"), IDENTITY)
    (tmp_path / "run").rmdir()
    (tmp_path / "run").write_text("a file where the folder was")
    checkpoints.save(5, STATE)
    checkpoints.close()
    assert "the checkpoint of step 5 was not written" in caplog.text


def test_a_plan_checks_itself(tmp_path):
    with pytest.raises(
        ValueError, match=r"checkpointing\.every_steps is 0, expected a number above 0"
    ):
        Checkpointing(folder=tmp_path, every_steps=0)
    assert json.dumps(Checkpointing(folder=tmp_path).every_seconds) == "60.0"


def test_a_run_with_remat_resumes_to_the_bit_where_other_blocks_are_stacked(tmp_path):
    """The first blocks of three are one loop, and from step 4 on only two of them."""
    late = Override(blocks=("last 1",), projections=("down",), recipe="fp8_current", from_step=4)
    model, schedule = (
        replace(SPEC.model, n_layers=3),
        replace(SPEC.schedule, steps=8, validation_every=0),
    )
    spec = replace(
        SPEC, recipe="bf16", model=model, schedule=schedule, overrides=(late,), remat=True
    )
    run = TrainingRun(spec, corpus(), fast_bf16=True)
    assert [decoder.groups for decoder in run._models.values()] == [((0, 3),), ((0, 2), (2, 1))]
    state = run.state
    for each in run._models.values():
        run._stack(each)
        jax.tree.map(np.testing.assert_array_equal, run.state, state)
    uninterrupted = list(train(spec, corpus()))
    plan = Checkpointing(folder=tmp_path, every_seconds=None, every_steps=3)
    started = train(spec, corpus(), checkpointing=plan)
    first = [lines_of(step) for step in islice(started, 7)]
    del started  # which ends it
    rest = [
        lines_of(step)
        for step in train(spec, corpus(), checkpointing=replace(plan, resume_at_most=7))
    ]
    assert first + rest[-1:] == [lines_of(step) for step in uninterrupted]
    assert 0 < 8 - len(rest) <= 6
    plain = [
        step.loss for step in islice(train(replace(spec, remat=False, overrides=()), corpus()), 4)
    ]
    np.testing.assert_allclose([step.loss for step in uninterrupted[:4]], plain, rtol=1e-4)
