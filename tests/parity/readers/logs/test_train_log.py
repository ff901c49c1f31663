"""Standard output of trainers, line by line as their sources print it."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import LINES_UNREAD, SECOND_LOSSES
from parity.readers import read_run
from parity.readers.errors import ReadError
from parity.readers.logs.lines import line_log
from tests.parity.readers.logs.corpus.trainers import (
    TRAINERS,
    deepspeed,
    maxtext,
    megatron,
    nemo,
    torchtitan,
)

LOSSES = [10.8125 - 0.25 * i for i in range(6)]


PREAMBLE = [
    "using world size: 8, data-parallel size: 8",
    "> building train, validation, and test datasets ...",
    "loss scale: none",
]
Line = Callable[[int, float], str]


def write(folder: Path, lines: list[str], end: str = "\n") -> str:
    path = folder / "train.log"
    path.write_text("\n".join([*PREAMBLE, *lines]) + end)
    return str(path)


every_trainer = pytest.mark.parametrize("trainer", TRAINERS)


@every_trainer
def test_steps_and_losses_are_as_printed(trainer: str, tmp_path: Path) -> None:
    line, first, *_ = TRAINERS[trainer]
    run = read_run(write(tmp_path, [line(i, loss) for i, loss in enumerate(LOSSES)]))
    assert run.steps.tolist() == list(range(first, first + 6))
    assert run.loss == pytest.approx(LOSSES, abs=5e-3)
    assert run.notes[1] == f"a log of {trainer}: losses as printed"
    assert run.label == "train"


@every_trainer
@pytest.mark.parametrize("prefix", ["{rank}: ", "[rank{rank}]:", "[default{rank}]: "])
def test_ranks_that_print_the_same_are_one_run(trainer: str, prefix: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [
        prefix.format(rank=rank) + line(i, loss) for i, loss in enumerate(LOSSES) for rank in (0, 1)
    ]
    assert len(read_run(write(tmp_path, lines)).steps) == 6


@every_trainer
def test_ranks_that_print_other_losses_are_refused(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [
        f"[rank{rank}]: " + line(i, loss + 0.125 * rank)
        for i, loss in enumerate(LOSSES)
        for rank in (0, 1)
    ]
    with pytest.raises(ReadError, match="ranks 0 and 1 print different losses"):
        read_run(write(tmp_path, lines))


@every_trainer
def test_ranks_without_a_prefix_are_refused_as_mixed(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [line(i, loss + 0.125 * rank) for i, loss in enumerate(LOSSES) for rank in (0, 1)]
    with pytest.raises(ReadError, match="6 of 12 rows repeat a step with another loss"):
        read_run(write(tmp_path, lines))


@every_trainer
def test_a_resumed_log_counts_the_later_lines(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    first = [line(i, loss) for i, loss in enumerate(LOSSES)]
    run = read_run(
        write(
            tmp_path,
            [
                *first,
                "resuming from checkpoint",
                *(line(i, LOSSES[i] - 0.125) for i in range(2, 6)),
            ],
        )
    )
    assert run.loss == pytest.approx(LOSSES[:2] + [loss - 0.125 for loss in LOSSES[2:]], abs=5e-3)
    assert run.completeness.duplicates == 4
    assert any("4 rows repeat a step after 1 restart" in note for note in run.notes)


@every_trainer
def test_two_logs_one_after_the_other_are_refused(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [line(i, loss + shift) for shift in (0.0, 0.125) for i, loss in enumerate(LOSSES)]
    with pytest.raises(ReadError, match="two runs or ranks may be mixed"):
        read_run(write(tmp_path, lines))


@every_trainer
def test_a_last_line_that_was_cut_gives_no_other_loss(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [line(i, loss) for i, loss in enumerate(LOSSES)]
    whole = read_run(write(tmp_path, lines))
    for cut in range(60):
        run = read_run(write(tmp_path, [*lines[:-1], lines[-1][: len(lines[-1]) - cut]], end=""))
        assert len(run.steps) in (5, 6)
        assert run.loss.tolist() == whole.loss[: len(run.steps)].tolist()
        assert run.steps.tolist() == whole.steps[: len(run.steps)].tolist()


@every_trainer
@pytest.mark.parametrize("prefix", ["", "0: "])
def test_lines_that_are_alike_are_read_as_one_by_one(
    trainer: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin has no shapes: each line is searched for each number."""
    line, *_ = TRAINERS[trainer]
    losses = np.random.default_rng(2).normal(3, 1, 40).round(6).tolist()
    losses[7:11] = [math.nan, math.inf, 1234.5, -0.25]
    lines = [prefix + line(i, loss, 40) for i, loss in enumerate(losses)]
    for at, other in (
        (30, ""),
        (20, "saving checkpoint at iteration 19"),
        (9, prefix + megatron(3, math.nan) if trainer == "Megatron-LM" else "x"),
    ):
        lines.insert(at, other)
    path = write(tmp_path, lines)
    runs = [read_run(path)]
    monkeypatch.setattr(line_log, "shape_of", lambda _read, _text, _names: None)
    runs.append(read_run(path))
    first, second = (repr((run.steps.tolist(), run.loss.tolist(), {**run.columns})) for run in runs)
    assert first == second


