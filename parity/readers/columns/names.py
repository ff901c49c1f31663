"""Which column is which: names that trainers and exporters give to the step, the training loss and
what goes with it.

The first name that is there wins. The language-model loss is read before a total that has z-loss
or router losses in it, and `loss` before `train_loss`, which the Hugging Face trainer writes once,
as the mean of the whole run. `RunColumns.taken` says what was taken, and what could also have
been the loss. Consumed samples and tokens in a column are never steps.

Names are compared without case, and with one sign for those that stand between groups ("/", ".")
and one for those between words ("_", "-", a blank). A name that groups of no meaning of their own
stand before ("metrics/train/loss") is known by its last parts.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from parity.readers.errors import ColumnError, NoLossError, ReadError
from parity.wording import first_few

STEP, LOSS, VALIDATION, PERPLEXITY = "step", "loss", "validation_loss", "perplexity"
RATE, PLANNED = "learning_rate", "planned_steps"
VALUE = "value"
"""The name of a column of losses without the name of a metric."""
UNNAMED = (VALUE, "metric")
"""Names of a column of losses in which none is named: the file's name, or a person, says which."""
EPOCH = "epoch"
MICRO_STEP = "micro_step"
"""The quantity of a second counter, which counts micro batches where the step counts updates."""
HELD_OUT_LOSS = "the held-out loss"
"""What stands for the column of the loss where a person states that the losses are held-out: the
only one that is, where no other is known.
"""
NUMBERED = "the number of the row"
"""What stands for the column of the step where no column counts: rows are numbered from 1."""
NUMBERED_LINES = "the number of the line"
"""The same of a log whose lines have no step: those with a loss are numbered from 1."""
POSITION = "the position in the array"
"""The same of an array of losses: its positions are counted from 0."""
KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        # of an optimizer, which counts once for several micro batches
        *("optimizer_step", "train/optimizer_step", "optimizer_steps", "optim_step", "opt_step"),
        *("update_step", "train/update_step", "num_updates", "train/num_updates"),
        *("completed_steps", "global_step", "train/global_step", "trainer/global_step"),
        "global_steps",
        *("step", "steps", "training_step", "train/step"),
        *("current_steps", "current_step", "global_step/max_steps"),
        *("train_step", "train_steps", "training_steps", "trainer/step"),
        *("step_num", "step_i", "step_idx", "update", "updates"),
        *("iteration", "iter", "train/iteration", "iterations", "iters", "iter_num"),
        # a logger's own counter, then batches of which a step has several
        *("training_iteration", "iteration_number", "_step", "micro_step", "train/micro_step"),
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
        *("train/loss_step", "loss_step", "step_loss", "train/step_loss", "train_step_loss"),
        *("batch_loss", "train/batch_loss", "train_batch_loss", "losses", "train_losses"),
        *("cross_entropy_loss", "train/cross_entropy_loss", "cross_entropy", "ce_loss", "ce"),
        *("train/cross_entropy", "train/ce_loss", "train_ce_loss", "nll_loss", "train/nll_loss"),
        *("reduced_llm_loss", "llm_loss", "gpt_loss", "main/loss", "loss/out"),
        *("xent", "nll", "train_loss_epoch", "train/loss_epoch", "loss_epoch"),
        *("loss_metrics/global_avg_loss", *UNNAMED),
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
    RATE: (
        "learning/current_learning_rate",
        "learning_rate",
        "lr",
        "train/learning_rate",
        "learning-rate",
        "learning rate",
        "train/lr",
        "optim/lr",
        "lr/train",
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
    # one number in all rows: the planned length
    PLANNED: (
        *("total_steps", "max_steps", "total_train_steps", "num_train_steps"),
        *("num_training_steps", "max_train_steps", "total_iterations", "total_iters"),
        *("max_iterations", "max_iters", "train_iters", "max_updates", "total_updates"),
    ),
}
OPTION = "--column {}=NAME"  # the option that names the column of a quantity, for errors
TOTAL_LOSS = "total_loss"  # never guessed: a column that --column names, for the record
QUANTITIES = (*KNOWN_NAMES, TOTAL_LOSS)
_MAY_BE_LOSS = re.compile("loss|ce|entropy|xent|nll", re.IGNORECASE)
_NO_LOSS = re.compile(r"(?:^|[^a-z])(acc|accuracy|ppl|perplexity|bits|bpb|bpc|bpt)(?:[^a-z]|$)")
HELD_OUT = frozenset(
    (
        *("val", "valid", "validate", "validation", "eval", "evaluate", "evaluation"),
        *("test", "heldout", "dev"),
    )
)
NOT_THE_LOSS = HELD_OUT | frozenset(
    (
        *("scale", "min", "max", "std"),
        *("aux", "z", "mtp", "moe", "lb", "load", "balance", "balancing", "router", "indexer"),
    )
)
"""Words in the name of a column that has another loss, or its range."""
_COUNTS = frozenset(("nan", "nans", "inf", "finite", "nonfinite", "num", "number", "count"))
"""Words in the name of a number of losses."""
_SAYS_LOSS = frozenset(
    (
        *("loss", "losses", "nll", "ce", "xent", "crossentropy", "objective", "cost", "criterion"),
        *("ppl", "logppl", "perplexity", "bpb", "bpc", "bpt", "bits"),
    )
)
_NO_LOSSES = _COUNTS | frozenset(
    (
        *("scale", "scaler", "std", "var", "acc", "accuracy", "grad", "norm", "time", "seconds"),
        *("best", "lowest", "target", "diff", "delta", "change", "ratio", "spike", "spikes"),
        *("not", "no", "never", "without", "if", "skip", "check", "stop", "ignore", "guard"),
    )
)
"""Words in the name of a column that has no loss of a step, though a loss is named in it."""
TRAINING_GROUPS = frozenset(
    (
        *("train", "training", "trainer", "metrics", "metric", "scalars", "data", "logs", "log"),
        *("history", "stats", "state", "values", "info", "results", "result", "output", "run"),
        *("learning", "perf", "optim", "optimizer", "step", "lm", "model", "record", "losses"),
    )
)
"""Groups of names that make no other quantity of what is in them."""
_RATE = re.compile(
    r"(?:.*/)?(?:current_)?(?:lr|learning_rate)"
    r"(?:[/_](?:adam\w*|sgd|lion|muon|adafactor|lamb|rmsprop|(?:pg|group|param_group)?_?\d+))*"
)
_OTHER_RATES = frozenset(
    (
        *("min", "max", "base", "initial", "peak", "final", "config", "args", "hparams", "cfg"),
        *("scale", "factor", "mult", "multiplier", "scheduler", "schedule", "decay", "warmup"),
        "momentum",
    )
)
"""Words in a name with "lr" that is not the learning rate of a step."""
_NO_COUNTERS = frozenset(
    (
        *("loss", "losses", "lr", "rate", "norm", "acc", "accuracy", "ppl", "perplexity", "error"),
        *("time", "seconds", "sec", "epoch", "epochs", "memory", "mem", "throughput", "per"),
        *("f1", "auc", "mae", "mse", "rmse", "precision", "recall", "entropy", "score"),
    )
)
"""Words in the name of a column that counts nothing: rows are numbered only where no other column
could count.
"""
_EPOCHS = ("epoch", "epochs")
_BATCHES = ("batch_idx", "batch_index", "batch")
_MICRO_STEPS = (
    *("micro_step", "train/micro_step", "micro_steps", "micro_batch", "microbatch", "micro_iter"),
    *("micro_iteration", "micro_batch_idx", "mini_step", *_BATCHES),
)
_COUNTERS_OF_ROWS = ("_step", "training_iteration", "iteration_number")
"""Counters of what a logger was called with, which go on within a batch, too."""
_MICRO_WORDS = frozenset(("micro", "microbatch", "microstep"))
"""Words in the name of a counter that counts batches of which an update has several."""
_MOST_SHOWN = 60  # characters of a name


