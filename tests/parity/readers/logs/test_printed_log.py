"""Printed logs of trainers that the reader does not know: what is taken from their lines, and what
is not.
"""

import math
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.readers import read_run
from parity.readers.errors import ReadError
from parity.readers.logs.lines import line_log
from parity.readers.logs.lines.line import LONGEST, looked_at
from parity.readers.logs.printed_line import printed_log, read_line
from tests.conftest import some
from tests.parity.readers.logs.corpus.printed import PRINTED, printed_lines

LOSSES = [10.8125 - 0.25 * i for i in range(6)]
every_format = pytest.mark.parametrize("trainer", PRINTED)


def write(
    folder: Path,
    lines: list[str],
    preamble: str = "using device: cuda\nnumber of parameters: 10.65M, 3 groups\n",
) -> str:
    path = folder / "train.log"
    path.write_text(preamble + "\n".join(lines) + "\n")
    return str(path)


@every_format
def test_steps_and_losses_are_as_printed(trainer: str, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, printed_lines(trainer, LOSSES)))
    first = PRINTED[trainer][2]
    assert run.steps.tolist() == list(range(first, first + 6))
    assert run.loss == pytest.approx(LOSSES, abs=6e-3)


@every_format
def test_a_long_preamble_and_nan_change_nothing(trainer: str, tmp_path: Path) -> None:
    losses = [*LOSSES[:3], math.nan, *LOSSES[4:]]
    run = read_run(
        write(
            tmp_path,
            printed_lines(trainer, losses),
            preamble="loading shard 3 of 8, 12 workers\n" * 1000,
        )
    )
    assert np.isnan(run.loss).tolist() == [False, False, False, True, False, False]


def check_twin(lines: list[str]) -> None:
    """Lines are read as by the twin without shapes, for which each line is read by the rule."""
    text = "".join(f"{line}\n" for line in lines)

    def read() -> str:
        found = printed_log({"loss2", "time"}, lambda step, _line, _number: int(step))
        found.take(text)
        ranks = {
            rank: {name: [*track] for name, track in sorted(tracks.items())}
            for rank, tracks in sorted(found.series().items())
        }
        return repr((ranks, found.planned, found.is_numbered))  # NaN is NaN

    in_blocks = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_log, "shape_of", lambda _read, _text, _names: None)
        assert in_blocks == read()


def test_a_bars_states_and_a_long_line_leave_the_others_as_they_are() -> None:
    lines = [f"step {step} loss {4 - step / 100:.3f}" for step in range(20)]
    check_twin([*lines[:10], "settings " + "x" * LONGEST, *lines[10:]])
    check_twin(["\r".join([*lines[:5], "step 5"]), *lines[6:10], "\r".join(lines[10:])])


@every_format
@pytest.mark.parametrize("ranks", [[""], ["0: ", "1: "]])
def test_lines_that_are_alike_are_read_as_by_the_rule(trainer: str, ranks: list[str]) -> None:
    losses = np.random.default_rng(3).normal(3, 1, 40).round(6).tolist()
    losses[7:12] = [math.nan, math.inf, 1234.5, -0.25, 7.0]
    losses[20:24] = [0.0, 1e-07, 123456.0, 12.5]
    lines = [
        rank + part
        for line in printed_lines(trainer, losses)
        for part in line.split("\n")
        for rank in ranks
    ]
    for at, other in (
        (35, "val loss 2.5"),
        (30, ""),
        (12, "step 9: saved"),
        (12, "x" * 300),
        (3, "step 3 best loss 1"),
    ):
        lines.insert(at, other)
    check_twin(lines)


def test_what_differs_in_more_than_digits_is_read_by_the_rule() -> None:
    first = "0: step 10/600 | loss 4.5 | loss2: 3 | lr 1e-4"
    others = [
        *(
            "0: step 11/700 | loss 4.5 | loss2: 3 | lr 1e-4",
            "1: step 12/600 | loss nan | loss2: 3 | lr 1e-4",
            "0: val step 12/600 | loss 4 | loss2: 3 | lr 1e-4",
        ),
        *(
            "0: step 13/600 | loss 1,234.5 | loss2: 3 | lr 1e-4",
            "0: step 14/600 | loss 4.5ms | loss2: 3 | lr 1e-4",
            "0: step 1,234/600 | loss 4 | loss2: 3 | lr 1e-4",
        ),
        *(
            "0: step 15/600 | loss 4.5% | loss2: 3 | lr 1e-4",
            "0: step 16/600 | loss 4.5 | loss3: 3 | lr 1e-4",
            "0: step 17/600 | best loss 4.5 | loss2: 3 | lr 1e-4",
        ),
        *(
            "0: step 18/600 | loss 4.5 | loss2: 3 | lr 1e-4 | optimizer step 9",
            "0: step 19.5/600 | loss 4.5 | loss2: 3 | lr 1e-4",
            "0: step 20/600",
        ),
    ]
    shares = ["update 0.5 num_updates 3 loss 4.5", "update 5 num_updates 4 loss 4.5"]
    check_twin(shares)
    for other in others:
        check_twin([first, other])


