"""Printed logs of trainers that the reader does not know: each format is the trainer's own line, with where it is printed."""

import math
import time
from pathlib import Path

import numpy as np
import pytest

from parity.readers import read_run
from parity.readers.columns import ReadError
from parity.readers.printed import LONGEST, read_line, records_of

LOSSES = [10.8125 - 0.25 * i for i in range(6)]
FORMATS = {
    # nanoGPT train.py
    "nanoGPT": ("iter {s}: loss {l:.4f}, time 12.34ms, mfu 3.5%", 0),
    # nanochat scripts/base_train.py
    "nanochat": ("step {s:05d}/00006 ({s:.2f}%) | loss: {l:.6f} | grad norm: 1.2000 | lrm: 1.00 | dt: 400.12ms | tok/sec: 1,234,567", 0),
    # modded-nanogpt train_gpt.py
    "modded-nanogpt": ("step:{s}/6 train_loss:{l:.4f} train_time:1234ms step_avg:12.34ms", 1),
    # torchtune training/metric_logging.py (DiskLogger)
    "torchtune": ("Step {s} | loss:{l} lr:2e-05 tokens_per_second_per_gpu:1234.5 grad_norm:1.5", 1),
    # transformers trainer_callback.py (PrinterCallback), which axolotl and TRL use; version 5 prints text
    "transformers": ("{{'loss': {l}, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.01}}", 1),
    "transformers 5": ("{{'loss': '{l}', 'grad_norm': '0.5', 'learning_rate': '2e-05', 'epoch': '0.01'}}", 1),
    # the same below its progress bar, as tqdm writes both
    "transformers, bar": (" 16%|#6    | {s}/6 [00:01<00:05,  1.20it/s]\n{{'loss': {l}, 'grad_norm': 0.5, 'epoch': 0.01}}", 1),
    # ms-swift trainers (global_step/max_steps)
    "ms-swift": ("{{'loss': {l}, 'grad_norm': 1.1, 'global_step/max_steps': '{s}/6', 'percentage': '1.00%'}}", 1),
    # llm.c train_gpt2.cu, and its main.log
    "llm.c": ("step    {s}/6 | loss {l:.6f} (+1.20z)| norm 15.3 (+nanz)| lr 1.20e-05 | 250.20 ms | 40.1% bf16 MFU | 200 tok/s", 1),
    "llm.c, main.log": ("s:{s} trl:{l} lr:0.000600 norm:1.20", 1),
    # litgpt pretrain.py
    "litgpt": ("Epoch 1 | iter {s} step {s} | loss train: {l:.3f}, val: n/a | iter time: 123.40 ms (step) remaining time: 0:00:01", 1),
    # mlx-lm tuner/trainer.py
    "mlx-lm": ("Iter {s}: Train loss {l:.3f}, Learning Rate 1.000e-05, It/sec 2.100, Tokens/sec 1234.5, Peak mem 5.1 GB", 1),
    # GPT-NeoX megatron/logging.py
    "GPT-NeoX": (" iteration {s:8d}/6 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 | lm_loss: {l:.6E} |", 1),
    # nanotron logging
    "nanotron": ("[INFO|DP=0|PP=0|TP=0]: iteration: {s} / 6 | consumed_tokens: 1.23M | tokens_per_sec: 1K | lm_loss: {l} | lr: 0.0001", 1),
    # OpenNMT-py utils/report_manager.py
    "OpenNMT": (
        "[2026-01-01 10:00:00,123 INFO] Step {s}/6; acc: 3.4; ppl: 100.2; xent: {l:.2f}; lr: 0.0001; 1234/ 567 tok/s;",
        1,
    ),
    # OLMo train.py: several lines a step
    "OLMo": ("[step={s}/6,epoch=0]\n    optim/total_grad_norm=1.2\n    train/CrossEntropyLoss={l}\n    train/Perplexity=1,234", 1),
    # Composer loggers/console_logger.py
    "Composer": ("[batch={s}/6]:\n\t Train time/batch: {s}\n\t Train metrics/train/LanguageCrossEntropy: {l}", 1),
    # Keras utils/io_utils.py, and Lightning's bar
    "Keras": (" {s}/6 [====>.........] - ETA: 5s - loss: {l:.4f}", 1),
    "Lightning": ("Epoch 0:  16%|#   | {s}/6 [00:01<00:04,  1.20it/s, v_num=0, train_loss={l:.3f}]", 1),
    # picotron train.py
    "picotron": ("[rank 0] Step: {s:<5d} | Loss: {l:6.4f} | Global batch size: 1.0K | Tokens/s: 2.0K | Tokens/s/GPU: 1K", 1),
    # fairseq logging/progress_bar.py (JsonProgressBar)
    "fairseq": ('INFO | train_inner | {{"epoch": 1, "update": 0.0{s}, "loss": "{l}", "ppl": "10", "num_updates": "{s}"}}', 1),
    # scripts of one's own
    "clock": ("[03:49:{s:02d}] step {s}/6 | loss {l:.4f} | lr 3.0e-04 | 12.3 it/s", 1),
    "logging": ("INFO:root:training step {s} loss={l}", 1),
    "launcher": ("3:  [2026-01-01] step {s} loss {l}", 1),
    "words": ("After step {s:,} the loss is {l}", 1),
}
every_format = pytest.mark.parametrize("trainer", FORMATS)


