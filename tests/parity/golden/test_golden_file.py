"""The file of a golden: what is written is read again, and each wrong file is refused by its
line.
"""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from parity.golden.golden_file import (
    MOST_ROWS,
    Golden,
    GoldenError,
    GoldenUpdate,
    golden_of,
    golden_text,
    is_golden,
    read_golden,
    write_golden,
)
from tests.parity.golden.curves import GOLDEN, curve

UPDATES = (
    GoldenUpdate(date="2026-01-02", answer=None, gap_pct=0.0, reason="first golden"),
    GoldenUpdate(
        date="2026-02-03",
        answer="worse",
        gap_pct=0.4,
        reason="image 26.06",
        commit="abc123",
        accepted=True,
    ),
)


def golden(loss=GOLDEN, **more) -> Golden:
    norms = np.where(np.arange(len(loss)) == 3, np.nan, 2.3156789)
    made = curve(loss, columns={"grad_norm": norms, "tokens": np.arange(len(loss))})
    return golden_of(made, "run", "bf16", updates=UPDATES, **more)


def test_what_is_written_is_read_again(tmp_path):
    first = golden(
        random=("dropout",),
        container="26.04",
        hardware="h100x8",
        data="sha256:ab",
        facts={"a": "1"},
    )
    path = str(tmp_path / "a.golden.jsonl")
    write_golden(path, first)
    again = read_golden(path)
    assert is_golden(path)
    np.testing.assert_array_equal(again.curve.loss, first.curve.loss)
    np.testing.assert_array_equal(again.curve.steps, first.curve.steps)
    assert list(again.curve.columns) == ["grad_norm"]
    np.testing.assert_allclose(again.curve.columns["grad_norm"][[2, 4]], 2.3156789, rtol=1e-5)
    assert np.isnan(again.curve.columns["grad_norm"][3])
    for name in ("recipe", "random", "container", "hardware", "data", "facts", "updates"):
        assert getattr(again, name) == getattr(first, name)
    assert golden_text(again) == golden_text(first)


@given(some.lists(some.floats(1e-3, 1e3), min_size=8, max_size=40))
def test_every_loss_comes_back_as_it_was_printed(values):
    written = golden_of(curve(values), "run", "bf16")
    rows = [json.loads(line) for line in golden_text(written).splitlines()[1:]]
    assert [row["loss"] for row in rows] == pytest.approx(np.round(values, 5).tolist(), abs=1e-12)


def test_a_line_is_read_in_a_difference():
    head, first, *_ = golden_text(golden()).splitlines()
    assert head.startswith('{"golden":1,"recipe":"bf16","digits":5,"steps":100,"updates":')
    assert re.fullmatch(r'\{"step":1,"loss":\d+\.\d{5},"grad_norm":2\.31568\}', first)


def test_every_nth_step_is_kept_and_the_last():
    steps = golden_of(curve(GOLDEN), "run", "bf16", every=7).curve.steps
    assert steps.tolist() == [*range(1, 100, 7), 100]


def test_a_run_that_is_no_golden_is_refused():
    for loss, words in (
        (GOLDEN[:7], "7 steps"),
        (np.append(GOLDEN, np.nan), "loss of step 101 is nan"),
        (np.append(GOLDEN, -1.0), "loss of step 101 is -1"),
        (np.tile(GOLDEN, 51), "--every"),
    ):
        with pytest.raises(GoldenError, match=words):
            golden_of(curve(loss), "run", "bf16")
    assert len(golden_of(curve(np.tile(GOLDEN, 50)), "run", "bf16").curve.steps) == MOST_ROWS


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(GoldenError, match="cannot be written"):
        write_golden(str(path), golden())
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


HEADER = {"golden": 1, "recipe": "bf16", "digits": 5, "updates": []}
ROWS = [{"step": step, "loss": 2.0} for step in range(1, 11)]


@pytest.mark.parametrize(
    ("header", "rows", "words"),
    [
        ({}, ROWS, "not a golden"),
        ({**HEADER, "golden": 2}, ROWS, "line 1: golden is 2"),
        ({**HEADER, "recipe": None}, ROWS, "no recipe"),
        ({**HEADER, "recipe": "bf61"}, ROWS, "recipe is 'bf61'"),
        ({**HEADER, "random": "dropout"}, ROWS, "random is"),
        ({**HEADER, "facts": {"a": 1}}, ROWS, "facts is"),
        ({**HEADER, "container": 3}, ROWS, "container is 3"),
        ({**HEADER, "updates": [{"date": "x"}]}, ROWS, "updates has"),
        (
            {**HEADER, "updates": [{"date": "x", "reason": "y", "gap_pct": "z"}]},
            ROWS,
            "updates has",
        ),
        (
            {**HEADER, "updates": [{"date": "x", "reason": "y", "answer": "ok"}]},
            ROWS,
            "updates has",
        ),
        ({**HEADER, "digits": "x"}, ROWS, "digits is 'x'"),
        ({**HEADER, "digits": -3}, ROWS, "digits is -3"),
        ({**HEADER, "digits": True}, ROWS, "digits is True"),
        ({**HEADER, "steps": "10"}, ROWS, "steps is '10'"),
        ({**HEADER, "steps": 10}, ROWS[:9], "steps is 10, but the file has 9"),
        (HEADER, ROWS[:7], "7 steps"),
        (HEADER, [*ROWS, {"step": 10, "loss": 2.0}], "step twice"),
        (HEADER, [*ROWS, {"step": 11}], "line 12: loss is None"),
        (HEADER, [*ROWS, {"step": "11", "loss": 2.0}], "line 12: step is '11'"),
        (HEADER, [*ROWS, {"step": 11, "loss": 0.0}], "loss of step 11 is 0"),
        (HEADER, [*ROWS, {"step": 10.5, "loss": 2.0}], "10.5"),
        (HEADER, [*ROWS, [1]], "line 12: is"),
    ],
)
def test_a_wrong_file_is_refused_by_its_place(tmp_path, header, rows, words):
    path = tmp_path / "a.golden.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [header, *rows]))
    with pytest.raises(GoldenError, match=re.escape(words)):
        read_golden(str(path))
    for right in (HEADER, {**HEADER, "steps": 10}):  # older files do not count their steps
        path.write_text("\n".join(json.dumps(row) for row in [right, *ROWS]))
        assert len(read_golden(str(path)).curve.steps) == 10


def test_what_is_no_golden_is_known_without_reading_it(tmp_path):
    run = tmp_path / "run.csv"
    run.write_text("step,loss\n1,2.0\n")
    assert not is_golden(str(run))
    assert not is_golden(str(tmp_path / "missing"))
    assert not is_golden("wandb:a/b/c")
    with pytest.raises(GoldenError, match="cannot be read"):
        read_golden(str(tmp_path / "missing"))
