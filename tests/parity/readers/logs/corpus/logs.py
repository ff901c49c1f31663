"""Logs as trainers and trackers write them: a name, its origin, and what writes a run of given
losses in that form.

Those of libraries that are installed here (the `json`, `csv` and `logging` modules, rich, pandas,
pyarrow, numpy, absl) are written by the library itself; the others by the line that the trainer's
source prints, where `origin` says.
"""

import json
import pprint

import numpy as np

from tests.parity.readers.logs.corpus.form import Log
from tests.parity.readers.logs.corpus.printed import PRINTED, printed_log
from tests.parity.readers.logs.corpus.saved import (
    golden_values,
    maxtext_metrics,
    mlperf_line,
    trainer_state,
)
from tests.parity.readers.logs.corpus.trainers import TRAINERS, trainer_log
from tests.parity.readers.logs.corpus.writers import (
    frame_of,
    line_writer,
    rows_of,
    text_writer,
    write_by_absl,
    write_by_csv_module,
    write_by_logging,
    write_by_rich,
    write_zipped,
)

LOGS: dict[str, Log] = {
    **{name: printed_log(name) for name in PRINTED},
    **{name: trainer_log(name) for name in TRAINERS},
    "Megatron-LM, ranks": trainer_log("Megatron-LM", [f"{rank}: " for rank in range(3)]),
    "torchtitan, torchrun": trainer_log("torchtitan", ["[rank0]:", "[rank1]:"]),
    "torchtitan, without colours": trainer_log("torchtitan", without=r"\x1b\[[0-9;]*m"),
    "MaxText, without its lm_loss": trainer_log("MaxText", without=r"loss: [\d.]+, lm_"),
    "logging": Log("Python's logging module", write_by_logging),
    "absl": Log("absl-py's formatter", write_by_absl),
    "rich": Log("rich's Console.log, with colours", write_by_rich),
    "printed dicts": Log(
        "print(dict) of Python", line_writer(lambda step, loss: str({"step": step, "loss": loss}))
    ),
    "csv module": Log("Python's csv module, every cell quoted", write_by_csv_module, "metrics.csv"),
    "pandas CSV": Log(
        "pandas to_csv",
        text_writer(lambda first, losses: frame_of(first, losses).to_csv(index=False)),
        "metrics.csv",
    ),
    "pandas CSV, index": Log(
        "pandas to_csv with its index",
        text_writer(lambda first, losses: frame_of(first, losses).to_csv()),
        "metrics.csv",
    ),
    "pandas TSV": Log(
        "pandas to_csv",
        text_writer(lambda first, losses: frame_of(first, losses).to_csv(sep="\t", index=False)),
        "metrics.tsv",
    ),
    "German Excel": Log(
        "a spreadsheet's CSV with decimal commas",
        lambda path, first, losses: frame_of(first, losses).to_csv(
            path, sep=";", decimal=",", index=False, encoding="utf-8-sig"
        ),
        "metrics.csv",
    ),
    "Unicode text": Log(
        "a spreadsheet's Unicode text",
        lambda path, first, losses: frame_of(first, losses).to_csv(
            path, sep="\t", index=False, encoding="utf-16"
        ),
        "m.txt",
    ),
    "gzip": Log(
        "pandas to_csv, compressed",
        lambda path, first, losses: frame_of(first, losses).to_csv(path, index=False),
        "metrics.csv.gz",
    ),
    "zip": Log("Python's zipfile module", write_zipped, "metrics.zip"),
    "pandas text": Log(
        "pandas to_string",
        text_writer(lambda first, losses: f"{frame_of(first, losses).to_string(index=False)}\n"),
        shown=lambda loss: float(f"{loss:.6f}"),
    ),
    "pandas lines": Log(
        "pandas to_json",
        lambda path, first, losses: frame_of(first, losses).to_json(
            path, orient="records", lines=True
        ),
        "m.jsonl",
    ),
    "pandas records": Log(
        "pandas to_json",
        lambda path, first, losses: frame_of(first, losses).to_json(path, orient="records"),
        "m.json",
    ),
    "object of lists": Log(
        "json.dump of lists",
        text_writer(lambda first, losses: json.dumps(frame_of(first, losses).to_dict("list"))),
        "m.json",
    ),
    "rows": Log(
        "json.dump of pairs",
        text_writer(lambda first, losses: json.dumps(list(map(list, enumerate(losses, first))))),
        "m.json",
    ),
    "printed history": Log(
        "a notebook that prints log_history",
        text_writer(lambda first, losses: f"{rows_of(first, losses)}\n"),
        "notebook.txt",
    ),
    "pprint": Log(
        "a notebook that pretty-prints log_history",
        text_writer(lambda first, losses: pprint.pformat(rows_of(first, losses)) + "\n"),
        "out.txt",
    ),
    "Parquet": Log(
        "pandas and pyarrow",
        lambda path, first, losses: frame_of(first, losses).to_parquet(path),
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
        text_writer(trainer_state),
        "trainer_state.json",
    ),
    "metrics.csv of Lightning": Log(
        "Lightning loggers/csv_logs.py: a row without a loss for each evaluation",
        line_writer(
            lambda step, loss: f"0,{step},{loss},\n0,{step},,3.5",
            "epoch,step,train_loss,val_loss\n",
        ),
        "metrics.csv",
    ),
    "metrics_file of MaxText": Log(
        "AI-Hypercomputer/maxtext metric_logger.py",
        line_writer(maxtext_metrics),
        "metrics.jsonl",
        first=0,
    ),
    "TensorBoard's CSV": Log(
        "the page of TensorBoard",
        line_writer(lambda step, loss: f"{1.7e9 + step},{step},{loss}", "Wall time,Step,Value\n"),
        "run.csv",
    ),
    "TensorBoard's JSON": Log(
        "the page of TensorBoard",
        text_writer(
            lambda first, losses: json.dumps(
                [[1.7e9 + n, first + n, loss] for n, loss in enumerate(losses)]
            )
        ),
        "run.json",
    ),
    "W&B's export": Log(
        "the page of W&B, one run's chart",
        line_writer(
            lambda step, loss: f'"{step}","{loss}","{loss}","{loss}"',
            '"Step","a - train/loss","a - train/loss__MIN","a - train/loss__MAX"\n',
        ),
        "wandb_export.csv",
    ),
    "MLflow's download": Log(
        "MLflow's page (convertMetricsToCsv)",
        line_writer(
            lambda step, loss: f"0a1b,loss,{loss},{step},1759903657145",
            "run_id,key,value,step,timestamp\n",
        ),
        "d.csv",
    ),
    "notebook table": Log(
        "transformers utils/notebook.py (NotebookTrainingTracker), copied",
        line_writer(lambda step, loss: f"{step}\t{loss:.6f}", "Step\tTraining Loss\n"),
        "table.txt",
        shown=lambda loss: float(f"{loss:.6f}"),
    ),
    "golden values": Log(
        "NVIDIA/Megatron-LM tests/functional_tests (golden_values.json)",
        text_writer(golden_values),
        "golden_values.json",
    ),
    "MLPerf": Log(
        "mlcommons/training_results_v5.1, NVIDIA's llama31_8b",
        line_writer(mlperf_line),
        "result_0.txt",
    ),
    "bare columns": Log(
        "numpy savetxt",
        lambda path, first, losses: np.savetxt(path, np.c_[np.arange(len(losses)) + first, losses]),
        "loss.txt",
    ),
    "blanks": Log(
        "a script of one's own",
        line_writer(lambda step, loss: f"{step:6d}  {loss!r}", "  step  loss\n"),
        "loss.txt",
    ),
    "word_language_model": Log(
        "pytorch/examples word_language_model/main.py",
        line_writer(
            lambda step, loss: (
                f"| epoch   1 | {step:5d}/29830 batches | lr 20.00 | ms/batch 9.75 | loss "
                f"{loss:5.4f} | ppl  1465.70"
            )
        ),
        shown=lambda loss: float(f"{loss:.4f}"),
    ),
    "Keras CSVLogger": Log(
        "keras callbacks/csv_logger.py: rows are numbered",
        line_writer(lambda step, loss: f"{step - 1},{loss},{loss}", "epoch,loss,val_loss\n"),
        "history.csv",
    ),
    # What needs an option, which the refusal names.
    "other words": Log(
        "a script of one's own",
        line_writer(lambda step, loss: f"tick {step} objective {loss!r}"),
        option=("--pattern", r"tick (?P<step>\d+).*?objective (?P<loss>\S+)"),
    ),
    "other columns": Log(
        "a script of one's own",
        line_writer(lambda step, loss: f"{step},{loss!r}", "n,loss\n"),
        "metrics.csv",
        option=("--column", "step=n"),
    ),
}
"""Each form by its name."""


