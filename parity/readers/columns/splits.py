"""Training and held-out losses in one column, told apart by another column: `split`, `phase`, or a
flag such as `is_val`.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray
from parity.readers.columns.names import HELD_OUT, canonical_name, name_words
from parity.wording import count, first_few

_SPLITS = (
    *("split", "data_split", "phase", "stage", "mode", "subset", "partition", "kind", "type"),
    *("set", "dataset", "data"),
)
_TRAINING_FLAGS = ("is_train", "is_training", "train", "training")
_HELD_OUT_FLAGS = ("is_val", "is_valid", "is_validation", "is_eval", "is_evaluation", "is_test")
_NAMES = re.compile(
    "|".join((*_SPLITS, *_TRAINING_FLAGS, *_HELD_OUT_FLAGS)).replace("_", "[ _-]"), re.IGNORECASE
)
_TRAINING = frozenset(("train", "training"))
_HELD = "heldout"
_SHOWN = 3  # groups
_MOST_GROUPS = 50  # of a column that tells training and held-out losses apart
_YES, _NO = frozenset(("1", "1.0", "true", "yes")), frozenset(("0", "0.0", "false", "no"))


@frozen(eq=False)
class RowSplit:
    """Which rows (R,) are not of held-out data, and what a person reads of the others."""

    is_kept: BoolArray
    note: str


class CellsOfSplits:
    """The cells of records, by the columns that may tell training and held-out losses apart."""

    def __init__(self) -> None:
        self.columns: dict[str, list[object]] = {}
        self._names: set[str] = set()
        self._groups: dict[str, dict[str, str]] = {}

    def take(self, record: Mapping[str, object], at: int) -> None:
        """Take the cells of the record with a number."""
        if new := record.keys() - self._names:
            self._names |= new
            for name in filter(is_split_column, sorted(new)):
                self.columns[name], self._groups[name] = [None] * at, {}
        for name in [*self.columns]:
            groups, text = self._groups[name], str(record.get(name))
            if len(groups) > _MOST_GROUPS:
                del self.columns[name]
            else:
                self.columns[name].append(groups.setdefault(text, text))


def is_split_column(name: str) -> bool:
    """Whether a column may say of what data the loss of a row is."""
    return _NAMES.fullmatch(name.strip()) is not None


def split_of_rows(columns: Mapping[str, Sequence[object]], has_loss: BoolArray) -> RowSplit | None:
    """The rows (R,) of training by the cells (R,) of the first column that tells them from held-out
    ones: those with a loss are one group of training and others of held-out data. None where none
    does.
    """
    for column, cells in columns.items():
        texts = [str(cell) for cell in cells]
        group_of = {text: data_group(column, text) for text in dict.fromkeys(texts)}
        groups = [group_of[text] for text in texts]
        with_loss = {group for group, has in zip(groups, has_loss.tolist(), strict=True) if has}
        held_out = {group for group in with_loss if name_words(group) & HELD_OUT}
        training = with_loss - held_out
        if held_out and len(training) == 1 and training <= _TRAINING:
            is_kept = np.array([group not in held_out for group in groups], dtype=bool)
            left_out = count(int((~is_kept).sum()), "row")
            shown = first_few(sorted(held_out), _SHOWN)
            return RowSplit(is_kept=is_kept, note=f"{left_out} of {shown} left out, by {column!r}")
    return None


def data_group(column: str, cell: object) -> str:
    """The data of a row in lower case."""
    text = str(cell).strip().lower()
    name = canonical_name(column)
    is_flag_of_training = name in _TRAINING_FLAGS
    if (is_flag_of_training or name in _HELD_OUT_FLAGS) and text in _YES | _NO:
        return "train" if (text in _YES) == is_flag_of_training else _HELD
    return _HELD if text in ("held-out", "held_out", "holdout") else text