def find_columns(
    names: Sequence[str],
    named_columns: Mapping[str, str],
    source: str,
    option: str = OPTION,
    *,
    may_number: bool = False,
) -> dict[str, str]:
    """Map each quantity to its column: as `named_columns` says, else by known names. `option`
    names a quantity's column on the command line. Where `may_number` and no column could count, the
    step is `NUMBERED`, and the epoch is read, too.

    Raises ReadError where step or loss can't be found, a named quantity or column is unknown, or
    the loss's column is named as an accuracy or a perplexity.
    """
    columns = _stated_columns(names, named_columns, source)
    spellings = _Spellings(names)
    for quantity in KNOWN_NAMES:
        if quantity not in columns:
            hits = spellings.hits(quantity)
            if len(hits) > 1 and quantity != RATE:
                raise ColumnError(
                    f"{source}: {len(hits)} columns could be {canonical_name(hits[0])!r}: "
                    f"{listed(hits)}; name one with {option.format(quantity)}",
                    names,
                )
            if hits:
                columns[quantity] = hits[0]
    for quantity, column in columns.items():
        if list(names).count(column) > 1:
            raise ReadError(
                f"{source}: {list(names).count(column)} columns are called {column!r}; expected "
                f"one for {quantity}; rename the others"
            )
    # MaxText's name for it, read already where the norm before is missing
    if columns.get("clipped_grad_norm") == columns.get("grad_norm"):
        columns.pop("clipped_grad_norm", None)
    columns |= _counters(names, columns, may_number=may_number)
    for quantity, error in ((STEP, ColumnError), (LOSS, NoLossError)):
        if quantity not in columns:
            raise error(
                f"{source}: no {quantity} column among {listed(names)}; name it with "
                f"{option.format(quantity)}",
                names,
            )
    is_stated = LOSS in named_columns
    if (word := _NO_LOSS.search(columns[LOSS].lower())) and not (
        is_stated and is_in_bits(columns[LOSS])
    ):
        what = {"a": "an accuracy", "p": "a perplexity", "b": "a loss in bits"}[word[1][0]]
        raise ColumnError(
            f"{source}: column {columns[LOSS]!r} is named as {what}, not as a loss; expected the "
            f"cross-entropy in nats per token; name its column with {option.format(LOSS)}",
            names,
        )
    return columns


