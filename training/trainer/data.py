"""Tokens: a corpus of bytes or token ids, and batches that are a pure function of (seed, step).

What it answers: which tokens does step t of seed s see? The same in every arm, process and
resume:

    sequence b of step t starts at  hash(hash(s, t), b) mod (tokens - sequence_length)

Sources: `parity_docs` (a snapshot of this project's documentation, bytes:
`training.trainer.parity_docs`), `python_stdlib` (the sources of this Python's library, bytes),
`text` (a file or folder, bytes), `tokens` (an array of ids: .npy of any integer type, or .bin of
little-endian uint16 or uint32), `markov` (`training.trainer.markov`, whose entropy is known). There
is no tokenizer: text is read byte by byte, and ids are used as stored. An array of ids stays on
disk, mapped into memory; batches are cut on the host while the device works on the previous ones.

The assumption that can fail: two machines have the same text. The standard library differs
between Python's patch versions, so every run records the digest of its tokens; `parity_docs` is
refused if its digest is another one than expected.
"""

import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from training.arithmetic import random_bits
from training.frozen import frozen
from training.spec import Data
from training.trainer.markov import entropy_rate, tokens
from training.trainer.parity_docs import read

_NOT_LIBRARY = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
)
_BYTES = frozenset({"parity_docs", "python_stdlib", "text"})
_VALIDATION_SEQUENCES = 256
_CHUNK = 1 << 24  # tokens that are read at once
_IDS_OF_UINT16 = 1 << 16
_TYPES = {"uint16": "<u2", "uint32": "<u4"}


class DataNotFoundError(Exception):
    """The specification's data is not on this machine."""

    code = "DATA_NOT_FOUND"


class DataNotTokensError(Exception):
    """A file that should contain token ids contains something else."""

    code = "DATA_NOT_TOKENS"


class DataTooLargeError(Exception):
    """The data has more tokens than a 32-bit offset can address."""

    code = "DATA_TOO_LARGE"


class DataTooSmallError(Exception):
    """The specification's data has fewer tokens than training needs."""

    code = "DATA_TOO_SMALL"


class VocabularyTooSmallError(Exception):
    """The data has a token for which the model has no embedding."""

    code = "VOCABULARY_TOO_SMALL"


Tokens = npt.NDArray[np.integer]


@frozen
class Corpus:
    """Tokens (integers) of a training and a validation part, the largest token, a digest of all,
    and a sentence that describes them.

    The digest is taken over the ids in the narrowest unsigned type that holds the largest, so it
    does not depend on the file's type.
    """

    train: Tokens
    validation: Tokens
    largest: int
    digest: str
    description: str


def load(data: Data, vocab_size: int = 0) -> Corpus:
    """Loads the corpus that `data` describes; the last `validation_fraction` of its tokens is held
    out.

    vocab_size: of the model, which decides the type of a .bin file's ids if `data.dtype` does not.

    Raises DataNotFoundError if the path does not exist or the folder is empty, DataNotTokensError
    if a file of token ids is not one, DataTooLargeError from 2^32 tokens on, DataTooSmallError if a
    part is shorter than one sequence with its last target, and DataChangedError if the project's
    text is not the committed one.
    """
    tokens, what = _tokens(data, vocab_size)
    smallest, largest = _extremes(tokens)
    if smallest < 0:
        position, found = _first(tokens, lambda chunk: chunk < 0)
        raise DataNotTokensError(
            f"data.path is {data.path!r}, expected whole numbers of at least 0, found {found} at "
            f"token {position:,}"
        )
    if len(tokens) >= 2**32:
        raise DataTooLargeError(
            f"data.path holds {len(tokens):,} tokens, expected fewer than {2**32:,}; use a file "
            "with a part of them"
        )
    held_out = int(len(tokens) * data.validation_fraction)
    train, validation = tokens[: len(tokens) - held_out], tokens[len(tokens) - held_out :]
    _check_length(data, "training", train)
    if held_out:
        _check_length(data, "validation", validation)
    kind = "byte tokens" if data.source in _BYTES else "tokens"
    description = f"{what}: {len(tokens):,} {kind}, of which the last {held_out:,} are held out"
    return Corpus(
        train=train,
        validation=validation,
        largest=largest,
        digest=_digest(tokens, largest),
        description=description,
    )