REFUSED = {
    "sums": (
        line_writer(lambda step, loss: f"step {step} loss {1000 * loss!r}"),
        "outside 0 to 30 nats",
    ),
    "accuracy": (
        line_writer(lambda step, loss: f"{step},{loss / 10!r}", "step,accuracy\n"),
        "no loss column",
    ),
    "two ranks": (
        line_writer(
            lambda step, loss: f"0: step {step} loss {loss}\n1: step {step} loss {loss + 0.1}"
        ),
        "print different losses",
    ),
    "two runs": (
        line_writer(lambda step, loss: f"step {step} loss {loss}\nstep {step} loss {loss + 0.1}"),
        "two runs or ranks may be mixed",
    ),
    "evaluations alone": (line_writer(lambda step, loss: f"step {step} val_loss {loss}"), "loss"),
    "a column that may count": (
        line_writer(lambda step, loss: f"{step},{loss},{loss}", "seen,loss,val_loss\n"),
        "no step column",
    ),
    "rounded steps": (
        line_writer(
            lambda step, loss: (
                f"Epoch 0: :   5%|5   | 3/62 [02:59, reduced_train_loss={loss}, "
                f"global_step={step / 1000:.1f}e+3]"
            )
        ),
        "step rounded",
    ),
    "prose": (
        text_writer(
            lambda first, losses: (
                f"The run from step {first} of {len(losses)} went well.\nSee the figure.\n"
            )
        ),
        "neither a table nor a log",
    ),
}
"""What is refused as intended: how it is written, and what the refusal says."""
