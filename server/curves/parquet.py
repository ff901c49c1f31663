"""A run's steps as a Parquet file, made piece by piece: required columns, plain values, zstd pages, one page a column and row group.

The few structures of the format that this needs are written here in Thrift's compact protocol: pyarrow, which would do it, is 165 MB.
Specification: apache/parquet-format, parquet.thrift (version 2.11) and Encodings.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from server.database.store import Columns, join

PARQUET = "application/vnd.apache.parquet"
ROWS_A_GROUP = 131_072
_MAGIC = b"PAR1"
_INT64, _DOUBLE = 2, 5
_REQUIRED = _PLAIN = _DATA_PAGE = 0
_RLE, _ZSTD = 3, 6
Values = NDArray[np.int64] | NDArray[np.float64]


def parquet(parts: Iterable[Columns], names: Sequence[str]) -> Iterator[bytes]:
    """The file: `step` int64, then the columns as float64 (NaN where a part lacks one), in row groups of 131,072 steps."""
    yield _MAGIC
    offset, groups, rows = len(_MAGIC), [], 0
    for table in _groups(parts, names):
        chunks, begin = [], offset
        for name in ("step", *names):
            values: Values = table[name].astype("<i8" if name == "step" else "<f8")
            packed = zstandard.compress(values.tobytes(), 3)
            header = _page_header(values, len(packed))
            yield header + packed
            chunks.append(_chunk(name, values, offset, len(header), len(packed)))
            offset += len(header) + len(packed)
        groups.append(_struct((1, _list(12, chunks)), (2, _i64(offset - begin)), (3, _i64(len(table["step"])))))
        rows += len(table["step"])
    footer = _struct((1, _i32(2)), (2, _list(12, _schema(names))), (3, _i64(rows)), (4, _list(12, groups)), (6, _text("parity")))
    yield footer[1] + len(footer[1]).to_bytes(4, "little") + _MAGIC


def _groups(parts: Iterable[Columns], names: Sequence[str]) -> Iterator[Columns]:
    """The pieces in tables of about so many rows."""
    waiting: list[Columns] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part["step"])
        if count >= ROWS_A_GROUP:
            yield join(waiting, names)
            waiting, count = [], 0
    if waiting:
        yield join(waiting, names)


def _page_header(values: Values, packed: int) -> bytes:
    data = _struct((1, _i32(len(values))), (2, _i32(_PLAIN)), (3, _i32(_RLE)), (4, _i32(_RLE)))
    return _struct((1, _i32(_DATA_PAGE)), (2, _i32(values.nbytes)), (3, _i32(packed)), (5, data))[1]


def _chunk(name: str, values: Values, offset: int, header: int, packed: int) -> tuple[int, bytes]:
    """The ColumnChunk of a column of one row group, whose one page lies at an offset."""
    about = _struct(
        (1, _i32(_INT64 if name == "step" else _DOUBLE)),
        (2, _list(5, [_i32(_PLAIN)])),
        (3, _list(8, [_text(name)])),
        (4, _i32(_ZSTD)),
        (5, _i64(len(values))),
        (6, _i64(header + values.nbytes)),
        (7, _i64(header + packed)),
        (9, _i64(offset)),
    )
    return _struct((2, _i64(offset)), (3, about))


def _schema(names: Sequence[str]) -> list[tuple[int, bytes]]:
    columns = [
        _struct((1, _i32(_INT64 if name == "step" else _DOUBLE)), (3, _i32(_REQUIRED)), (4, _text(name))) for name in ("step", *names)
    ]
    return [_struct((4, _text("schema")), (5, _i32(len(columns)))), *columns]


# Thrift's compact protocol: a value is its type and its bytes.
def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _i32(number: int) -> tuple[int, bytes]:
    return 5, _varint(2 * number)  # zigzag; nothing here is negative


def _i64(number: int) -> tuple[int, bytes]:
    return 6, _varint(2 * number)


def _text(text: str) -> tuple[int, bytes]:
    encoded = text.encode()
    return 8, _varint(len(encoded)) + encoded


def _list(kind: int, values: Sequence[tuple[int, bytes]]) -> tuple[int, bytes]:
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + _varint(len(values))
    return 9, head + b"".join(value for _, value in values)


def _struct(*fields: tuple[int, tuple[int, bytes]]) -> tuple[int, bytes]:
    found, before = bytearray(), 0
    for number, (kind, value) in fields:
        found += bytes([(number - before) << 4 | kind]) + value
        before = number
    return 12, bytes(found) + b"\0"
