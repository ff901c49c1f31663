"""Keeps the machine code of one GPU generation in a wheel of Transformer Engine's core library: a
tenth of its size.

The library holds the code of eight generations in "fat binaries": a header (magic 0xBA55ED50,
version 1, its own size 16, the size of what follows), then entries (kind, version, header size,
payload size, and at byte 28 the compute capability without its dot). The payloads of other
generations are overwritten with zeros, so every offset stays, and CUDA never loads an entry of
another generation. All other bytes are equal, but for the library's digest in the wheel's RECORD.
Such a wheel is for one known GPU: publish or ship none.

The assumption that can fail: the layout is that of CUDA 13 (`cuobjdump` and the header fatbinary.h
of the CUDA toolkit describe it).
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = 16
_CAPABILITY = 28  # the place of the compute capability in an entry's header
_LIBRARY = "libtransformer_engine.so"


class NoCodeError(Exception):
    """The library has no code for the generation."""


def keep_only(data: bytearray, sm: int) -> tuple[int, int]:
    """Overwrite the payloads of other generations than `sm` (90 is 9.0) in place; returns the bytes
    kept and the bytes cleared.
    """
    kept_bytes = cleared = position = 0
    while (start := data.find(_MAGIC, position)) >= 0:
        end = _end_of(data, start)
        if end is None:  # the magic by chance
            position = start + len(_MAGIC)
            continue
        entry = start + _HEADER
        while entry < end:
            header, payload = struct.unpack_from("<IQ", data, entry + 4)
            (capability,) = struct.unpack_from("<I", data, entry + _CAPABILITY)
            if capability == sm:
                kept_bytes += payload
            else:
                data[entry + header : entry + header + payload] = bytes(payload)
                cleared += payload
            entry += header + payload
        position = end
    return kept_bytes, cleared


def _end_of(data: bytearray, start: int) -> int | None:
    """Where a fat binary ends; None if there is none here."""
    if start + _HEADER > len(data):
        return None
    version, header, size = struct.unpack_from("<HHQ", data, start + 4)
    end: int = start + header + size
    return end if (version, header) == (1, _HEADER) and end <= len(data) else None


def slim_wheel(wheel: Path, folder: Path, sm: int) -> Path:
    """Write the wheel with the code of one generation into the folder; NoCodeError if it has
    none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, digests = folder / wheel.name, dict[str, str]()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as packed:
        for item in source.infolist():
            content = bytearray(source.read(item))
            if item.filename.endswith(_LIBRARY):
                kept_bytes, _ = keep_only(content, sm)
                if not kept_bytes:
                    target.unlink()
                    raise NoCodeError(
                        f"{wheel.name} has no code for SM {sm / 10:.1f}; name another generation "
                        "with --sm"
                    )
                digests[item.filename] = (
                    base64.urlsafe_b64encode(hashlib.sha256(content).digest())
                    .rstrip(b"=")
                    .decode("ascii")
                )
            elif item.filename.endswith(".dist-info/RECORD"):  # the last file of a wheel
                content = bytearray(_recorded(content.decode("utf-8"), digests).encode("utf-8"))
            packed.writestr(item, bytes(content), compress_type=zipfile.ZIP_LZMA)
    return target


def _recorded(record: str, digests: Mapping[str, str]) -> str:
    """A wheel's RECORD with these digests; the sizes are as before."""
    lines = []
    for line in record.splitlines(keepends=True):
        name, _, rest = line.partition(",")
        size = rest.rpartition(",")[2]
        lines.append(f"{name},sha256={digests[name]},{size}" if name in digests else line)
    return "".join(lines)