def _stated_columns(
    names: Sequence[str], named_columns: Mapping[str, str], source: str
) -> dict[str, str]:
    """The columns that a person named, by quantity."""
    columns: dict[str, str] = {}
    for quantity, column in named_columns.items():
        if quantity not in QUANTITIES:
            raise ReadError(
                f"{source}: no quantity is called {quantity!r}; expected one of "
                f"{', '.join(QUANTITIES)} before the ="
            )
        if (there := named_column(names, column)) is None:
            raise ColumnError(
                f"{source}: no column {column!r} for {quantity}; the columns are "
                f"{listed(names)}{did_you_mean(column, names)}",
                names,
            )
        columns[quantity] = there
    return columns


def _numbered(names: Sequence[str]) -> dict[str, str]:
    """What stands for the step, and the column of the epoch; nothing where a column may count."""
    if any(map(_may_count, names)):
        return {}
    epoch = first_known_name(names, _EPOCHS)
    return {STEP: NUMBERED} | ({} if epoch is None else {EPOCH: epoch})


def _counters(
    names: Sequence[str], columns: Mapping[str, str], *, may_number: bool
) -> dict[str, str]:
    """What stands for the step where no column of the known ones does, and further counters: of the
    epoch, with which steps may restart, and of what may be micro batches.
    """
    if STEP not in columns:
        return _rows_as_steps(names) if may_number and LOSS in columns else {}
    further: dict[str, str] = {}
    others = [name for name in names if name not in columns.values()]
    if may_number and (epoch := first_known_name(others, _EPOCHS)) is not None:
        further[EPOCH] = epoch
    if counts_micro_batches(columns[STEP]):
        return further
    counters = [name for name in KNOWN_NAMES[STEP] if name not in _COUNTERS_OF_ROWS]
    own = canonical_name(columns[STEP])
    behind = next((at for at, one in enumerate(counters) if canonical_name(one) == own), 0)
    second = first_known_name(others, (*_MICRO_STEPS, *reversed(counters[behind + 1 :])))
    return further | ({} if second is None else {MICRO_STEP: second})


def _rows_as_steps(names: Sequence[str]) -> dict[str, str]:
    """The batch of an epoch where there are both, else what stands for the step."""
    batch, epoch = first_known_name(names, _BATCHES), first_known_name(names, _EPOCHS)
    if batch is not None and epoch is not None:
        return {STEP: batch, EPOCH: epoch}
    return _numbered(names)


def counts_micro_batches(name: str) -> bool:
    """Whether a counter is named as one of batches of which an update has several."""
    return bool(name_words(name) & _MICRO_WORDS)


def _may_count(name: str) -> bool:
    is_other = is_other_quantity(name, STEP) and not is_known(name, "tokens")
    return bool(name) and not is_other and not is_of_no_counter(name)


def is_other_quantity(name: str, quantity: str) -> bool:
    """Whether a column has a known name of another quantity."""
    return any(is_known(name, other) for other in KNOWN_NAMES if other != quantity)


def is_of_no_counter(name: str) -> bool:
    """Whether a column is named as something that counts nothing, such as a rate or a norm."""
    return bool(name_words(name) & _NO_COUNTERS)


