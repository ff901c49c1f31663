"""What a loss is by the name of its column."""

from parity.judging.curves.reading import (
    CROSS_ENTROPY,
    HELD_OUT_LOSS,
    LANGUAGE_MODEL_LOSS,
    LOSS_OF_ALL_TERMS,
    TRAINING_LOSS,
)
from parity.readers.columns.names import HELD_OUT, name_words

_CROSS_ENTROPY = frozenset(("ce", "xent", "nll", "crossentropy", "languagecrossentropy"))


def meaning_of(column: str) -> str:
    """What a loss is by the name of its column or phrase: held-out, total, language-model,
    cross-entropy, or training, of any terms.
    """
    words = name_words(column)
    if words & HELD_OUT:
        return HELD_OUT_LOSS
    if "total" in words:
        return LOSS_OF_ALL_TERMS
    if "lm" in words:
        return LANGUAGE_MODEL_LOSS
    if words & _CROSS_ENTROPY or {"cross", "entropy"} <= words:
        return CROSS_ENTROPY
    return TRAINING_LOSS
