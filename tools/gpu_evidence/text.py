"""A file of 25 million tokens from a text: a byte-pair vocabulary of 8,192 is made from it, and
only the numbers are kept.

    python -m tools.gpu_evidence.text TEXT... --out tokens.npy       # with the package tokenizers,
      of locks/transformer-engine.lock

The text is HTML, whose tags and scripts are left out, or plain text. Its files are mixed, in the
order of the digests of their names, so that what is held out is like the rest. The same files give
the same tokens, and a run's record has the digest of its tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

VOCABULARY = 8192
TOKENS = 25_000_000
# characters of the text, evenly taken, from which the vocabulary is made
_LEARNED_FROM = 30_000_000
_SUFFIXES = (".html", ".htm", ".txt", ".rst", ".md")
_NOT_TEXT = re.compile(
    r"<(script|style|nav|head)\b.*?</\1\s*>|<!--.*?-->", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"<[^>]*>")
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")


class TextTooSmallError(Exception):
    """The text has too few tokens."""


def readable(content: str, suffix: str) -> str:
    """The text of a file: of HTML without tags, scripts and the head, with its entities resolved
    and without runs of blank lines.
    """
    if suffix in (".html", ".htm"):
        content = html.unescape(_TAG.sub(" ", _NOT_TEXT.sub(" ", content)))
    return _BLANK_LINES.sub("\n\n", content).strip()


def documents(places: Iterable[Path]) -> Iterator[str]:
    """The texts of the files, and of the files below the folders, mixed; without the sources that
    Sphinx puts beside its pages.
    """
    found: dict[str, Path] = {}
    for place in places:
        if place.is_file():
            found[place.name] = place
            continue
        files = (
            path
            for path in place.rglob("*")
            if path.suffix in _SUFFIXES and "_sources" not in path.parts and path.is_file()
        )
        found |= {f"{place.name}/{path.relative_to(place).as_posix()}": path for path in files}
    for name in sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()):
        text = readable(
            found[name].read_text(encoding="utf-8", errors="replace"), found[name].suffix
        )
        if text:
            yield text


def tokens(
    texts: list[str], most: int = TOKENS, vocabulary: int = VOCABULARY
) -> npt.NDArray[np.uint16]:
    """The first tokens of the texts, in a byte-pair vocabulary that is made from them, with a token
    of its own between two texts.

    Raises TextTooSmallError if there is no text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

    characters = sum(map(len, texts))
    if not characters:
        raise TextTooSmallError(
            f"there is no text in files ending in {', '.join(_SUFFIXES)}; name other files with "
            "--text"
        )
    every = max(1, characters // _LEARNED_FROM)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<end>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[::every], trainer)
    end, parts, count = tokenizer.token_to_id("<end>"), [], 0
    for start in range(0, len(texts), 64):
        for encoded in tokenizer.encode_batch(texts[start : start + 64]):
            parts.append(np.array([*encoded.ids, end], np.uint16))
            count += len(parts[-1])
        if count >= most:
            break
    return np.concatenate(parts)[:most]


def main() -> int:
    """Write the file of tokens; 0 when it is written."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence.text", description="Make a file of tokens from a text."
    )
    parser.add_argument("text", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        made = tokens(list(documents(options.text)))
    except TextTooSmallError as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    np.save(options.out, made)
    sys.stdout.write(f"{options.out}: {len(made):,} tokens, the largest {made.max()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