def other_losses(names: Iterable[str], taken: str) -> tuple[str, ...]:
    """Columns that could also be the training loss, in their order: known names of it, and others
    with "loss" in them.
    """
    return tuple(name for name in dict.fromkeys(names) if name != taken and is_other_loss(name))


@functools.lru_cache(maxsize=4096)
def is_other_loss(name: str) -> bool:
    """Whether a column could be the training loss, next to another one: by a known name, or by
    "loss" in it.
    """
    if _MAY_BE_LOSS.search(name) is None:  # as most names: faster than to spell them alike
        return False
    words = name_words(name)
    return is_known_loss(name) or ("loss" in words and not words & (NOT_THE_LOSS | _COUNTS))


@functools.lru_cache(maxsize=4096)
def says_loss(name: str) -> bool:
    """Whether a column is named as a loss of any kind or rows, or as what is computed from one: NaN
    in it is that of a loss.
    """
    words = name_words(name)
    return (bool(words & _SAYS_LOSS) or words >= {"cross", "entropy"}) and not words & _NO_LOSSES


def is_known_loss(name: str) -> bool:
    """Whether a column has a known name of the training loss, not that of any value."""
    return is_known(name, LOSS) and canonical_name(name) not in UNNAMED


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
    return "".join(f"; did you mean {close!r}?" for close in closest(word, names))


def closest(word: str, names: Sequence[str]) -> list[str]:
    """The name that is close to a word, if one is."""
    return difflib.get_close_matches(word, names, n=1)


def listed(names: Sequence[str]) -> str:
    """The first 12 names in quotes, the first characters of each, and how many more there are."""
    return first_few(
        [repr(name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}…") for name in names], 12
    )


def first_known_name(names: Sequence[str], aliases: Sequence[str]) -> str | None:
    """The column that has the first of some known names, in any spelling; None where none has."""
    by_name = {canonical_name(name): name for name in reversed(names)}
    spelled = map(canonical_name, aliases)
    return next((by_name[alias] for alias in spelled if alias in by_name), None)


def has_known(names: Sequence[str], quantity: str) -> bool:
    """Whether a column could be a quantity by its name."""
    return bool(_Spellings(names).hits(quantity))


def is_known(name: str, quantity: str) -> bool:
    """Whether a column has a known name of a quantity, in any spelling."""
    return canonical_name(name) in _CANONICAL[quantity]


@functools.lru_cache(maxsize=1 << 14)
def canonical_name(name: str) -> str:
    """A name in the spelling in which names are compared: "train/lm_loss" for "Train.LM-loss"."""
    plain = re.sub(r"(?<=\w)(?:\.|::|:)(?=[a-z_])", "/", plain_name(name))
    return re.sub(r"(?<=[^/_])[ _-]+(?=[^/_ -])", "_", plain)


def named_column(names: Sequence[str], column: str) -> str | None:
    """The column that a person named, in any spelling where only one is spelled so; None where
    none is.
    """
    if column in names:
        return column
    alike = [name for name in names if canonical_name(name) == canonical_name(column)]
    return alike[0] if len(alike) == 1 else None


class _Spellings:
    """The names of columns, by what they are compared by."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact: dict[str, list[str]] = {}
        self._canonical: dict[str, list[str]] = {}
        self._tails: dict[str, list[str]] = {}
        for name in names:
            self._exact.setdefault(plain_name(name), []).append(name)
            plain = canonical_name(name)
            self._canonical.setdefault(plain, []).append(name)
            groups = plain.split("/")
            for at in range(1, len(groups)):
                if groups[at - 1] not in TRAINING_GROUPS:
                    break
                self._tails.setdefault("/".join(groups[at:]), []).append(name)

    def hits(self, quantity: str) -> Sequence[str]:
        """The columns that could be a quantity: those with its first known name that is there."""
        for alias in KNOWN_NAMES[quantity]:
            if hits := self._exact.get(alias) or self._canonical.get(canonical_name(alias)):
                return hits
        if quantity == RATE:
            return [
                name
                for plain, named in self._canonical.items()
                if _RATE.fullmatch(plain) and not _OTHER_RATES & name_words(plain)
                for name in named
            ]
        for alias in _CANONICAL[quantity]:
            if alias not in UNNAMED and (hits := self._tails.get(alias)):
                return hits
        return ()


_CANONICAL: Mapping[str, Mapping[str, None]] = {
    quantity: dict.fromkeys(map(canonical_name, aliases))
    for quantity, aliases in KNOWN_NAMES.items()
}
