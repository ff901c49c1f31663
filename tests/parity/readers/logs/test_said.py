"""A trainer that says in words that a loss was NaN, and prints no step with it, is believed: such a
log is no pass. Words about the check, the scale of the loss and held-out losses say nothing.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import (
    LINES_UNREAD,
    LOSSES_NOT_FINITE,
    SAID_NOT_FINITE,
    Curve,
)
from parity.readers import read_run
from parity.readers.errors import TwoLossesError
from parity.readers.logs.lines.said import says_not_finite
from parity.readers.logs.pattern import PATTERN

SAID = [
    "ERROR: Loss became NaN at step 12",
    "NaN loss detected",
    "found NaN in local forward loss calculation",
    "the loss is not finite",
    "iteration 12: NaN, batch dropped",
    "step 12 skipped: non finite gradients",
    "step 12 NaN encountered, update skipped",
    "NaN detected in forward pass",
    "FloatingPointError: gradients are NaN",
    "skipping batch: non-finite activations",
    "reason: non_finite_loss",
    "Unexpected result nan (message='Rank 0, node x: found NaN in local forward loss calculation')",
    "step 12 loss ***",
    "step 12 loss: overflow",
    "step 12 | loss=∞",
    "step 12 loss #NUM!",
    "2026-11-29 10:00:00 WARNING skipped 10 batches with a nan loss",
    "RuntimeError: non-finite loss",
    "train loss: nan",
    "final train loss nan",
]
NOTHING = [
    "checking for NaN in loss",
    "stop on nan loss",
    "check_for_nan_in_loss_and_grad: True",
    "no NaN in the losses",
    "step 12 skipped: inf gradients",
    "step 12 skipped: non finite gradients, loss scale 32768",
    "Non-finite gradients, step skipped, reducing the loss scale to 512",
    "dropped rows with NaN from the data",
    "no NaN detected in forward pass",
    "skip batches with NaN: True",
    "status: finite",
    "batch skipped: too long",
    "Gradient inf reduces loss scale",
    "grad norm nan, loss scale 1024",
    "loss scale: 4294967296.0 | number of skipped iterations:   1 | number of nan iterations:   0",
    "val loss is nan",
    "step 12 loss -",
    "step 12 loss ?",
    "** the loss is saved **",
    "to inspect NaN values in the loss use --detect-anomaly",
    "NaN losses: 0",
    "skipped 0 batches with a nan loss",
    "step 12 grad_norm nan lr 1e-3",
    "information about the loss",
]


def read(folder: Path, line: str, *, first: bool = False, **columns: str) -> Curve:
    steps = [f"step {step} loss {3 - step / 100} lr 1e-3" for step in range(12)]
    path = folder / "train.log"
    path.write_text("\n".join([line, *steps, ""] if first else [*steps, line, ""]))
    return read_run(str(path), columns=columns)


@pytest.mark.parametrize("line", SAID)
def test_words_of_a_loss_that_is_not_finite_are_a_fact_of_the_run(
    line: str, tmp_path: Path
) -> None:
    assert read(tmp_path, line).context[SAID_NOT_FINITE] == "1"
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+) lr"
    assert read(tmp_path, line, **{PATTERN: pattern}).context[SAID_NOT_FINITE] == "1"
    assert SAID_NOT_FINITE not in read(tmp_path, line, first=True).context


@pytest.mark.parametrize("line", NOTHING)
def test_other_words_are_none(line: str, tmp_path: Path) -> None:
    assert not says_not_finite(line)
    assert SAID_NOT_FINITE not in read(tmp_path, line).context


@pytest.mark.parametrize("line", ["Loss is nan, stopping training", "loss: inf"])
def test_a_loss_that_is_not_finite_below_its_step_is_that_of_the_step(
    line: str, tmp_path: Path
) -> None:
    run = read(tmp_path, line)
    assert run.steps.tolist() == [*range(12)]
    assert np.isfinite(run.loss).tolist() == [True] * 11 + [False]


def test_a_finite_loss_below_is_still_that_of_an_evaluation(tmp_path: Path) -> None:
    assert read(tmp_path, "mean loss over all: 9.5").loss.tolist()[-1] == 2.89
    assert read(tmp_path, "loss: 9.5").loss.tolist()[-1] == 2.89


@pytest.mark.parametrize(("nans", "said"), [(0, None), (9, "4")])
def test_megatron_counts_the_losses_that_its_mean_leaves_out(
    nans: int, said: str | None, tmp_path: Path
) -> None:
    lines = [
        f" iteration {step:8d}/      12 | elapsed time per iteration (ms): 100.0 | "
        f"learning rate: 1.0E-03 | lm loss: {3 - step / 100:.6E} | "
        f"number of nan iterations: {nans if step > 8 else 0:3d} |"
        for step in range(1, 13)
    ]
    path = tmp_path / "megatron.log"
    path.write_text("\n".join([*lines, ""]))
    run = read_run(str(path))
    assert np.isfinite(run.loss).all()
    assert run.context.get(SAID_NOT_FINITE) == said


COUNTS = [
    "number of nan iterations: {n}",
    "nan_losses={n}",
    "skipped nan batches: {n}",
    "NaN steps {n}",
    "non-finite loss count: {n}",
    "num_nan={n}",
    "{{'nan_count': {n}}}",
    '"loss_is_nan": {n}',
]
OTHER_COUNTS = [
    *("grad nan steps: {n}", "skipped iterations: {n}", "inf_grads={n}", "non_nan_loss={n}"),
    *("val_nan_count={n}", "grad/nan_count={n}"),
]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("loss_is_finite=False", "11"),
        ("loss_is_nan: True", "11"),
        ("loss_is_finite=True", None),
        ("loss_is_nan: False", None),
    ],
)
def test_a_flag_next_to_a_finite_loss_says_so(field: str, said: str | None, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {at} | loss {3 - at / 100} | {field}\n" for at in range(12)))
    assert read_run(str(path)).context.get(SAID_NOT_FINITE) == said


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("number", "said"), [(0, None), (9, "4")])
def test_a_count_of_nan_next_to_a_finite_loss_says_so(
    count: str, number: int, said: str | None, tmp_path: Path
) -> None:
    lines = [
        f"step {step} | loss {3 - step / 100} | {count.format(n=number if step > 8 else 0)}"
        for step in range(1, 13)
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, ""]))
    run = read_run(str(path))
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.context.get(SAID_NOT_FINITE) == said


@pytest.mark.parametrize("count", OTHER_COUNTS)
def test_a_count_of_something_else_says_nothing(count: str, tmp_path: Path) -> None:
    lines = [f"step {step} | loss {3 - step / 100} | {count.format(n=9)}" for step in range(1, 13)]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, ""]))
    run = read_run(str(path))
    assert run.loss.tolist() == [3 - step / 100 for step in range(1, 13)]
    assert SAID_NOT_FINITE not in run.context


@pytest.mark.parametrize("sign", ["-", "?", "--"])
def test_a_sign_in_place_of_a_loss_is_a_line_that_was_not_read(sign: str, tmp_path: Path) -> None:
    losses = [sign if step > 8 else f"{3 - step / 100}" for step in range(1, 13)]
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} loss {x}\n" for step, x in enumerate(losses, 1)))
    assert read_run(str(path)).context[LINES_UNREAD] == "4"


BESIDE = [
    "NaN loss on 3 of 8 ranks",
    "loss is nan on rank 3",
    "[NaN in 3/8 ranks]",
    "(excl. 3 nan losses)",
    "skipped (loss nan)",
    "loss was NaN, using previous value",
    "raw=nan",
    "micro losses: 2.1 nan 2.2 2.0",
    "per-rank loss [2.1, nan, 2.0]",
    "3 of 64 losses NaN",
]
NOT_BESIDE = [
    "loss is not NaN",
    "nan_loss=False",
    "skip_nan_loss=True",
    "NaN losses so far: none",
    "0 of 64 losses NaN",
    '"loss_is_finite": true',
    "loss never became nan",
    "nan_to_num(loss) active",
    "WARNING: NaN losses will be skipped",
    "[NaN in 0/8 ranks]",
    "nan/inf check passed",
    "nan loss guard: on",
    "micro losses: 2.1 2.3 2.2 2.0",
    "grad_norm: nan",
    "raw=2.5",
]


@pytest.mark.parametrize("words", [*BESIDE, *NOT_BESIDE])
@pytest.mark.parametrize("pattern", [None, r"step (?P<step>\d+) \| loss (?P<loss>\S+)"])
def test_words_on_a_line_with_a_finite_loss(
    words: str, pattern: str | None, tmp_path: Path
) -> None:
    lines = [
        f"step {step} | loss {3 - step / 100:.4f} | lr 1e-3 | {words if step == 9 else 'ok'}"
        for step in range(1, 13)
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, ""]))
    run = read_run(str(path), columns={} if pattern is None else {PATTERN: pattern})
    assert np.isfinite(run.loss).all()
    facts = {SAID_NOT_FINITE, LOSSES_NOT_FINITE} & run.context.keys()
    assert bool(facts) == (words in BESIDE)


@pytest.mark.parametrize("words", ["reverted: loss=nan", "rank losses: 2.1/nan/2.0"])
def test_a_second_number_on_a_line_is_asked_about_unless_a_pattern_says_which(
    words: str, tmp_path: Path
) -> None:
    with pytest.raises(TwoLossesError):
        read(tmp_path, f"step 12 loss 2.8800 lr 1e-3 | {words}")
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+) lr"
    run = read(tmp_path, f"step 12 loss 2.8800 lr 1e-3 | {words}", **{PATTERN: pattern})
    assert run.context[SAID_NOT_FINITE] == "1"


RECORDS = [
    {"event": "nan_loss", "step": 12},
    {"level": "ERROR", "message": "Loss is NaN at step 12"},
    {"step": 12, "loss": 2.88, "nan_loss": True},
    {"step": 12, "loss": 2.88, "num_nan_losses": 3},
    {"step": 12, "loss": 2.88, "loss_is_finite": False},
    {"step": 12, "loss": 2.88, "loss_isnan": True},
]
OTHER_RECORDS = [
    {"event": "saved", "step": 12},
    {"message": "no NaN in the losses"},
    {"step": 12, "loss": 2.88, "nan_loss": False},
    {"step": 12, "loss": 2.88, "num_nan_losses": 0},
    {"step": 12, "loss": 2.88, "stop_on_nan_loss": True},
    {"step": 12, "loss": 2.88, "loss_is_finite": True},
    {"step": 12, "loss": 2.88, "loss_not_finite": False},
    {"event": "val loss is nan"},
]


@pytest.mark.parametrize("record", [*RECORDS, *OTHER_RECORDS], ids=str)
def test_a_record_may_say_that_a_loss_was_not_finite(
    record: dict[str, object], tmp_path: Path
) -> None:
    rows = [{"step": step, "loss": 3 - step / 100} for step in range(1, 12)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, record]))
    said = read_run(str(path)).context.get(SAID_NOT_FINITE)
    assert said == ("1" if record in RECORDS else None)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("# loss became NaN, skipped", "1"),
        ("12,2.88,nan loss skipped", "1"),
        ("# the losses of run 7", None),
        ("12,2.88,no nan in the loss", None),
    ],
)
def test_a_remark_in_a_table_may_say_so(row: str, said: str | None, tmp_path: Path) -> None:
    rows = [f"{step},{3 - step / 100},ok" for step in range(1, 12)]
    path = tmp_path / "run.csv"
    path.write_text("\n".join(["step,loss,note", *rows, row, ""]))
    assert read_run(str(path)).context.get(SAID_NOT_FINITE) == said


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"event": "skip", "reason": "nonfinite"}, "1"),
        ({"skipped": True, "reason": "non_finite_loss"}, "1"),
        ({"status": "nan"}, "1"),
        ({"event": "skip", "reason": "too_long"}, None),
        ({"reason": "inf_gradients"}, None),
        ({"status": "ok"}, None),
    ],
)
def test_a_record_without_a_loss_may_give_its_reason(
    fields: dict[str, object], lines: str | None, tmp_path: Path
) -> None:
    records = [{"step": step, "loss": 3 - step / 100, "lr": 1e-3} for step in range(12)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in [*records, {"step": 12, **fields}]))
    assert read_run(str(path)).context.get(SAID_NOT_FINITE) == lines