@every_trainer
def test_nan_is_data(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    run = read_run(
        write(tmp_path, [line(i, math.nan if i == 3 else loss) for i, loss in enumerate(LOSSES)])
    )
    assert np.isnan(run.loss).tolist() == [False, False, False, True, False, False]


def test_what_goes_with_the_loss(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, [megatron(i, loss) for i, loss in enumerate(LOSSES)]))
    assert {name: values[0] for name, values in run.columns.items()} == {
        "grad_norm": 1.5,
        "learning_rate": 3e-4,
        "step_seconds": 1.2345,
    }
    assert (
        read_run(write(tmp_path, [torchtitan(i, loss) for i, loss in enumerate(LOSSES)])).columns[
            "grad_norm"
        ][0]
        == 1.5
    )


def test_a_total_loss_is_not_the_language_models(tmp_path: Path) -> None:
    assert (
        read_run(write(tmp_path, [maxtext(i, loss) for i, loss in enumerate(LOSSES)]))
        .notes[0]
        .startswith("loss read from 'lm_loss'")
    )
    without = [
        maxtext(i, loss).replace(", lm_loss: ", ", other: ") for i, loss in enumerate(LOSSES)
    ]
    run = read_run(write(tmp_path, without))
    assert run.loss == pytest.approx([loss + 0.5 for loss in LOSSES], abs=1e-3)
    assert run.notes[0].startswith("loss read from 'loss'")


@pytest.mark.parametrize(
    ("line", "validation"),
    [
        (
            megatron,
            (
                " validation loss at iteration 4 on validation set | lm loss value: 8.500000E+00 | "
                "lm loss PPL: 4.914769E+03 | "
            ),
        ),
        (
            megatron,
            (
                " validation loss at iteration 4 | lm loss value: 8.500000E+00 | lm loss PPL: "
                "4.914769E+03 | "
            ),
        ),
        (
            torchtitan,
            (
                "\x1b[33mvalidate step:  4  \x1b[32mloss:  8.5000  \x1b[36mmemory: "
                "40.25GiB(42.10%)  \x1b[34mtps: 12,345\x1b[39m"
            ),
        ),
    ],
)
def test_validation_losses(line: Line, validation: str, tmp_path: Path) -> None:
    lines = [line(i, loss) for i, loss in enumerate(LOSSES)]
    test_set = (
        " validation loss at iteration 6 on test set | lm loss value: 7.000000E+00 | lm loss PPL: "
        "1.096633E+03 | "
    )
    run = read_run(
        write(
            tmp_path,
            [*lines[:4], validation, *lines[4:], *([test_set] if line is megatron else [])],
        )
    )
    assert run.loss == pytest.approx(LOSSES, abs=1e-4)
    assert np.flatnonzero(~np.isnan(run.columns["validation_loss"])).tolist() == [3]
    assert run.columns["validation_loss"][3] == 8.5


