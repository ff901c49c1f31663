"""The chain's entropy, by another route; and a trainer that comes near it and never below."""

from dataclasses import replace

import numpy as np

from training.spec import Data, Model, RunSpec, Schedule
from training.trainer.data import load
from training.trainer.loop import train
from training.trainer.markov import SYMBOLS, entropy_rate, tokens, transitions


def test_entropy_rate_is_what_the_tokens_themselves_lose_under_the_true_model():
    sample = tokens().reshape(512, -1).astype(int)
    before, last, following = sample[:, :-2], sample[:, 1:-1], sample[:, 2:]
    loss = -np.log(transitions()[before, last, following])
    assert abs(loss.mean() - entropy_rate()) < 5 * loss.std() / np.sqrt(loss.size)
    assert 0 < entropy_rate() < np.log(SYMBOLS)


def test_training_comes_near_the_entropy_and_never_below_it():
    spec = RunSpec(
        recipe="fp8_current",
        engine="emulated",
        model=Model(vocab_size=16, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=64),
        data=Data(source="markov", sequence_length=64, batch_size=16),
        schedule=Schedule(steps=300, warmup_steps=20, learning_rate=1e-2),
        layer_policy="mlp_only",
        seed=0,
        replicate=0,
        devices=1,
    )
    corpus = load(spec.data)
    assert f"{entropy_rate():.5f} nats" in corpus.description
    late = [step.lm_loss for step in train(spec, corpus)][-100:]
    assert entropy_rate() - 4 * np.std(late) / 10 < np.mean(late) < entropy_rate() + 0.5
    assert load(replace(spec.data)).digest == corpus.digest
