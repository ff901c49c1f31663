"""Tokens: a corpus of bytes or token ids, and batches that are a pure function of (seed, step).

What it answers: which tokens does step t of seed s see? The same in every arm, process and resume:

    sequence b of step t starts at  hash(hash(s, t), b) mod (tokens - sequence_length)

Sources: `python_stdlib` (the sources of this Python's library, bytes), `text` (a file or folder, bytes), `tokens` (an array
of ids: .npy of any integer type, or .bin of little-endian uint16), `markov` (`training.markov`, whose entropy is known).
The corpus lies on the device in its own type and batches are cut there, so no loader can fall behind or lose its place.

The assumption that can fail: two machines have the same text. The standard library differs between Python's patch
versions, so the digest of the bytes is in the record of every run.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training import markov, random_bits
from training.spec import Data

_NOT_LIBRARY = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
_VALIDATION_SEQUENCES = 256


class DataNotFoundError(Exception):
    """The data of a specification is not on this machine."""

    code = "DATA_NOT_FOUND"


class DataNotTokensError(Exception):
    """A file of token ids holds something else."""

    code = "DATA_NOT_TOKENS"


class DataTooSmallError(Exception):
    """The data of a specification holds fewer tokens than training needs."""

    code = "DATA_TOO_SMALL"


class VocabularyTooSmallError(Exception):
    """The data holds a token that the model has no embedding for."""

    code = "VOCABULARY_TOO_SMALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens (unsigned integers) of a training and a validation part, the digest of all bytes, and a sentence for the reader."""

    train: npt.NDArray[np.unsignedinteger]
    validation: npt.NDArray[np.unsignedinteger]
    digest: str
    description: str


def load(data: Data) -> Corpus:
    """The corpus that `data` names: the last `validation_fraction` of the tokens is held out.

    Raises DataNotFoundError where the path is not there or holds no text, DataNotTokensError where a token array is none,
    and DataTooSmallError where a part that is needed is shorter than one sequence and its last target.
    """
    tokens, what = _tokens(data)
    held_out = int(len(tokens) * data.validation_fraction)
    train, validation = tokens[: len(tokens) - held_out], tokens[len(tokens) - held_out :]
    _check_length(data, "training", train)
    if held_out:
        _check_length(data, "validation", validation)
    kind = "byte tokens" if tokens.dtype == np.uint8 else "tokens"
    description = f"{what}: {len(tokens):,} {kind}, of which the last {held_out:,} are held out"
    return Corpus(train=train, validation=validation, digest=hashlib.sha256(tokens.tobytes()).hexdigest(), description=description)


def _tokens(data: Data) -> tuple[npt.NDArray[np.unsignedinteger], str]:
    """All tokens of a source, and what they are in words."""
    if data.source == "markov":
        return markov.tokens(), f"a Markov chain of order 2 with {markov.entropy_rate():.5f} nats a token"
    if data.source == "tokens":
        return _token_array(data), f"token ids in {data.path}"
    if data.source == "python_stdlib":
        root = Path(sysconfig.get_path("stdlib"))
        files = list(_library_files(root))
        what = f"the standard library of this Python, {len(files)} files"
    else:
        files = _text_files(data)
        what = f"text in {data.path}, {len(files)} files" if len(files) != 1 else f"text in {files[0]}"
    return np.frombuffer(b"".join(path.read_bytes() for path in files), np.uint8), what


def _token_array(data: Data) -> npt.NDArray[np.unsignedinteger]:
    """One-dimensional ids from a file, in the narrowest unsigned type that holds them."""
    path = Path(data.path or "").expanduser()
    if not path.is_file():
        raise DataNotFoundError(_missing(data, "a file of token ids"))
    try:
        ids = np.load(path) if path.suffix == ".npy" else np.fromfile(path, "<u2")
    except (ValueError, EOFError) as error:
        raise DataNotTokensError(f"data.path is {data.path!r}, expected a NumPy .npy array or little-endian uint16: {error}") from error
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or (ids.size and int(ids.min()) < 0):
        found = f"{ids.dtype} of shape {ids.shape}"
        raise DataNotTokensError(f"data.path is {data.path!r}, expected one row of whole numbers of at least 0, found {found}")
    largest = int(ids.max()) if ids.size else 0
    return ids.astype(np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.uint32)


def _missing(data: Data, what: str) -> str:
    return (
        f"data.path is {data.path!r}, expected {what} on the machine that trains; "
        "there is none of that name there: copy the data there, or correct the path"
    )


def _library_files(root: Path) -> Iterator[Path]:
    """The library's sources in the order of their relative paths, tests and installed packages left out."""
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_LIBRARY]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    yield from sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _text_files(data: Data) -> list[Path]:
    path = Path(data.path or "").expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataNotFoundError(_missing(data, "a file or a folder"))
    files = sorted((found for found in path.rglob("*") if found.is_file()), key=lambda found: found.relative_to(path).as_posix())
    if not files:
        raise DataNotFoundError(f"data.path is {data.path!r}, expected a folder with text files in it; it is empty: put the text there")
    return files


def _check_length(data: Data, part: str, tokens: npt.NDArray[np.unsignedinteger]) -> None:
    needed = data.sequence_length + 2
    if len(tokens) < needed:
        raise DataTooSmallError(
            f"the {part} part has {len(tokens)} tokens, expected at least {needed} (data.sequence_length is {data.sequence_length}); "
            "give more text, or a shorter data.sequence_length" + (", or data.validation_fraction: 0" if part == "validation" else "")
        )


def check_vocabulary(corpus: Corpus, vocab_size: int) -> None:
    """Raises VocabularyTooSmallError where a token of the corpus is not below `vocab_size`."""
    largest = int(max(part.max() for part in (corpus.train, corpus.validation) if len(part)))
    if largest >= vocab_size:
        raise VocabularyTooSmallError(
            f"model.vocab_size is {vocab_size}, expected more than {largest}, the largest token of {corpus.description}; "
            f"set model.vocab_size: {largest + 1} or more"
        )


def batch(train: jax.Array, seed: jax.Array, step: jax.Array, batch_size: int, sequence_length: int) -> jax.Array:
    """int32 tokens (batch_size, sequence_length + 1) of a step: inputs and, shifted by one, targets.

    train: tokens on the device; seed: uint32 scalar; step: int32 scalar.
    """
    key = random_bits.fold(seed, step)
    starts = random_bits.counter_bits(key, (batch_size,)) % jnp.uint32(train.shape[0] - sequence_length)
    offsets = jnp.arange(sequence_length + 1, dtype=jnp.uint32)
    return train[starts[:, None] + offsets[None, :]].astype(jnp.int32)


def validation_batches(corpus: Corpus, data: Data) -> npt.NDArray[np.int32]:
    """int32 tokens (batches, batch_size, sequence_length + 1): up to 256 sequences at even distances, always the same."""
    last = len(corpus.validation) - data.sequence_length - 1
    sequences = max(data.batch_size, min(_VALIDATION_SEQUENCES, last // data.sequence_length) // data.batch_size * data.batch_size)
    starts = np.linspace(0, last, sequences).astype(np.int64)
    rows = np.stack([corpus.validation[start : start + data.sequence_length + 1] for start in starts])
    return rows.astype(np.int32).reshape(-1, data.batch_size, data.sequence_length + 1)
