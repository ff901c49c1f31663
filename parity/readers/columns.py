"""Which column is which: names that trainers and exporters give to the step, the training loss and what goes with it.

The first name that is there wins, so the language-model loss is read before a total that has z-loss or router losses in it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from parity.judging.curve import MAX_STEP
from parity.readers.source import ReadError

STEP, LOSS = "step", "loss"
KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    STEP: ("step", "steps", "_step", "global_step", "train/global_step", "iteration", "iter", "training_step", "train/step"),
    LOSS: (
        "learning/lm_loss",
        "lm_loss",
        "lm loss",
        "train/lm_loss",
        "lm-loss-training/lm loss",
        "learning/loss",
        "train/loss",
        "train_loss",
        "training_loss",
        "loss/train",
        "loss_metrics/global_avg_loss",
        "loss",
        "value",
    ),
    "grad_norm": ("learning/raw_grad_norm", "raw_grad_norm", "grad_norm", "learning/grad_norm", "train/grad_norm", "grad-norm"),
    "clipped_grad_norm": ("clipped_grad_norm", "learning/grad_norm"),
    "learning_rate": ("learning/current_learning_rate", "learning_rate", "lr", "train/learning_rate", "learning-rate"),
    "step_seconds": ("perf/step_time_seconds", "step_seconds", "step_time_seconds", "step_time", "iteration-time"),
    "tokens": ("tokens", "perf/per_device_tokens", "tokens_per_step"),
    "tokens_per_second": ("perf/per_device_tokens_per_sec", "tokens_per_second", "throughput(tps)"),
    "tflops": ("perf/per_device_tflops_per_sec", "tflops", "tflops_per_second"),
    "validation_loss": ("validation_loss", "val_loss", "valid/loss", "val/loss"),
}


def find_columns(names: Sequence[str], wanted: Mapping[str, str], source: str) -> dict[str, str]:
    """Map each quantity to its column: as `wanted` says, else by known names; raises ReadError where step or loss can't be found."""
    columns: dict[str, str] = {}
    for quantity, column in wanted.items():
        if column not in names:
            raise ReadError(
                f"{source}: no column {column!r} for {quantity}; the columns are {_listed(names)}{_did_you_mean(column, names)}"
            )
        columns[quantity] = column
    for quantity, aliases in KNOWN_NAMES.items():
        if quantity not in columns and (guess := _first_known(names, aliases, source)) is not None:
            columns[quantity] = guess
    if columns.get("clipped_grad_norm") == columns.get("grad_norm"):  # MaxText's name for it, read already where the norm before is missing
        columns.pop("clipped_grad_norm", None)
    for quantity in (STEP, LOSS):
        if quantity not in columns:
            raise ReadError(f"{source}: no {quantity} column among {_listed(names)}; name it with --column {quantity}=NAME")
    return columns


def step_number(value: float, where: str) -> float:
    """A step as it is; raises ReadError where it is no whole number from 0 to 2^53."""
    if not (0 <= value <= MAX_STEP and value == int(value)):
        raise ReadError(
            f"{where}: step {value!r} is not a whole number from 0 to 2^53; name the column that counts steps with --column step=NAME"
        )
    return value


def _first_known(names: Sequence[str], aliases: Iterable[str], source: str) -> str | None:
    plain = [(name, _plain(name)) for name in names]
    for wanted in aliases:
        hits = [name for name, short in plain if short == wanted]
        if len(hits) > 1:
            raise ReadError(f"{source}: {len(hits)} columns could be {wanted!r}: {_listed(hits)}; name one with --column")
        if hits:
            return hits[0]
    return None


def _plain(name: str) -> str:
    """A name in lower case, without the run's name that exports put before it ("run - train/loss")."""
    return name.strip().lower().rsplit(" - ", 1)[-1]


def _did_you_mean(word: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")
