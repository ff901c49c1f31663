"""Printed logs: a format line with the step `s`, the loss `l` and the number of steps `n`, and the
first step.
"""

import re
from pathlib import Path

from tests.parity.readers.logs.corpus.form import PREAMBLE, Log, Losses

PRINTED = {
    "nanoGPT": ("karpathy/nanoGPT train.py", "iter {s}: loss {l:.4f}, time 12.34ms, mfu 3.5%", 0),
    "nanochat": (
        "karpathy/nanochat scripts/base_train.py",
        (
            "step {s:05d}/{n:05d} ({s:.2f}%) | loss: {l:.6f} | grad norm: 1.2000 | lrm: 1.00 | dt: "
            "400.12ms | tok/sec: 1,234,567"
        ),
        0,
    ),
    "modded-nanogpt": (
        "KellerJordan/modded-nanogpt train_gpt.py",
        "step:{s}/{n} train_loss:{l:.4f} train_time:1234ms step_avg:12.34ms",
        1,
    ),
    "torchtune": (
        "pytorch/torchtune training/metric_logging.py (DiskLogger)",
        "Step {s} | loss:{l} lr:2e-05 tokens_per_second_per_gpu:1234.5 grad_norm:1.5",
        1,
    ),
    "transformers": (
        "transformers trainer_callback.py (PrinterCallback), which axolotl and TRL use",
        "{{'loss': {l}, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.01}}",
        1,
    ),
    "transformers 5": (
        "transformers 5 trainer_callback.py prints text",
        "{{'loss': '{l}', 'grad_norm': '0.5', 'learning_rate': '2e-05', 'epoch': '0.01'}}",
        1,
    ),
    "transformers, bar": (
        "the same below its progress bar, as tqdm writes both",
        (
            " 16%|#6    | {s}/{n} [00:01<00:05,  1.20it/s]\n{{'loss': {l}, 'grad_norm': 0.5, "
            "'epoch': "
            "0.01}}"
        ),
        1,
    ),
    "ms-swift": (
        "modelscope/ms-swift trainers (global_step/max_steps)",
        (
            "{{'loss': {l}, 'grad_norm': 1.1, 'global_step/max_steps': '{s}/{n}', 'percentage': "
            "'1.00%'}}"
        ),
        1,
    ),
    "llm.c": (
        "karpathy/llm.c train_gpt2.cu",
        (
            "step    {s}/{n} | loss {l:.6f} (+1.20z)| norm 15.3 (+nanz)| lr 1.20e-05 | 250.20 ms | "
            "40.1% bf16 MFU | 200 tok/s"
        ),
        1,
    ),
    "llm.c, main.log": ("karpathy/llm.c llmc/logger.h", "s:{s} trl:{l} lr:0.000600 norm:1.20", 1),
    "litgpt": (
        "Lightning-AI/litgpt pretrain.py",
        (
            "Epoch 1 | iter {s} step {s} | loss train: {l:.3f}, val: n/a | iter time: 123.40 ms "
            "(step) remaining time: 0:00:01"
        ),
        1,
    ),
    "mlx-lm": (
        "ml-explore/mlx-lm tuner/trainer.py",
        (
            "Iter {s}: Train loss {l:.3f}, Learning Rate 1.000e-05, It/sec 2.100, Tokens/sec "
            "1234.5, Peak mem 5.1 GB"
        ),
        1,
    ),
    "GPT-NeoX": (
        "EleutherAI/gpt-neox megatron/logging.py",
        (
            " iteration {s:8d}/{n} | elapsed time per iteration (ms): 1234.5 | learning rate: "
            "1.0E-04 | lm_loss: {l:.6E} |"
        ),
        1,
    ),
    "nanotron": (
        "huggingface/nanotron logging",
        (
            "[INFO|DP=0|PP=0|TP=0]: iteration: {s} / {n} | consumed_tokens: 1.23M | "
            "tokens_per_sec: 1K | lm_loss: {l} | lr: 0.0001"
        ),
        1,
    ),
    "OpenNMT": (
        "OpenNMT-py utils/report_manager.py",
        (
            "[2026-01-01 10:00:00,123 INFO] Step {s}/{n}; acc: 3.4; ppl: 100.2; xent: {l:.2f}; lr: "
            "0.0001; 1234/ 567 tok/s;"
        ),
        1,
    ),
    "OLMo": (
        "allenai/OLMo train.py: several lines a step",
        (
            "[step={s}/{n},epoch=0]\n    optim/total_grad_norm=1.2\n    "
            "train/CrossEntropyLoss={l}\n  "
            "  train/Perplexity=1,234"
        ),
        1,
    ),
    "Composer": (
        "mosaicml/composer loggers/console_logger.py",
        (
            "[batch={s}/{n}]:\n\t Train time/batch: {s}\n\t Train "
            "metrics/train/LanguageCrossEntropy: "
            "{l}"
        ),
        1,
    ),
    "Keras": ("keras utils/io_utils.py", " {s}/{n} [====>.........] - ETA: 5s - loss: {l:.4f}", 1),
    "Lightning": (
        "Lightning callbacks/progress/tqdm_progress.py",
        "Epoch 0:  16%|#   | {s}/{n} [00:01<00:04,  1.20it/s, v_num=0, train_loss={l:.3f}]",
        1,
    ),
    "picotron": (
        "huggingface/picotron train.py",
        (
            "[rank 0] Step: {s:<5d} | Loss: {l:6.4f} | Global batch size: 1.0K | Tokens/s: 2.0K | "
            "Tokens/s/GPU: 1K"
        ),
        1,
    ),
    "fairseq": (
        "facebookresearch/fairseq logging/progress_bar.py (JsonProgressBar)",
        (
            'INFO | train_inner | {{"epoch": 1, "update": 0.00{s}, "loss": "{l}", "ppl": "10", '
            '"num_updates": "{s}"}}'
        ),
        1,
    ),
    "PaddleNLP": (
        "PaddleNLP trainer/trainer_callback.py",
        (
            "[2026-01-01 10:00:00,123] [    INFO] - loss: {l:.8f}, learning_rate: 1e-04, "
            "global_step: {s}, interval_runtime: 1.2, ppl: 3.4"
        ),
        1,
    ),
    "InternEvo": (
        "InternLM/InternEvo train/pipeline.py",
        (
            "2026-01-01 10:00:00,123 INFO pipeline.py:690 in record_metrics -- tflops=63.28, "
            "step={s}, loss={l}, tgs (tokens/gpu/second)=1424"
        ),
        0,
    ),
    "MindSpore": (
        "mindspore train/callback/_loss_monitor.py",
        "epoch: 1 step: {s}, loss is {l}",
        1,
    ),
    "clock": (
        "a script of one's own",
        "[03:49:00] step {s}/{n} | loss {l:.4f} | lr 3.0e-04 | 12.3 it/s",
        1,
    ),
    "launcher": (
        "srun --label before a script's own line",
        "3:  [2026-01-01] step {s} loss {l}",
        1,
    ),
    "words": ("a script of one's own", "After step {s:,} the loss is {l}", 1),
    "equals": (
        "a script of one's own",
        "iteration={s} train_loss={l:.5f} tok/s=12345 peak=10.1GiB",
        0,
    ),
    "brackets": (
        "a script of one's own",
        "[step {s:>6}] loss={l:.4f}; ce={l:.4f}; z_loss=0.0001",
        1,
    ),
    "arrow": ("a script of one's own", "Step {s}  ->  Loss: {l:.4f}", 1),
    "upper case": ("a script of one's own", "STEP {s} | LOSS {l:.6f} | LR 0.0003", 1),
    "slash names": (
        "a tracker's summary, printed",
        "global_step: {s} train/loss: {l} train/grad_norm: 0.5",
        1,
    ),
    "scientific": ("a script of one's own", "it {s:07d}  loss {l:.6e}  gnorm 1.00e+00", 0),
}


def printed_lines(form: str, losses: Losses) -> list[str]:
    """The lines of a printed log."""
    _, line, first = PRINTED[form]
    return [
        line.format(s=first + number, l=loss, n=len(losses)) for number, loss in enumerate(losses)
    ]


def printed_log(form: str) -> Log:
    origin, line, first = PRINTED[form]
    match = re.search(r"\{l(?::([^}]*))?\}", line)
    assert match is not None
    spec = match[1] or ""

    def write(path: Path, _first: int, losses: Losses) -> None:
        path.write_text(PREAMBLE + "".join(f"{line}\n" for line in printed_lines(form, losses)))

    return Log(origin, write, first=first, shown=lambda loss: float(format(loss, spec)))