WORDS = (
    "step",
    "iter",
    "batch",
    "update",
    "loss",
    "best loss",
    "val loss",
    "grad_norm",
    "loss2",
    "epoch",
    "[rank0]:",
    "0:",
    "saved",
    "µs",
)
NUMBERS = (
    "1",
    "-1.5",
    "2.",
    ".5",
    "3e-4",
    "1.25E+10",
    "1e5",
    "7/90",
    "5,120",
    "4.5%",
    "9ms",
    "nan",
    "1.5.2",
    "12/600 [",
    "0.1234567890123456789",
)


@settings(max_examples=some(200))
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(WORDS),
            st.sampled_from((" ", ": ", "=", "', '")),
            st.sampled_from(NUMBERS),
        ),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 2**32),
)
def test_lines_with_any_digits_are_read_as_by_the_rule(
    parts: list[tuple[str, str, str]], seed: int
) -> None:
    rng = np.random.default_rng(seed)

    def other_digits(match: re.Match[str]) -> str:
        longest = len(match[0]) if rng.random() < 0.7 else 20
        return "".join(map(str, rng.integers(0, 10, rng.integers(1, longest + 1)).tolist()))

    line = " ".join(map("".join, parts))
    check_twin([re.sub(r"\d+", other_digits, line) for _ in range(40)])


def test_other_losses_and_other_steps_of_a_line_are_not_taken(tmp_path: Path) -> None:
    lines = [
        f"total steps 600 | warmup steps: 100 | step {i} | best loss 1.5 | val loss 3.5 | aux loss "
        f"0.1 | loss {loss} | 2.5 s per step 9"
        for i, loss in enumerate(LOSSES)
    ]
    run = read_run(write(tmp_path, lines))
    assert run.steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert run.loss.tolist() == LOSSES
    assert run.columns["validation_loss"].tolist() == [3.5] * 6


@pytest.mark.parametrize(
    "line",
    [
        "step 3: train loss 2.0023, val loss 2.1250",
        "Iter 3: Val loss 2.125, Val took 3.2s",
        "validate step 3 loss 2.125",
        "val loss 2.125",
    ],
)
def test_evaluations_are_no_steps(line: str, tmp_path: Path) -> None:
    lines = [f"iter {i}: loss {loss}, time 12.34ms" for i, loss in enumerate(LOSSES)]
    run = read_run(write(tmp_path, [*lines[:4], line, *lines[4:]]))
    assert run.loss.tolist() == LOSSES
    assert run.columns["validation_loss"][3] == 2.125


def test_what_is_known_of_the_losses_is_noted(tmp_path: Path) -> None:
    assert any(
        "running average" in note
        for note in read_run(write(tmp_path, printed_lines("nanochat", LOSSES))).notes
    )
    assert any(
        "running average" in note
        for note in read_run(write(tmp_path, printed_lines("litgpt", LOSSES))).notes
    )
    assert any(
        "numbered from 1" in note
        for note in read_run(write(tmp_path, printed_lines("transformers", LOSSES))).notes
    )
    assert read_run(write(tmp_path, printed_lines("llm.c", LOSSES))).context["planned_steps"] == "6"


@pytest.mark.parametrize("trainer", ["Keras", "Lightning", "Composer", "OLMo"])
def test_the_length_of_an_epoch_is_not_the_planned_one(trainer: str, tmp_path: Path) -> None:
    assert "planned_steps" not in read_run(write(tmp_path, printed_lines(trainer, LOSSES))).context


def test_a_smoothed_loss_is_taken_by_name_alone(tmp_path: Path) -> None:
    lines = [f"step {i} avg loss {loss + 1} loss {loss}" for i, loss in enumerate(LOSSES)]
    assert read_run(write(tmp_path, lines)).loss.tolist() == LOSSES
    assert read_run(write(tmp_path, lines), columns={"loss": "avg loss"}).loss.tolist() == [
        loss + 1 for loss in LOSSES
    ]
    with pytest.raises(ReadError, match="no column 'eve loss' for loss"):
        read_run(write(tmp_path, lines), columns={"loss": "eve loss"})


