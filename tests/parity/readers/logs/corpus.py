"""Logs as trainers and trackers write them: a name, its origin, and what writes a run of given
losses in that form.

Those of libraries that are installed here (the `json`, `csv` and `logging` modules, rich, pandas,
pyarrow, numpy, absl) are written by the library itself; the others by the line that the trainer's
source prints, where `origin` says.
"""

import csv
import dataclasses
import io
import json
import logging
import math
import pprint
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from absl import logging as absl_logging
from rich.console import Console

Losses = Sequence[float]
Writer = Callable[[Path, int, Losses], object]
"""Writes the losses from a first step on to a file."""
PREAMBLE = "using device: cuda\nnumber of parameters: 10.65M, 3 groups\n"


@dataclasses.dataclass(frozen=True)
class Log:
    """One form: `write` writes losses from step `first` on to a file called `name`; `shown` is a
    loss as the form shows it.

    `option` is what a user has to type in addition, `plan` whether the form states the planned
    length.
    """

    origin: str
    write: Writer
    name: str = "train.log"
    first: int = 1
    shown: Callable[[float], float] = float
    option: tuple[str, str] | None = None

    def steps(self, losses: Losses) -> list[int]:
        """The steps that were written."""
        return [self.first + number for number in range(len(losses))]


# Printed logs: a format line with the step `s`, the loss `l` and the number of steps `n`, and the
# first step.

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


def _printed(form: str) -> Log:
    origin, line, first = PRINTED[form]
    match = re.search(r"\{l(?::([^}]*))?\}", line)
    assert match is not None
    spec = match[1] or ""

    def write(path: Path, _first: int, losses: Losses) -> None:
        path.write_text(PREAMBLE + "".join(f"{line}\n" for line in printed_lines(form, losses)))

    return Log(origin, write, first=first, shown=lambda loss: float(format(loss, spec)))


# Trainers whose lines are read by a format of their own (`parity.readers.logs`).


def megatron(step: int, loss: float, steps: int = 6) -> str:
    """Megatron-LM `training_log`, steps from 1; a mean that is NaN is not printed."""
    lost = math.isnan(loss)
    return (
        f" [2026-11-22 07:00:{step % 60:02}] iteration {step + 1:8d}/{steps:8d} | consumed "
        f"samples: {256 * (step + 1):12d} |"
        f" elapsed time per iteration (ms): {1234.5:.1f} | throughput per GPU (TFLOP/s/GPU): "
        f"{431.2:.1f} | learning rate: {3e-4:.6E} |"
        f" global batch size: {256:5d} |"
        + ("" if lost else f" lm loss: {loss:.6E} |")
        + f" loss scale: {1.0:.1f} |"
        f" grad norm: {1.5:.3f} | number of skipped iterations: {0:3d} | number of nan iterations: "
        f"{int(lost):3d} |"
    )


def nemo(step: int, loss: float, steps: int = 6) -> str:
    """NeMo 2.0's progress printer."""
    return (
        f"Training epoch 0, iteration {step}/{steps - 1} | lr: 1.649e-06 | global_batch_size: 128 "
        f"| global_step: {step} | max_memory_reserved: 140129599488 | reduced_train_loss: "
        f"{loss:.4g} | train_step_timing in s: 3.684 | consumed_samples: {128 * (step + 1)}"
    )


def torchtitan(step: int, loss: float, steps: int = 6) -> str:
    """torchtitan's console line with its colours, steps from 1."""
    return (
        f"[titan] 2026-11-22 07:00:{step % 60:02},001 - root - INFO - \x1b[31mstep: {step + 1:2}  "
        f"\x1b[32mloss: {loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm: {1.5:7.4f}  \x1b[36mmemory: "
        f"{40.25:5.2f}GiB(42.10%)  \x1b[34mtps: 12,345  \x1b[36mtflops: 412.30  \x1b[35mmfu: "
        "41.20%\x1b[39m"
    )


def maxtext(step: int, loss: float, steps: int = 6) -> str:
    """MaxText's metric logger, steps from 0."""
    return (
        f"I1121 07:30:54.0904{step} 140028551105408 metric_logger.py:265] completed step: {step}, "
        "seconds: 0.054, TFLOP/s/device: 0.048, Tokens/s/device: 18995.325, total_weights: 1016, "
        f"loss: {loss + 0.5:.3f}, lm_loss: {loss:.3f}, perplexity: 881.656"
    )


def deepspeed(step: int, loss: float, steps: int = 6) -> str:
    """DeepSpeed's pipeline engine, steps from 1."""
    return f"steps: {step + 1} loss: {loss:0.4f} iter time (s): 0.512 samples/sec: 500.100"