def bar(step: str, loss: str) -> str:
    """NeMo 1.0's progress bar: one line whose states are separated by carriage returns."""
    return (
        f"\rEpoch 0: :   5%|5   | 3/62 [02:59<58:44, v_num=8-06, reduced_train_loss={loss}, "
        f"global_step={step}, consumed_samples=64.00]"
    )


def test_a_progress_bar_is_read_until_it_rounds_its_steps(tmp_path: Path) -> None:
    states = [bar(f"{step}.000"[:5], f"{8.0 - step:.2f}") for step in range(3)]
    run = read_run(write(tmp_path, ["".join(states + states[-1:]), "done"]))
    assert (run.steps.tolist(), run.loss.tolist()) == ([0, 1, 2], [8.0, 7.0, 6.0])
    with pytest.raises(
        ReadError, match=r"line 4: the progress bar prints the step rounded \(1\.01e\+3\)"
    ):
        read_run(write(tmp_path, ["".join([*states, bar("1.01e+3", "5.00")])]))


def test_logs_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        ReadError, match="step lines of Megatron-LM and DeepSpeed; expected the log of one trainer"
    ):
        read_run(write(tmp_path, [megatron(0, 3.0), deepspeed(1, 3.0)]))
    with pytest.raises(
        ReadError, match="the step lines of Megatron-LM have no loss; expected lm loss"
    ):
        read_run(
            write(tmp_path, [megatron(i, 3.0).replace("lm loss:", "mlm loss:") for i in range(3)])
        )
    with pytest.raises(ReadError, match="neither a table nor a log"):
        read_run(write(tmp_path, ["step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.95)]"]))


def test_a_long_preamble_does_not_hide_the_steps(tmp_path: Path) -> None:
    preamble = ["> loading a shard of the data set ..."] * 3000
    assert (
        len(
            read_run(
                write(tmp_path, [*preamble, *(megatron(i, loss) for i, loss in enumerate(LOSSES))])
            ).steps
        )
        == 6
    )


def test_maxtexts_own_log_agrees_with_its_metrics(data: Path) -> None:
    log, metrics = (
        read_run(str(data / "maxtext_session.log.gz")),
        read_run(str(data / "maxtext_session.jsonl.gz")),
    )
    assert log.steps.tolist() == metrics.steps.tolist()
    assert np.abs(log.loss - metrics.loss).max() < 5.1e-4
    aborted = read_run(str(data / "maxtext_nan_abort.log"))
    assert aborted.steps.tolist() == [0, 1, 2]
    assert np.isnan(aborted.loss[2])


@pytest.mark.parametrize(
    ("lines", "planned"),
    [
        ([megatron(i, loss) for i, loss in enumerate(LOSSES)], "6"),
        (
            [megatron(i, loss).replace("/       6", "/   20000") for i, loss in enumerate(LOSSES)],
            "20000",
        ),
        ([megatron(0, 9.0), megatron(1, 8.0).replace("/       6", "/      12")], None),
        (
            ["Training starts at step 1, with local batch size 8, total steps 763 (warmup 200)"]
            + [torchtitan(i, loss) for i, loss in enumerate(LOSSES)],
            "763",
        ),
        ([torchtitan(i, loss) for i, loss in enumerate(LOSSES)], None),
        ([nemo(i, loss) for i, loss in enumerate(LOSSES)], None),
    ],
)
def test_the_planned_length_is_the_one_that_the_log_states(
    lines: list[str], planned: str | None, tmp_path: Path
) -> None:
    run = read_run(write(tmp_path, lines))
    assert run.context.get("planned_steps") == planned


