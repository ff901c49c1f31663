"""Reads the files of one request in a process of its own, which `server/uploads.py` starts.

    python -m server.upload_reader FOLDER

What a file unpacks to is known only when it is unpacked. So this process limits its own memory and time before it reads: a file that
unpacks without end, or that a library can't survive, ends this process and not the service. It gets a JSON list of files on stdin
(`name` in the folder, `columns`, `label`) and answers a JSON line for each until one is refused: {"refused": sentence}, or
{"columns": names, "duplicates": n, "notes": sentences} beside NAME.npz with the arrays `steps`, `loss`, `0`, `1`, … (T,).
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from parity.judging.curve import Curve
from parity.readers import ReadError, read_run

MEMORY_BYTES, CPU_SECONDS = 2 << 30, 60
# Of all files of a request together: a million steps of four runs with eight columns, and that as text.
MAX_TEXT_BYTES, MAX_NUMBERS = 64 << 20, 32_000_000
_PIECE = 1 << 20


def main() -> int:
    """Read the files that stdin names."""
    for limited, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_CORE, 0)):
        with suppress(OSError, ValueError):  # not every system limits all of them
            resource.setrlimit(limited, (most, most))
    os.chdir(sys.argv[1])
    text_bytes = numbers = 0
    for asked in json.load(sys.stdin):
        name = asked["name"]
        try:
            text_bytes += _text_bytes(name, MAX_TEXT_BYTES - text_bytes)
            curve = read_run(name, columns=asked["columns"], label=asked["label"])
            numbers += len(curve.steps) * (2 + len(curve.columns))
            if numbers > MAX_NUMBERS:
                raise ReadError(f"{name}: with this file the request has {numbers:,} numbers, expected at most {MAX_NUMBERS:,}")
            answer = _kept(name, curve)
        except ReadError as error:
            answer = {"refused": str(error)}
        except MemoryError:
            answer = {"refused": f"{name}: reading it takes more than {MEMORY_BYTES >> 30} GiB of memory; send fewer columns and rows"}
        print(json.dumps(answer), flush=True)
        if "refused" in answer:
            break
    return 0


def _text_bytes(name: str, most: int) -> int:
    """How large a file of text is, unpacked; 0 for other files. ReadError where that is more than `most`."""
    if not name.endswith((".csv", ".jsonl", ".gz")):
        return 0
    size = 0
    try:
        with gzip.open(name) if name.endswith(".gz") else Path(name).open("rb") as stream:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if size > most:
                    raise ReadError(f"{name}: the request's text is larger than {MAX_TEXT_BYTES >> 20} MiB unpacked; send fewer columns")
    except (OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{name}: can't be unpacked ({error}); send it as it is, or compressed by gzip") from None
    return size


def _kept(name: str, curve: Curve) -> Mapping[str, Any]:
    columns: dict[str, Any] = {str(number): values for number, values in enumerate(curve.columns.values())}
    np.savez(f"{name}.npz", steps=curve.steps, loss=curve.loss, **columns)
    return {"columns": [*curve.columns], "duplicates": curve.completeness.duplicates, "notes": curve.notes}


if __name__ == "__main__":
    sys.exit(main())
