"""Numbers as they are written in sentences."""

import pytest

from parity.wording import tokens_words


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (999_999, "999,999 tokens"),
        (1e6, "1 M tokens"),
        (9.94e6, "9.9 M tokens"),
        (1.2e7, "12 M tokens"),
        (1e9, "1 B tokens"),
        (1e12, "1 T tokens"),
    ],
)
def test_tokens_are_told_in_their_unit(tokens: float, words: str) -> None:
    assert tokens_words(tokens) == words