@every_trainer
@pytest.mark.parametrize("shown", ["", "<NA>", "NaN!", "***", "0x7fc00000"])
def test_a_loss_without_a_number_is_counted_as_unread(
    trainer: str, shown: str, tmp_path: Path
) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [line(i, loss) for i, loss in enumerate(LOSSES)]
    assert LINES_UNREAD not in read_run(write(tmp_path, lines)).context
    lines[2:5] = [re.sub(r"(?<=loss: )\s*[\d.E+-]+", shown, text) for text in lines[2:5]]
    assert read_run(write(tmp_path, lines)).context[LINES_UNREAD] == "3"


@every_trainer
@pytest.mark.parametrize("name", ["train_loss", "total_loss", "cross_entropy", "nll"])
@pytest.mark.parametrize("later", [1.05, math.nan])
def test_a_second_training_loss_that_differs_later_is_named(
    trainer: str, name: str, later: float, tmp_path: Path
) -> None:
    line, *_ = TRAINERS[trainer]

    def lines(factor: float) -> list[str]:
        losses = [5.0 - 0.125 * at for at in range(20)]
        return [
            f"{line(at, loss)} {name}: {loss * (factor if at > 9 else 1.0):.6f} |"
            for at, loss in enumerate(losses)
        ]

    assert SECOND_LOSSES in read_run(write(tmp_path, lines(later))).context
    assert SECOND_LOSSES not in read_run(write(tmp_path, lines(1.0))).context


@every_trainer
def test_a_loss_under_another_name_that_goes_on_on_lines_of_another_form_is_named(
    trainer: str, tmp_path: Path
) -> None:
    line, first, *_ = TRAINERS[trainer]
    losses = [5.0 - 0.125 * at for at in range(40)]
    lines = [line(at, loss) for at, loss in enumerate(losses)]
    others = [f"step {first + at} train_loss {losses[at]:.4f}" for at in range(40)]
    honest = [text for pair in zip(lines, others, strict=True) for text in pair]
    assert SECOND_LOSSES not in read_run(write(tmp_path, honest)).context
    others = [f"step {first + at} train_loss {1.05 * losses[at]:.4f}" for at in range(40)]
    assert (
        SECOND_LOSSES in read_run(write(tmp_path, [*lines[:20], *others[20:], *lines[20:]])).context
    )


@every_trainer
def test_two_numbers_of_one_loss_are_refused(trainer: str, tmp_path: Path) -> None:
    line, *_ = TRAINERS[trainer]
    lines = [line(at, loss) for at, loss in enumerate(LOSSES)]
    changed = [re.sub(r"(?<=loss: )\s*[\d.E+-]+", r"\g<0> -> 12.5", text) for text in lines]
    with pytest.raises(ReadError, match="two numbers stand for one loss"):
        read_run(write(tmp_path, changed))


@every_trainer
def test_a_named_loss_is_read_by_its_name(trainer: str, tmp_path: Path) -> None:
    line, first, *_ = TRAINERS[trainer]
    lines = [f"{line(at, loss)} train_loss: {loss + 1:.4f}" for at, loss in enumerate(LOSSES)]
    run = read_run(write(tmp_path, lines), columns={"loss": "train_loss"})
    assert run.steps.tolist() == list(range(first, first + 6))
    assert run.loss == pytest.approx([loss + 1 for loss in LOSSES], abs=1e-4)


@pytest.mark.parametrize(
    "form",
    [
        "[train] step: {s} loss: {x} lr: 1e-3",
        "epoch: 1 step: {s} loss: {x}",
        "step: {s} loss: {x} lr: 1e-3",
    ],
)
def test_a_step_and_a_loss_alone_are_no_log_of_torchtitan(form: str, tmp_path: Path) -> None:
    lines = [form.format(s=at + 1, x=f"{loss:.4f}") for at, loss in enumerate(LOSSES)]
    lines.insert(3, "[eval] step: 3 loss: 9.5")
    run = read_run(write(tmp_path, lines))
    assert run.notes[1] == "a printed log: losses as printed"
    assert run.loss == pytest.approx(LOSSES, abs=1e-4)
