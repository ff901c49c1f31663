"""A run's steps as CSV and Arrow streams, made piece by piece so that a long run need not fit into
memory.

CSV writes every float64 so that it reads back to the same bits (NaN as nan). An Arrow stream
keeps all bits, also those of NaN. It is written with nanoarrow (3 MB) instead of pyarrow (165
MB).
"""

import io
from collections.abc import Iterable, Iterator, Sequence

import nanoarrow
import numpy as np
import zstandard
from nanoarrow.ipc import StreamWriter

from server.database.metrics.chunk_tables import Columns as StoredColumns

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"


def csv(parts: Iterable[StoredColumns], names: Sequence[str]) -> Iterator[bytes]:
    """A header, then one line per step; a column that a part lacks is nan there."""
    yield (",".join(("step", *names)) + "\n").encode()
    for part in parts:
        steps = part["step"].astype(np.int64).tolist()
        columns = [map(repr, _column(part, name).tolist()) for name in names]
        yield "".join(
            ",".join((str(step), *row)) + "\n" for step, *row in zip(steps, *columns, strict=True)
        ).encode()


def arrow(parts: Iterable[StoredColumns], names: Sequence[str]) -> Iterator[bytes]:
    """An Arrow IPC stream: `step` int64, then the columns as float64; one record batch per part."""
    kinds = {"step": nanoarrow.int64()} | dict.fromkeys(names, nanoarrow.float64())
    out = io.BytesIO()
    with StreamWriter.from_writable(out) as writer:

        def write(count: int, columns: Sequence[object]) -> None:
            children = [
                nanoarrow.c_array_from_buffers(kind, count, [None, column])
                for kind, column in zip(kinds.values(), columns, strict=True)
            ]
            writer.write_array(
                nanoarrow.c_array_from_buffers(
                    nanoarrow.struct(kinds), count, [None], children=children
                )
            )

        written = 0
        for part in parts:
            columns = (np.ascontiguousarray(_column(part, name)) for name in names)
            write(len(part["step"]), [part["step"].astype(np.int64), *columns])
            written += 1
            yield _taken(out)
        if not written:
            write(0, [b""] * len(kinds))
    yield _taken(out)


def zstd(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in one zstd frame."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    for part in parts:
        compressed = compressor.compress(part)
        if compressed:
            yield compressed
    yield compressor.flush()


def _column(part: StoredColumns, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = part.get(name)
    if values is None:
        return np.full(len(part["step"]), np.nan)
    return values


def _taken(out: io.BytesIO) -> bytes:
    content = out.getvalue()
    out.seek(0)
    out.truncate()
    return content