def write(folder: Path, lines: list[str], preamble: str = "using device: cuda\nnumber of parameters: 10.65M, 3 groups\n") -> str:
    path = folder / "train.log"
    path.write_text(preamble + "\n".join(lines) + "\n")
    return str(path)


def lines_of(trainer: str, losses: list[float] = LOSSES) -> list[str]:
    line, first = FORMATS[trainer]
    return [line.format(s=first + i, l=loss) for i, loss in enumerate(losses)]


@every_format
def test_steps_and_losses_are_as_printed(trainer: str, tmp_path: Path) -> None:
    run = read_run(write(tmp_path, lines_of(trainer)))
    first = FORMATS[trainer][1]
    assert run.steps.tolist() == list(range(first, first + 6))
    assert run.loss == pytest.approx(LOSSES, abs=6e-3)


@every_format
def test_a_long_preamble_and_nan_change_nothing(trainer: str, tmp_path: Path) -> None:
    losses = [*LOSSES[:3], math.nan, *LOSSES[4:]]
    run = read_run(write(tmp_path, lines_of(trainer, losses), preamble="loading shard 3 of 8, 12 workers\n" * 1000))
    assert np.isnan(run.loss).tolist() == [False, False, False, True, False, False]


@every_format
def test_a_line_like_one_before_is_read_as_by_the_rule(trainer: str) -> None:
    losses = [*LOSSES, math.nan, math.inf, 0.0, 1e-07, 12.5, 1234.5, 123456.0]
    lines = [part for line in lines_of(trainer, losses) for part in line.split("\n")]
    by_rule = [(number, record) for number, line in enumerate(lines) if (record := read_line(line)) is not None]
    assert repr([*records_of(enumerate(lines))]) == repr(by_rule)  # NaN is NaN


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
    assert repr([*records_of(enumerate(shares))]) == repr([(number, read_line(line)) for number, line in enumerate(shares)])
    for other in others:
        assert repr([*records_of(enumerate([first, other]))]) == repr([(0, read_line(first)), (1, read_line(other))])


def test_other_losses_and_other_steps_of_a_line_are_not_taken(tmp_path: Path) -> None:
    lines = [
        f"total steps 600 | warmup steps: 100 | step {i} | best loss 1.5 | val loss 3.5 | aux loss 0.1 | loss {loss} | 2.5 s per step 9"
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
    assert any("running average" in note for note in read_run(write(tmp_path, lines_of("nanochat"))).notes)
    assert any("running average" in note for note in read_run(write(tmp_path, lines_of("litgpt"))).notes)
    assert any("numbered from 1" in note for note in read_run(write(tmp_path, lines_of("transformers"))).notes)
    assert read_run(write(tmp_path, lines_of("llm.c"))).context["planned_steps"] == "6"


@pytest.mark.parametrize("trainer", ["Keras", "Lightning", "Composer", "OLMo"])
def test_the_length_of_an_epoch_is_not_the_planned_one(trainer: str, tmp_path: Path) -> None:
    assert "planned_steps" not in read_run(write(tmp_path, lines_of(trainer))).context


def test_a_smoothed_loss_is_taken_by_name_alone(tmp_path: Path) -> None:
    lines = [f"step {i} avg loss {loss + 1} loss {loss}" for i, loss in enumerate(LOSSES)]
    assert read_run(write(tmp_path, lines)).loss.tolist() == LOSSES
    assert read_run(write(tmp_path, lines), columns={"loss": "avg loss"}).loss.tolist() == [loss + 1 for loss in LOSSES]
    with pytest.raises(ReadError, match="no column 'eve loss' for loss"):
        read_run(write(tmp_path, lines), columns={"loss": "eve loss"})


def test_an_evaluations_bar_is_not_the_step(tmp_path: Path) -> None:
    def printed(i: int, loss: float) -> str:
        return f" 1%|#   | {i}/600 [00:01<00:05]\n 50%|##  | 5/10 [00:01<00:01]\n{{'loss': {loss}, 'epoch': 0.1}}"

    assert read_run(write(tmp_path, [printed(i, loss) for i, loss in enumerate(LOSSES)])).steps.tolist() == [0, 1, 2, 3, 4, 5]


def test_ranks_that_print_other_losses_are_refused(tmp_path: Path) -> None:
    lines = [f"{rank}: step {i} loss {loss + 0.125 * rank}" for i, loss in enumerate(LOSSES) for rank in (0, 1)]
    with pytest.raises(ReadError, match="ranks 0 and 1 print different losses"):
        read_run(write(tmp_path, lines))


def test_epochs_that_count_from_0_are_refused_as_mixed(tmp_path: Path) -> None:
    lines = [f"epoch {epoch} batch {i} loss {loss - epoch / 8}" for epoch in (0, 1) for i, loss in enumerate(LOSSES)]
    with pytest.raises(ReadError, match="two runs or ranks may be mixed"):
        read_run(write(tmp_path, lines))


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "a " * 10**6, "loss " * 10**5, "1" * 10**6, "step 1,234" * 10**5, "loss 1," + "234," * 10**5, "=" * 10**6]
)
def test_a_hostile_line_is_read_up_to_its_first_characters(text: str) -> None:
    whole, start = (min(_seconds(part) for _ in range(3)) for part in (text, text[:LONGEST]))
    assert read_line(text) == read_line(text[:LONGEST])
    assert whole < 20 * start + 0.01


def _seconds(text: str) -> float:
    begin = time.process_time()
    read_line(text)
    return time.process_time() - begin
