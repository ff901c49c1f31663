"""Tokens of a text, which --prepare makes with the package tokenizers of this environment."""

import numpy as np
import pytest

pytest.importorskip(
    "tokenizers", reason="locks/transformer-engine.lock has it; `make test-te` installs it"
)

from tools.gpu_evidence.text import TextTooSmallError, tokens

TEXTS = [
    f"The page of number {number} speaks of the number {number * 7 % 101} and of \u00e9t\u00e9.\n"
    for number in range(500)
]


def test_the_same_text_gives_the_same_tokens_below_the_vocabulary():
    one, two = (tokens(TEXTS, 5000, 400) for _ in range(2))
    assert one.dtype == np.uint16
    assert (one == two).all()
    assert len(one) == 5000
    assert 256 < one.max() < 400  # pairs of bytes were joined


def test_a_short_text_gives_all_of_its_tokens_with_one_between_two_texts():
    made = tokens(["ab", "ab"], 5000, 300)
    assert len(made) < 10
    half = len(made) // 2
    assert (made[:half] == made[half:]).all()


def test_no_text_is_an_error():
    with pytest.raises(TextTooSmallError, match="name other files with --text"):
        tokens([], 10)