def _chunks(tokens: Tokens) -> Iterator[Tokens]:
    return (tokens[start : start + _CHUNK] for start in range(0, len(tokens), _CHUNK))


def _extremes(tokens: Tokens) -> tuple[int, int]:
    """The smallest and the largest token; zeros of an empty array."""
    extremes = [(int(chunk.min()), int(chunk.max())) for chunk in _chunks(tokens)]
    return min((low for low, _ in extremes), default=0), max(
        (high for _, high in extremes), default=0
    )


def _first(tokens: Tokens, wrong: Callable[[Tokens], npt.NDArray[np.bool_]]) -> tuple[int, int]:
    """The position, from 0, and the id of the first token that is wrong; there is one."""
    before = 0
    for chunk in _chunks(tokens):
        places = np.flatnonzero(wrong(chunk))
        if places.size:
            return before + int(places[0]), int(chunk[places[0]])
        before += len(chunk)
    raise ValueError("no token is wrong, expected one")


def _digest(tokens: Tokens, largest: int) -> str:
    """SHA-256 of the tokens in the narrowest type that holds them, after this type and their
    number: its bytes alone could be others.
    """
    narrowest = np.min_scalar_type(largest)
    digest = hashlib.sha256(f"{narrowest} {len(tokens)}\n".encode())
    for chunk in _chunks(tokens):
        digest.update(chunk.astype(narrowest).tobytes())
    return digest.hexdigest()


def _tokens(data: Data, vocab_size: int) -> tuple[Tokens, str]:
    """Returns all tokens of a source and a phrase that describes them."""
    if data.source == "markov":
        return tokens(), f"a Markov chain of order 2 with {entropy_rate():.5f} nats a token"
    if data.source == "tokens":
        return _token_array(data, vocab_size), f"token ids in {data.path}"
    if data.source == "parity_docs":
        return np.frombuffer(read(), np.uint8), "a snapshot of this project's documentation"
    if data.source == "python_stdlib":
        root = Path(sysconfig.get_path("stdlib"))
        files = list(_library_files(root))
        what = f"the standard library of this Python, {len(files)} files"
    else:
        files = _text_files(data)
        what = (
            f"text in {data.path}, {len(files)} files" if len(files) != 1 else f"text in {files[0]}"
        )
    return np.frombuffer(b"".join(path.read_bytes() for path in files), np.uint8), what


def _token_array(data: Data, vocab_size: int) -> Tokens:
    """Returns the ids (tokens,) of a file, mapped into memory."""
    path = Path(data.path or "").expanduser()
    if not path.is_file():
        raise DataNotFoundError(_missing(data, "a file of token ids"))
    if path.suffix not in (".npy", ".bin"):
        raise DataNotTokensError(
            f"data.path is {data.path!r}, expected an .npy or .bin file of token ids; this engine "
            "has no tokenizer: "
            "write the ids with your own, or use data.source: text, which reads bytes"
        )
    kind = data.dtype or ("uint32" if vocab_size > _IDS_OF_UINT16 else "uint16")
    try:
        if path.suffix == ".npy":
            ids = np.lib.format.open_memmap(path, mode="r")
        else:
            ids = np.memmap(path, _TYPES[kind], "r")
    except (ValueError, EOFError) as error:
        raise DataNotTokensError(
            f"data.path is {data.path!r}, expected a NumPy .npy array or little-endian {kind}: "
            f"{error}"
        ) from error
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        shown = f"{ids.dtype} of shape {ids.shape}"
        raise DataNotTokensError(
            f"data.path is {data.path!r}, expected one row of whole numbers of at least 0, found "
            f"{shown}"
        )
    return ids