TRAINERS = {
    "Megatron-LM": (
        megatron,
        1,
        ".6E",
        "NVIDIA/Megatron-LM megatron/training/training.py (training_log)",
    ),
    "NeMo": (nemo, 0, ".4g", "NVIDIA/NeMo lightning/pytorch/callbacks/progress_printer.py"),
    "torchtitan": (torchtitan, 1, ".4f", "pytorch/torchtitan components/metrics.py"),
    "MaxText": (maxtext, 0, ".3f", "AI-Hypercomputer/maxtext common/metric_logger.py"),
    "DeepSpeed": (deepspeed, 1, ".4f", "deepspeedai/DeepSpeed runtime/pipe/engine.py"),
}


def _of_trainer(trainer: str, prefixes: Sequence[str] = ("",), without: str = "") -> Log:
    """A trainer's log, each line once for each rank's prefix, `without` a pattern of what was taken
    out.
    """
    line, first, spec, origin = TRAINERS[trainer]

    def write(path: Path, _first: int, losses: Losses) -> None:
        lines = [
            prefix + line(number, loss, len(losses))
            for number, loss in enumerate(losses)
            for prefix in prefixes
        ]
        path.write_text(
            PREAMBLE
            + "".join(f"{re.sub(without, '', text) if without else text}\n" for text in lines)
        )

    return Log(origin, write, first=first, shown=lambda loss: float(format(loss, spec)))


# Libraries of Python that are installed here.


def _logged(path: Path, first: int, losses: Losses) -> None:
    logger, handler = logging.Logger("train"), logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    logger.addHandler(handler)
    for step, loss in enumerate(losses, first):
        logger.info("step %d loss=%r lr=%.2e", step, loss, 3e-4)
    handler.close()


def _logged_by_absl(path: Path, first: int, losses: Losses) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(absl_logging.PythonFormatter())
    for step, loss in enumerate(losses, first):
        handler.emit(
            logging.LogRecord(
                "absl", logging.INFO, "train.py", 99, "step: %d, loss: %r", (step, loss), None
            )
        )
    path.write_text(stream.getvalue())


def _by_rich(path: Path, first: int, losses: Losses) -> None:
    with path.open("w") as stream:
        console = Console(file=stream, force_terminal=True, width=120)
        for step, loss in enumerate(losses, first):
            console.log(f"[bold]step[/bold] {step} [green]loss[/green] {loss!r}")


def _rows(first: int, losses: Losses) -> list[dict[str, float]]:
    return [{"step": step, "loss": loss, "lr": 3e-4} for step, loss in enumerate(losses, first)]


def _frame(first: int, losses: Losses) -> pd.DataFrame:
    return pd.DataFrame(_rows(first, losses))


def _by_csv_module(path: Path, first: int, losses: Losses) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ("step", "loss", "lr"), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(_rows(first, losses))


def _zipped(path: Path, first: int, losses: Losses) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metrics.csv", _frame(first, losses).to_csv(index=False))


def _text(form: Callable[[int, Losses], str]) -> Writer:
    return lambda path, first, losses: path.write_text(form(first, losses))


def _lines(form: Callable[[int, float], str], header: str = "") -> Writer:
    return _text(
        lambda first, losses: (
            header + "".join(f"{form(step, loss)}\n" for step, loss in enumerate(losses, first))
        )
    )


# What trackers and trainers save.


def _mlperf(step: int, loss: float) -> str:
    about = {
        "file": "/workspace/llm/custom_callbacks.py",
        "lineno": 480,
        "step": float(step),
        "samples_count": float(step),
    }
    stats = {"train_step_time": 0.1427, "reduced_train_loss": loss}
    event = {
        "namespace": "",
        "time_ms": 1759903657145,
        "event_type": "POINT_IN_TIME",
        "key": "tracked_stats",
        "value": stats,
        "metadata": about,
    }
    return f":::MLLOG {json.dumps(event)}"


def _golden(first: int, losses: Losses) -> str:
    steps = [str(step) for step in range(first, first + len(losses))]
    about = {"start_step": first, "end_step": first + len(losses) - 1, "step_interval": 1}
    return json.dumps(
        {"lm loss": {**about, "values": dict(zip(steps, losses, strict=True))}}, indent=4
    )