def test_an_evaluations_bar_is_not_the_step(tmp_path: Path) -> None:
    def printed(i: int, loss: float) -> str:
        return (
            f" 1%|#   | {i}/600 [00:01<00:05]\n 50%|##  | 5/10 [00:01<00:01]\n{{'loss': {loss}, "
            "'epoch': 0.1}"
        )

    assert read_run(
        write(tmp_path, [printed(i, loss) for i, loss in enumerate(LOSSES)])
    ).steps.tolist() == [0, 1, 2, 3, 4, 5]


def test_ranks_that_print_other_losses_are_refused(tmp_path: Path) -> None:
    lines = [
        f"{rank}: step {i} loss {loss + 0.125 * rank}"
        for i, loss in enumerate(LOSSES)
        for rank in (0, 1)
    ]
    with pytest.raises(ReadError, match="ranks 0 and 1 print different losses"):
        read_run(write(tmp_path, lines))


def test_epochs_that_count_in_tens_from_0_are_refused_as_mixed(tmp_path: Path) -> None:
    """How many batches an epoch has is not printed; where each is, they are continued
    (test_epochs.py).
    """
    lines = [
        f"epoch {epoch} batch {10 * i} loss {loss - epoch / 8}"
        for epoch in (0, 1)
        for i, loss in enumerate(LOSSES)
    ]
    with pytest.raises(ReadError, match="two runs or ranks may be mixed"):
        read_run(write(tmp_path, lines))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10**6,
        "a " * 10**6,
        "loss " * 10**5,
        "1" * 10**6,
        "step 1,234" * 10**5,
        "loss 1," + "234," * 10**5,
        "=" * 10**6,
    ],
)
def test_a_hostile_line_is_read_up_to_its_first_characters(text: str) -> None:
    whole, start = (min(_seconds(part) for _ in range(3)) for part in (text, text[:LONGEST]))
    assert read_line(text) == read_line(looked_at(text))
    assert whole < 20 * start + 0.01


def _seconds(text: str) -> float:
    begin = time.process_time()
    read_line(text)
    return time.process_time() - begin


def two_losses(tag: str, *, training: str = "ce", every: int = 1) -> list[str]:
    """Lines of the training's own loss, and of `loss` behind a tag at every so many steps."""
    return [
        line
        for step, loss in enumerate(LOSSES)
        for line in (
            f"step {step} {training} {loss}",
            *([f"{tag} step {step} loss {loss / 2}"] if step % every == 0 else []),
        )
    ]


@pytest.mark.parametrize(
    "tag", ["[val]", "[val/0]", "[eval_0]", "[valid_0]", "[val-1]", "| holdout |"]
)
def test_a_tag_with_a_number_is_that_of_an_evaluation(tag: str, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, two_losses(tag)))
    assert run.loss.tolist() == LOSSES


@pytest.mark.parametrize(
    ("tag", "training", "every"),
    [("[wiki]", "ce", 1), ("[ood]", "ce", 2), ("[wiki]", "train_loss", 3)],
)
def test_a_loss_on_lines_of_their_own_beside_another_has_to_be_named(
    tag: str, training: str, every: int, tmp_path: Path
) -> None:
    path = write(tmp_path, two_losses(tag, training=training, every=every))
    with pytest.raises(ReadError, match=f"--column loss={training}"):
        read_run(path)
    assert read_run(path, columns={"loss": training}).loss.tolist() == LOSSES


def test_a_loss_that_stands_on_few_lines_or_on_the_same_ones_need_not_be_named(
    tmp_path: Path,
) -> None:
    steps = [f"step {step} loss {loss} ce {loss}" for step, loss in enumerate(LOSSES)]
    assert read_run(write(tmp_path, steps)).loss.tolist() == LOSSES
    last = [*(f"step {step} loss {loss}" for step, loss in enumerate(LOSSES)), "step 5 ce 10.5"]
    assert read_run(write(tmp_path, last)).loss.tolist() == LOSSES


@pytest.mark.parametrize(
    ("printed", "loss"),
    [
        *[(text, math.nan) for text in ("1.#QNAN", "1.#IND", "-1.#IND00", "1.#J", "-1.#SNAN")],
        ("1.#INF", math.inf),
        ("-1.#INF", -math.inf),
        ("1.25", 1.25),
        ("1. # warm-up", 1.0),
    ],
)
def test_nan_of_microsofts_library_is_not_1(printed: str, loss: float, tmp_path: Path) -> None:
    run = read_run(
        write(tmp_path, ["step 1 loss 2.5", "step 2 loss 2.25", f"step 3 loss {printed}"])
    )
    assert np.array_equal(run.loss, [2.5, 2.25, loss], equal_nan=True)