def _missing(data: Data, what: str) -> str:
    return (
        f"data.path is {data.path!r}, expected {what} on the machine that trains; "
        "it does not exist; copy the data there, or correct the path"
    )


def _library_files(root: Path) -> Iterator[Path]:
    """Yields the library's source files in the order of their relative paths, without tests and
    installed packages.
    """
    files: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_LIBRARY]
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    yield from sorted(files, key=lambda path: path.relative_to(root).as_posix())


def _text_files(data: Data) -> list[Path]:
    path = Path(data.path or "").expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataNotFoundError(_missing(data, "a file or a folder"))
    files = sorted(
        (file for file in path.rglob("*") if file.is_file()),
        key=lambda file: file.relative_to(path).as_posix(),
    )
    if not files:
        raise DataNotFoundError(
            f"data.path is {data.path!r}, expected a folder with text files in it; it is empty; "
            "copy the text there"
        )
    return files


def _check_length(data: Data, part: str, tokens: Tokens) -> None:
    needed = data.sequence_length + 2
    if len(tokens) < needed:
        raise DataTooSmallError(
            f"the {part} part has {len(tokens)} tokens, expected at least {needed} "
            f"(data.sequence_length is {data.sequence_length}); "
            "use more text, or a shorter data.sequence_length"
            + (", or data.validation_fraction: 0" if part == "validation" else "")
        )


def check_vocabulary(corpus: Corpus, vocab_size: int) -> None:
    """Raises VocabularyTooSmallError if a token of the corpus is not below `vocab_size`."""
    if corpus.largest >= vocab_size:
        parts = [(0, corpus.train), (len(corpus.train), corpus.validation)]
        before, part = next(part for part in parts if _extremes(part[1])[1] >= vocab_size)
        position, found = _first(part, lambda chunk: chunk >= vocab_size)
        raise VocabularyTooSmallError(
            f"model.vocab_size is {vocab_size}, expected more than {corpus.largest}, the largest "
            f"token of {corpus.description}; the first that is too large is {found} at token "
            f"{before + position:,}, from 0; set model.vocab_size: {corpus.largest + 1} or more, "
            "or data.dtype, if a .bin file was read with the wrong type"
        )


def batches(tokens: Tokens, data: Data, seed: int, first: int, count: int) -> npt.NDArray[np.int32]:
    """Returns int32 tokens (count, batch_size, sequence_length + 1) for `count` steps from step
    `first`: inputs and, one later, targets.

    seed: the uint32 that determines a run's data order.
    """
    keys = np.array(
        [random_bits.integer_fold(step, start=seed) for step in range(first, first + count)],
        np.uint32,
    )
    starts = random_bits.host_bits(keys, data.batch_size) % np.uint32(
        len(tokens) - data.sequence_length
    )
    offsets = np.arange(data.sequence_length + 1)
    cut: npt.NDArray[np.int32] = tokens[starts[..., None] + offsets].astype(np.int32)
    return cut


def validation_batches(corpus: Corpus, data: Data) -> npt.NDArray[np.int32]:
    """Returns int32 tokens (batches, batch_size, sequence_length + 1): up to 256 evenly spaced
    sequences, always the same.
    """
    last = len(corpus.validation) - data.sequence_length - 1
    sequences = max(
        data.batch_size,
        min(_VALIDATION_SEQUENCES, last // data.sequence_length)
        // data.batch_size
        * data.batch_size,
    )
    starts = np.linspace(0, last, sequences).astype(np.int64)
    rows = np.stack(
        [corpus.validation[start : start + data.sequence_length + 1] for start in starts]
    )
    return rows.astype(np.int32).reshape(-1, data.batch_size, data.sequence_length + 1)