def _trainer_state(first: int, losses: Losses) -> str:
    history = [
        {"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 2e-05, **row}
        for row in _rows(first, losses)
    ]
    return json.dumps(
        {
            "epoch": 1.0,
            "global_step": len(losses),
            "log_history": [*history, {"train_loss": 3.0, "step": len(losses)}],
        },
        indent=2,
    )


def _metrics(step: int, loss: float) -> str:
    return json.dumps(
        {
            "learning/lm_loss": loss,
            "learning/loss": loss + 0.1,
            "perf/step_time_seconds": 0.5,
            "step": float(step),
        }
    )


TABLE = "step,loss,lr\n"
LOGS: dict[str, Log] = {
    **{name: _printed(name) for name in PRINTED},
    **{name: _of_trainer(name) for name in TRAINERS},
    "Megatron-LM, ranks": _of_trainer("Megatron-LM", [f"{rank}: " for rank in range(3)]),
    "torchtitan, torchrun": _of_trainer("torchtitan", ["[rank0]:", "[rank1]:"]),
    "torchtitan, without colours": _of_trainer("torchtitan", without=r"\x1b\[[0-9;]*m"),
    "MaxText, without its lm_loss": _of_trainer("MaxText", without=r"loss: [\d.]+, lm_"),
    "logging": Log("Python's logging module", _logged),
    "absl": Log("absl-py's formatter", _logged_by_absl),
    "rich": Log("rich's Console.log, with colours", _by_rich),
    "printed dicts": Log(
        "print(dict) of Python", _lines(lambda step, loss: str({"step": step, "loss": loss}))
    ),
    "csv module": Log("Python's csv module, every cell quoted", _by_csv_module, "metrics.csv"),
    "pandas CSV": Log(
        "pandas to_csv",
        _text(lambda first, losses: _frame(first, losses).to_csv(index=False)),
        "metrics.csv",
    ),
    "pandas CSV, index": Log(
        "pandas to_csv with its index",
        _text(lambda first, losses: _frame(first, losses).to_csv()),
        "metrics.csv",
    ),
    "pandas TSV": Log(
        "pandas to_csv",
        _text(lambda first, losses: _frame(first, losses).to_csv(sep="\t", index=False)),
        "metrics.tsv",
    ),
    "German Excel": Log(
        "a spreadsheet's CSV with decimal commas",
        lambda path, first, losses: _frame(first, losses).to_csv(
            path, sep=";", decimal=",", index=False, encoding="utf-8-sig"
        ),
        "metrics.csv",
    ),
    "Unicode text": Log(
        "a spreadsheet's Unicode text",
        lambda path, first, losses: _frame(first, losses).to_csv(
            path, sep="\t", index=False, encoding="utf-16"
        ),
        "m.txt",
    ),
    "gzip": Log(
        "pandas to_csv, compressed",
        lambda path, first, losses: _frame(first, losses).to_csv(path, index=False),
        "metrics.csv.gz",
    ),
    "zip": Log("Python's zipfile module", _zipped, "metrics.zip"),
    "pandas text": Log(
        "pandas to_string",
        _text(lambda first, losses: f"{_frame(first, losses).to_string(index=False)}\n"),
        shown=lambda loss: float(f"{loss:.6f}"),
    ),
    "pandas lines": Log(
        "pandas to_json",
        lambda path, first, losses: _frame(first, losses).to_json(
            path, orient="records", lines=True
        ),
        "m.jsonl",
    ),
    "pandas records": Log(
        "pandas to_json",
        lambda path, first, losses: _frame(first, losses).to_json(path, orient="records"),
        "m.json",
    ),
    "object of lists": Log(
        "json.dump of lists",
        _text(lambda first, losses: json.dumps(_frame(first, losses).to_dict("list"))),
        "m.json",
    ),
    "rows": Log(
        "json.dump of pairs",
        _text(lambda first, losses: json.dumps(list(map(list, enumerate(losses, first))))),
        "m.json",
    ),
    "printed history": Log(
        "a notebook that prints log_history",
        _text(lambda first, losses: f"{_rows(first, losses)}\n"),
        "notebook.txt",
    ),
    "pprint": Log(
        "a notebook that pretty-prints log_history",
        _text(lambda first, losses: pprint.pformat(_rows(first, losses)) + "\n"),
        "out.txt",
    ),
    "Parquet": Log(
        "pandas and pyarrow",
        lambda path, first, losses: _frame(first, losses).to_parquet(path),
        "metrics.parquet",
    ),
    "NumPy": Log(
        "numpy savez",
        lambda path, first, losses: np.savez(
            path, **{"run/step": np.arange(len(losses)) + first, "run/loss": losses}
        ),
        "runs.npz",
    ),
    "trainer_state.json": Log(
        "transformers trainer_callback.py (TrainerState)",
        _text(_trainer_state),
        "trainer_state.json",
    ),
    "metrics.csv of Lightning": Log(
        "Lightning loggers/csv_logs.py: a row without a loss for each evaluation",
        _lines(
            lambda step, loss: f"0,{step},{loss},\n0,{step},,3.5",
            "epoch,step,train_loss,val_loss\n",
        ),
        "metrics.csv",
    ),
    "metrics_file of MaxText": Log(
        "AI-Hypercomputer/maxtext metric_logger.py", _lines(_metrics), "metrics.jsonl", first=0
    ),
    "TensorBoard's CSV": Log(
        "the page of TensorBoard",
        _lines(lambda step, loss: f"{1.7e9 + step},{step},{loss}", "Wall time,Step,Value\n"),
        "run.csv",
    ),
    "TensorBoard's JSON": Log(
        "the page of TensorBoard",
        _text(
            lambda first, losses: json.dumps(
                [[1.7e9 + n, first + n, loss] for n, loss in enumerate(losses)]
            )
        ),
        "run.json",
    ),
    "W&B's export": Log(
        "the page of W&B, one run's chart",
        _lines(
            lambda step, loss: f'"{step}","{loss}","{loss}","{loss}"',
            '"Step","a - train/loss","a - train/loss__MIN","a - train/loss__MAX"\n',
        ),
        "wandb_export.csv",
    ),
    "MLflow's download": Log(
        "MLflow's page (convertMetricsToCsv)",
        _lines(
            lambda step, loss: f"0a1b,loss,{loss},{step},1759903657145",
            "run_id,key,value,step,timestamp\n",
        ),
        "d.csv",
    ),
    "notebook table": Log(
        "transformers utils/notebook.py (NotebookTrainingTracker), copied",
        _lines(lambda step, loss: f"{step}\t{loss:.6f}", "Step\tTraining Loss\n"),
        "table.txt",
        shown=lambda loss: float(f"{loss:.6f}"),
    ),
    "golden values": Log(
        "NVIDIA/Megatron-LM tests/functional_tests (golden_values.json)",
        _text(_golden),
        "golden_values.json",
    ),
    "MLPerf": Log(
        "mlcommons/training_results_v5.1, NVIDIA's llama31_8b", _lines(_mlperf), "result_0.txt"
    ),
    "bare columns": Log(
        "numpy savetxt",
        lambda path, first, losses: np.savetxt(path, np.c_[np.arange(len(losses)) + first, losses]),
        "loss.txt",
    ),
    "blanks": Log(
        "a script of one's own",
        _lines(lambda step, loss: f"{step:6d}  {loss!r}", "  step  loss\n"),
        "loss.txt",
    ),
    # What needs an option, which the refusal names.
    "word_language_model": Log(
        "pytorch/examples word_language_model/main.py",
        _lines(
            lambda step, loss: (
                f"| epoch   1 | {step:5d}/29830 batches | lr 20.00 | ms/batch 9.75 | loss "
                f"{loss:5.4f} | ppl  1465.70"
            )
        ),
        shown=lambda loss: float(f"{loss:.4f}"),
        option=("--pattern", r"\|\s+(?P<step>\d+)/.*?loss\s+(?P<loss>\S+)"),
    ),
    "other words": Log(
        "a script of one's own",
        _lines(lambda step, loss: f"tick {step} objective {loss!r}"),
        option=("--pattern", r"tick (?P<step>\d+).*?objective (?P<loss>\S+)"),
    ),
    "other columns": Log(
        "a script of one's own",
        _lines(lambda step, loss: f"{step},{loss!r}", "n,loss\n"),
        "metrics.csv",
        option=("--column", "step=n"),
    ),
}
"""Each form by its name."""

REFUSED = {
    "sums": (
        _lines(lambda step, loss: f"step {step} loss {1000 * loss!r}"),
        "outside 0 to 30 nats",
    ),
    "accuracy": (
        _lines(lambda step, loss: f"{step},{loss / 10!r}", "step,accuracy\n"),
        "no loss column",
    ),
    "samples seen": (
        _lines(lambda step, loss: f"Train Epoch: 1 [{64 * step}/60000 (1%)]\tLoss: {loss:.6f}"),
        "neither a table nor a log",
    ),
    "two ranks": (
        _lines(lambda step, loss: f"0: step {step} loss {loss}\n1: step {step} loss {loss + 0.1}"),
        "print different losses",
    ),
    "two runs": (
        _lines(lambda step, loss: f"step {step} loss {loss}\nstep {step} loss {loss + 0.1}"),
        "two runs or ranks may be mixed",
    ),
    "evaluations alone": (_lines(lambda step, loss: f"step {step} val_loss {loss}"), "loss"),
    "epochs": (
        _lines(lambda step, loss: f"{step},{loss},{loss}", "epoch,loss,val_loss\n"),
        "no step column",
    ),
    "rounded steps": (
        _lines(
            lambda step, loss: (
                f"Epoch 0: :   5%|5   | 3/62 [02:59, reduced_train_loss={loss}, "
                f"global_step={step / 1000:.1f}e+3]"
            )
        ),
        "step rounded",
    ),
    "prose": (
        _text(
            lambda first, losses: (
                f"The run from step {first} of {len(losses)} went well.\nSee the figure.\n"
            )
        ),
        "neither a table nor a log",
    ),
}
"""What is refused as intended: how it is written, and what the refusal says."""
