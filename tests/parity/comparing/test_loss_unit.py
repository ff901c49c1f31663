"""Losses in bits: asked for where their source shows it, converted where that is stated."""

import math
from typing import Any

import numpy as np
import pytest

import parity
from parity.comparing.statements import InputError

STEPS = 2000
POLICY: dict[str, Any] = {"planned_steps": STEPS, "recipe": "bf16", "schedule": "decayed"}
Arm = dict[str, np.ndarray]


def _arm(gap: float, unit: float = 1.0, name: str = "loss", **columns: float) -> Arm:
    """Losses that end near 2.5 nats, in this unit (nats a piece)."""
    t = np.arange(STEPS)
    batch = np.random.default_rng(1).normal(0.0, 0.02, STEPS)
    own = np.random.default_rng(7 + round(1e4 * gap)).normal(0.0, 0.002, STEPS)
    loss = 2.5 + 3.0 * np.exp(-t / 100) + batch + own + gap
    return {"step": t, name: loss / unit, **{key: np.exp(loss) for key in columns}}


BITS = math.log(2.0)


def test_losses_stated_in_bits_are_judged_in_nats() -> None:
    nats = parity.compare(_arm(0.0), _arm(0.004), margin="0.0300 nats", **POLICY)
    bits = parity.compare(
        _arm(0.0, BITS), _arm(0.004, BITS), margin="0.0300 nats", loss_unit="bits", **POLICY
    )
    gap, converted = nats.document["gap"], bits.document["gap"]
    assert gap is not None
    assert converted is not None
    assert converted["mean"] == pytest.approx(gap["mean"], rel=1e-6)
    assert (bits.verdict, bits.document["codes"]) == (nats.verdict, nats.document["codes"])
    assert "converted to nats" in str(bits.document["inputs"])


def test_losses_in_bits_by_their_perplexities_are_asked_for_and_not_judged_as_nats() -> None:
    arms = _arm(0.0, BITS, ppl=1.0), _arm(0.004, BITS, ppl=1.0)
    unstated = parity.compare(*arms, margin="0.0300 nats", **POLICY)
    assert (unstated.verdict, unstated.document["codes"][0]) == ("inconclusive", "LOSS_NOT_NATS")
    stated = parity.compare(*arms, margin="0.0300 nats", loss_unit="bits", **POLICY)
    assert "LOSS_NOT_NATS" not in stated.document["codes"]


def test_a_column_that_is_named_as_bits_is_taken_where_it_is_stated_and_asked_for() -> None:
    arms = _arm(0.0, BITS, name="train_bpb"), _arm(0.004, BITS, name="train_bpb")
    named = POLICY | {"columns": {"loss": "train_bpb"}, "margin": "0.0300 nats"}
    with pytest.raises(ValueError, match="no loss column"):
        parity.compare(*arms, **POLICY)
    assert parity.compare(*arms, **named).document["codes"][0] == "LOSS_NOT_NATS"
    converted = parity.compare(*arms, **(named | {"loss_unit": "bits"}))
    assert "LOSS_NOT_NATS" not in converted.document["codes"]


def test_losses_whose_perplexities_show_nats_are_not_converted() -> None:
    arms = _arm(0.0, ppl=1.0), _arm(0.004, ppl=1.0)
    with pytest.raises(InputError, match=r"perplexities .* are nats"):
        parity.compare(*arms, loss_unit="bits", **POLICY)


def test_every_run_of_a_case_is_converted() -> None:
    halves = {key: values[: STEPS // 2] for key, values in _arm(0.001, BITS).items()}
    case = parity.compare(
        _arm(0.0, BITS),
        _arm(0.004, BITS),
        controls=_arm(0.002, BITS),
        shorter_baseline=halves,
        short_reruns={"candidate": [halves]},
        loss_unit="bits",
        **POLICY,
    ).case
    runs = [run for _, _, own in case.arms() for run in own]
    assert len(runs) == 5
    assert {round(float(run.loss[-1]), 1) for run in runs} == {2.5}
