"""A batch shared by two devices: a process of its own, because the number of devices is fixed when
jax starts.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from training.trainer.checkpoint import Checkpointing
from training.trainer.data import Corpus
from training.trainer.loop import train
from training.spec import Data, Model, RunSpec, Schedule

tokens = (np.arange(4000) ** 2 % 13).astype(np.uint8)
corpus = Corpus(train=tokens[:3000], validation=tokens[3000:], largest=12, digest="d", description="squares")
one = RunSpec(
    recipe="f32", engine="emulated", model=Model(vocab_size=16, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=32),
    data=Data(source="text", path="given", sequence_length=16, batch_size=4),
    schedule=Schedule(steps=4, warmup_steps=1, validation_every=4),
    layer_policy="mlp_only", seed=0, replicate=0, devices=1, gradient_accumulation=2,
)
two = replace(one, devices=2, gradient_accumulation=1)
for side_by_side, in_turn in zip(train(two, corpus), train(one, corpus), strict=True):
    for name in ("loss", "lm_loss", "grad_norm", "param_norm", "update_norm", "tokens"):
        np.testing.assert_allclose(getattr(side_by_side, name), getattr(in_turn, name), rtol=1e-5)
    if in_turn.validation_loss is not None:
        np.testing.assert_allclose(side_by_side.validation_loss, in_turn.validation_loss, rtol=1e-5)
    np.testing.assert_allclose(side_by_side.layer_grad_norms, in_turn.layer_grad_norms, rtol=1e-4)

nvfp4 = replace(two, recipe="nvfp4", schedule=replace(two.schedule, statistics_every=1, validation_every=0))
plan = Checkpointing(folder=Path(sys.argv[1]), every_seconds=None, every_steps=2)
whole, again = list(train(nvfp4, corpus, checkpointing=plan)), list(train(nvfp4, corpus, checkpointing=plan))
assert [step.step for step in again] == [2, 3], again
assert [step.loss for step in again] == [step.loss for step in whole[2:]]
assert all(10 < step.layers[4][3] < 30 for step in whole), "the SNR of x at the gate, in dB"
"""  # noqa: E501


def test_two_devices_share_a_batch_as_two_pieces_do(tmp_path):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run")], cwd=ROOT, env=environment, check=True
    )
