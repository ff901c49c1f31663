"""The text of a run's file: from a path, a .gz, a .zip or stdin ("-"), refused early where it can't
be text, with file and line in the message.
"""

import codecs
import gzip
import sys
import zipfile
import zlib
from pathlib import Path
from typing import IO

from parity.readers.errors import ReadError
from parity.wording import count

CHUNK = 1 << 20
MAX_LINE = 1 << 20
MAX_DOCUMENT = 512 << 20
"""Bytes of a line of a JSON document, which may be one line."""
MAX_BYTES = 4 << 30
_DEEPEST = 1000  # containers that the beginning of a JSON document leaves open
STDIN = "-"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def os_words(error: BaseException) -> str:
    """An error of the operating system or of a decompressor in words, without its number or
    path.
    """
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
        return "damaged or not gzip"
    if isinstance(error, (zipfile.BadZipFile, RuntimeError)):
        return "damaged, encrypted or not a zip archive"
    return (getattr(error, "strerror", None) or "unknown error").lower()


def read_text(name: str) -> str:
    """The text of a file, of a gzip file, or of stdin for "-"; raises ReadError for what is
    missing, empty, binary or one endless line.
    """
    data = _read_bytes(name)
    if data.startswith(_UTF_16):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise ReadError(
                f"{name}: begins with the mark of UTF-16, but is not UTF-16; save it as UTF-8"
            ) from None
    if not data or data.isspace():
        raise ReadError(f"{name}: the file is empty; expected one line per training step")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ReadError(
            f"{name}, line {line}: byte {error.start} is not UTF-8 text; expected CSV or JSON lines"
        ) from None


def _read_bytes(name: str) -> bytes:
    try:
        if name == STDIN:
            return _collect(sys.stdin.buffer, name)
        path = Path(name)
        if path.is_dir():
            raise ReadError(f"{name} is a directory; expected a file: name the metrics file in it")
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                files = [member for member in archive.infolist() if not member.is_dir()]
                if len(files) != 1:
                    raise ReadError(
                        f"{name}: {count(len(files), 'file')} in the archive; expected one; unpack "
                        "it, and name one of them"
                    )
                with archive.open(files[0]) as stream:
                    return _collect(stream, name)
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            return _collect(stream, name)
    except FileNotFoundError:
        raise ReadError(f"{name}: no such file; check the path") from None
    except (
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise ReadError(
            f"{name}: cannot be read ({os_words(error)}); check the file and its permissions"
        ) from None
    except ReadError:
        raise
    except ValueError:  # a NUL in the name
        raise ReadError(f"{name!r} is not the name of a file; check the path") from None


def _collect(stream: "IO[bytes] | gzip.GzipFile", name: str) -> bytes:
    """Read in chunks, so that a line without end or a flood is refused before it fills the
    memory.
    """
    chunks: list[bytes] = []
    total = open_line = 0
    longest = MAX_LINE
    while chunk := stream.read(CHUNK):
        if b"\0" in chunk and not (chunks or [chunk])[0].startswith(_UTF_16):
            at = chunk.index(0)
            line = sum(part.count(b"\n") for part in chunks) + chunk.count(b"\n", 0, at) + 1
            raise ReadError(
                f"{name}, line {line}: byte {total + at} is NUL, so this is not text; expected "
                "CSV, JSON lines, .npz, Parquet or events"
            )
        last = chunk.rfind(b"\n")
        open_line = open_line + len(chunk) if last < 0 else len(chunk) - last - 1
        if not chunks and _is_document(chunk):
            longest = MAX_DOCUMENT
        total += len(chunk)
        if open_line > longest or total > MAX_BYTES:
            line = sum(part.count(b"\n") for part in chunks) + chunk.count(b"\n") + 1
            size = "1 MiB" if longest == MAX_LINE else "512 MiB"
            what = f"longer than {size}" if open_line > longest else "the file is larger than 4 GiB"
            raise ReadError(f"{name}, line {line}: {what}; expected one line per training step")
        chunks.append(chunk)
    return b"".join(chunks)


def _is_document(chunk: bytes) -> bool:
    """Whether a file begins as a JSON document that is not made to be endlessly deep."""
    opened = sum(map(chunk.count, (b"{", b"["))) - sum(map(chunk.count, (b"}", b"]")))
    return chunk.lstrip()[:1] in (b"{", b"[") and opened < _DEEPEST
