"""Which column is which: names that trainers and exporters give to the step, the training loss and
what goes with it.

The first name that is there wins. The language-model loss is read before a total that has z-loss
or router losses in it, and `loss` before `train_loss`, which the Hugging Face trainer writes once,
as the mean of the whole run. `RunColumns.taken` says what was taken, and what could also have
been the loss. Consumed samples and tokens are never steps.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from parity.readers.errors import NoLossError, ReadError
from parity.wording import first_few

STEP, LOSS, VALIDATION, PERPLEXITY = "step", "loss", "validation_loss", "perplexity"
KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        *("step", "steps", "_step", "global_step", "train/global_step", "trainer/global_step"),
        *("iteration", "iter", "training_step", "train/step"),
    ),
    LOSS: (
        *(
            "learning/lm_loss",
            "lm_loss",
            "lm loss",
            "train/lm_loss",
            "lm-loss-training/lm loss",
            "learning/loss",
        ),
        *(
            "reduced_train_loss",
            "train/loss",
            "loss",
            "train_loss_step",
            "train_loss",
            "training_loss",
            "loss/train",
            "training loss",
        ),
        *("train_loss_epoch", "loss_metrics/global_avg_loss", "value"),
    ),
    "grad_norm": (
        "learning/raw_grad_norm",
        "raw_grad_norm",
        "grad_norm",
        "learning/grad_norm",
        "train/grad_norm",
        "grad-norm",
        "grad norm",
    ),
    "clipped_grad_norm": ("clipped_grad_norm", "learning/grad_norm"),
    "learning_rate": (
        "learning/current_learning_rate",
        "learning_rate",
        "lr",
        "train/learning_rate",
        "learning-rate",
        "learning rate",
    ),
    "step_seconds": (
        "perf/step_time_seconds",
        "step_seconds",
        "step_time_seconds",
        "step_time",
        "iteration-time",
        "train_step_timing in s",
    ),
    # when a step ended; W&B's and TensorBoard's exports have it
    "unix_seconds": ("unix_seconds", "_timestamp", "wall time", "wall_time"),
    "tokens": ("tokens", "perf/per_device_tokens", "tokens_per_step"),
    "tokens_per_second": ("perf/per_device_tokens_per_sec", "tokens_per_second", "throughput(tps)"),
    "tflops": ("perf/per_device_tflops_per_sec", "tflops", "tflops_per_second"),
    # read to see of which base the loss is
    PERPLEXITY: ("ppl", "perplexity", "train/ppl", "train_ppl", "train/perplexity"),
    VALIDATION: (
        *(
            "validation_loss",
            "val_loss",
            "valid/loss",
            "val/loss",
            "eval_loss",
            "eval/loss",
            "valid_loss",
        ),
        *("validation_metrics/loss", "lm loss validation", "validation loss"),
    ),
}
OPTION = "--column {}=NAME"  # the option that names the column of a quantity, for errors
TOTAL_LOSS = "total_loss"  # never guessed: a column that --column names, for the record
QUANTITIES = (*KNOWN_NAMES, TOTAL_LOSS)
_NO_LOSS = re.compile(r"(?:^|[^a-z])(acc|accuracy|ppl|perplexity|bits|bpb|bpc|bpt)(?:[^a-z]|$)")
HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluation", "test", "heldout"))
NOT_THE_LOSS = HELD_OUT | frozenset(
    (
        *("scale", "min", "max", "std"),
        *("aux", "z", "mtp", "moe", "lb", "load", "balance", "balancing", "router", "indexer"),
    )
)
"""Words in the name of a column that has another loss, or its range."""
_MOST_SHOWN = 60  # characters of a name


def find_columns(
    names: Sequence[str], named_columns: Mapping[str, str], source: str, option: str = OPTION
) -> dict[str, str]:
    """Map each quantity to its column: as `named_columns` says, else by known names. `option`
    names a quantity's column on the command line.

    Raises ReadError where step or loss can't be found, a named quantity or column is unknown, or
    the loss's column is named as an accuracy or a perplexity.
    """
    columns: dict[str, str] = {}
    for quantity, column in named_columns.items():
        if quantity not in QUANTITIES:
            raise ReadError(
                f"{source}: no quantity is called {quantity!r}; expected one of "
                f"{', '.join(QUANTITIES)} before the ="
            )
        if column not in names:
            raise ReadError(
                f"{source}: no column {column!r} for {quantity}; the columns are "
                f"{listed(names)}{did_you_mean(column, names)}"
            )
        columns[quantity] = column
    for quantity, aliases in KNOWN_NAMES.items():
        if (
            quantity not in columns
            and (guess := _known_column(names, aliases, source, option.format(quantity)))
            is not None
        ):
            columns[quantity] = guess
    for quantity, column in columns.items():
        if list(names).count(column) > 1:
            raise ReadError(
                f"{source}: {list(names).count(column)} columns are called {column!r}; expected "
                f"one for {quantity}; rename the others"
            )
    # MaxText's name for it, read already where the norm before is missing
    if columns.get("clipped_grad_norm") == columns.get("grad_norm"):
        columns.pop("clipped_grad_norm", None)
    for quantity, error in ((STEP, ReadError), (LOSS, NoLossError)):
        if quantity not in columns:
            raise error(
                f"{source}: no {quantity} column among {listed(names)}; name it with "
                f"{option.format(quantity)}"
            )
    is_stated = LOSS in named_columns
    if (word := _NO_LOSS.search(columns[LOSS].lower())) and not (
        is_stated and is_in_bits(columns[LOSS])
    ):
        what = {"a": "an accuracy", "p": "a perplexity", "b": "a loss in bits"}[word[1][0]]
        raise ReadError(
            f"{source}: column {columns[LOSS]!r} is named as {what}, not as a loss; expected the "
            f"cross-entropy in nats per token; name its column with {option.format(LOSS)}"
        )
    return columns


def other_losses(names: Iterable[str], taken: str) -> tuple[str, ...]:
    """Columns that could also be the training loss, in their order: known names of it, and others
    with "loss" in them.
    """
    loss_names = set(KNOWN_NAMES[LOSS]) - {"value"}
    words = {name: name_words(name) for name in names if name != taken}
    return tuple(
        name
        for name, parts in words.items()
        if plain_name(name) in loss_names or ("loss" in parts and not parts & NOT_THE_LOSS)
    )


def is_in_bits(column: str) -> bool:
    """Whether a column is named as a loss in bits, such as bpb or bits_per_token."""
    word = _NO_LOSS.search(column.lower())
    return word is not None and word[1].startswith("b")


def is_held_out(column: str) -> bool:
    """Whether a column is named as a loss on held-out data, such as val_loss or eval/loss."""
    return bool(HELD_OUT & name_words(column))


def name_words(name: str) -> set[str]:
    """The words in the name of a column, in lower case."""
    return set(re.split(r"[^a-z]+", plain_name(name)))


def plain_name(name: str) -> str:
    """A name in lower case, without the run's name that exports put before it ("run -
    train/loss").
    """
    return name.strip().lower().rsplit(" - ", 1)[-1]


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """ "; did you mean 'X'?" where a column's name is close, else ""."""
    close = difflib.get_close_matches(word, names, n=1)
    if not close:
        return ""
    return f"; did you mean {close[0]!r}?"


def listed(names: Sequence[str]) -> str:
    """The first 12 names in quotes, the first characters of each, and how many more there are."""
    return first_few(
        [repr(name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…") for name in names], 12
    )


def first_known_name(names: Sequence[str], aliases: Sequence[str]) -> str | None:
    """The column that has the first of some known names, in any case; None where none has."""
    by_plain = {name.strip().lower(): name for name in reversed(names)}
    return next((by_plain[word] for word in aliases if word in by_plain), None)


def _known_column(
    names: Sequence[str], aliases: Iterable[str], source: str, option: str
) -> str | None:
    plain = [(name, plain_name(name)) for name in names]
    for alias in aliases:
        hits = [name for name, short in plain if short == alias]
        if len(hits) > 1:
            raise ReadError(
                f"{source}: {len(hits)} columns could be {alias!r}: {listed(hits)}; name one with "
                f"{option}"
            )
        if hits:
            return hits[0]
    return None
