"""`Loop`: rank 0 alone writes, a run without an id is kept on disk, and micro-steps become
optimizer steps.
"""

import logging
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from parity.integrations.loop import Loop

END = {"end": "finished", "message": None}


def test_a_run_without_an_id_is_kept_and_one_line_says_how_to_send_it(spools, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), Loop(name="fp8") as record:
        for step in range(3):
            record.log(step, loss=3.0 - step, grad_norm=0.5)
        record.log(2, validation_loss=2.5)
    rows = [{"loss": 3.0 - step, "grad_norm": 0.5, "step": step} for step in range(3)]
    assert spools("unnamed-fp8") == [[*rows, {"validation_loss": 2.5, "step": 2}, END]]
    assert len(caplog.messages) == 1
    assert f"parity resend {tmp_path / 'unnamed-fp8'} --as-run RUN" in caplog.text


def test_other_ranks_write_nothing_and_are_silent(spools, monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("SLURM_PROCID", "1")
    with caplog.at_level(logging.DEBUG, logger="parity"), Loop(name="fp8") as record:
        record.micro_step(1.0)
        record.log(0)
        record.flush()
    assert not list(tmp_path.iterdir())
    assert not caplog.records


def test_a_rank_that_is_no_number_records_nothing_and_lets_training_go_on(
    spools, monkeypatch, caplog, tmp_path
):
    monkeypatch.setenv("RANK", "first")
    with Loop(name="fp8") as record:
        record.log(0, loss=1.0)
        record.log(1, loss=1.0)
    assert not list(tmp_path.iterdir())
    assert [text for text in caplog.messages if "RANK is 'first'" in text] == caplog.messages


def test_micro_steps_become_the_weighted_mean_of_an_optimizer_step(spools):
    with Loop(name="fp8") as record:
        for step in range(2):
            for loss, tokens in ((1.0, 100), (np.float32(4.0), 50)):
                record.micro_step(loss, tokens)
                record.log(None)
            record.log(step, grad_norm=0.1)
        record.micro_step(math.nan)
        record.log(1)  # the optimizer skipped it: its loss belongs to the next step
        record.micro_step(1.0)
        record.log(2)
    rows = spools("unnamed-fp8")[0]
    assert [row["step"] for row in rows[:-1]] == [0, 1, 2]
    assert [row["loss"] for row in rows[:2]] == [2.0, 2.0]
    assert math.isnan(rows[2]["loss"])


def test_a_value_that_changes_later_is_read_at_once(spools):
    loss = np.zeros(())
    with Loop(name="fp8") as record:
        for value in (1.0, 3.0):
            loss[...] = value
            record.micro_step(loss)
        record.log(0)
    assert spools("unnamed-fp8")[0][0]["loss"] == 2.0


def test_a_loss_next_to_micro_steps_is_refused(spools):
    with Loop(name="fp8") as record:
        record.micro_step(1.0)
        with pytest.raises(ValueError, match="step 0 has a loss and 1 micro-steps"):
            record.log(0, loss=1.0)


def test_weights_that_add_up_to_nothing_cost_only_their_step(spools, caplog):
    with Loop(name="fp8") as record:
        record.micro_step(1.0, 0)
        record.log(0)
        record.log(1, loss=1.0)
    assert [row["step"] for row in spools("unnamed-fp8")[0][:-1]] == [1]
    assert "step 0 is not recorded" in caplog.text


def test_two_loops_without_a_name_are_two_runs(spools, tmp_path):
    for _ in range(2):
        with Loop() as record:
            record.log(0, loss=1.0)
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_that_was_flushed_is_lost_to_a_kill(spools):
    script = (
        "import os, signal\nfrom parity.integrations.loop import Loop\nrecord = Loop(name='fp8')\n"
        "for step in range(5000): record.log(step, loss=1.0)\n"
        "record.flush()\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=os.environ, capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    with Loop(name="fp8") as record:
        record.log(4000, loss=2.0)
    first, second = spools("unnamed-fp8")
    assert [row["step"] for row in first] == list(range(5000))
    assert [row["step"] for row in second[:-1]] == [4000]
