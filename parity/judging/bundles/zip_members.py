"""Read the members of an untrusted zip file within fixed limits of size, number and names.

The directory at the end of the file is checked before anything is inflated: its size, the number
of members, their names, their declared sizes and the ratio of those to the file. Then each member
is inflated in pieces and refused at its declared size. So a file that lies about its content
costs little more memory than its own size.
"""

import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

MAX_MEMBERS = 10_000
MAX_DIRECTORY_BYTES = 4 << 20
# of all members together: two runs of 10,000,000 steps with nine columns have 1.4 GiB
MAX_BYTES = 2 << 30
MAX_MANIFEST_BYTES, MAX_JSON_BYTES = 4 << 20, 16 << 20
# steps deflate 5-fold, losses of one decimal 14-fold; more than 50-fold are blanks
FREE_BYTES, MAX_RATIO = 64 << 20, 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,79}(/[a-z0-9][a-z0-9_.-]{0,79})?")
_PIECE_BYTES = 1 << 20
# end of the central directory: signature, 2 disks, 2 counts, size, offset, comment
_END = struct.Struct("<4s4H2LH")
_END64 = b"PK\x06\x07"
_END64_BYTES = 20
_ENCRYPTED = 0x1

UNREADABLE = (
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    struct.error,
    ValueError,
)


class ArchiveError(ValueError):
    """A zip file that is refused: what is wrong, its value and the limit, without the file's
    name.
    """


def read_members(path: str | Path) -> dict[str, bytes]:
    """The members of a zip file by name. Raises ArchiveError beyond a limit, one of `UNREADABLE`
    where it is no sound zip file.
    """
    with Path(path).open("rb") as stream:
        return members_of(stream)


def members_of(stream: BinaryIO) -> dict[str, bytes]:
    """The members of an open zip file, as `read_members`."""
    file_bytes = _check_end(stream)
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        _check_directory(members, file_bytes)
        return {info.filename: _inflate(archive, info) for info in members}


def _check_end(stream: BinaryIO) -> int:
    """Check the record at the end of the file, and return the file's size in bytes."""
    size = stream.seek(0, 2)
    tail = min(size, _END.size + _END64_BYTES)
    stream.seek(size - tail)
    end = stream.read(tail)
    if tail < _END.size:
        raise zipfile.BadZipFile("File is not a zip file")
    signature, _, _, _, count, directory_bytes, _, comment = _END.unpack(end[-_END.size :])
    if signature != b"PK\x05\x06":
        raise zipfile.BadZipFile("File is not a zip file, or has a comment")
    if end.startswith(_END64) and tail == _END.size + _END64_BYTES:
        raise ArchiveError("it is a ZIP64 file; expected a plain zip file")
    if count > MAX_MEMBERS or directory_bytes > MAX_DIRECTORY_BYTES or comment:
        raise ArchiveError(
            f"it has {count:,} members, a directory of {directory_bytes:,} bytes and a comment of "
            f"{comment:,}; expected at most {MAX_MEMBERS:,} members and {MAX_DIRECTORY_BYTES:,} "
            "bytes, and no comment"
        )
    return size


def _check_directory(members: list[zipfile.ZipInfo], file_bytes: int) -> None:
    names: set[str] = set()
    if len(members) > MAX_MEMBERS:
        raise ArchiveError(f"it has {len(members):,} members; expected at most {MAX_MEMBERS:,}")
    for info in members:
        _check_member(info)
        if info.filename in names:
            raise ArchiveError(f"{info.filename} is in it twice; expected each name once")
        names.add(info.filename)
    total = sum(info.file_size for info in members)
    if total > MAX_BYTES:
        raise ArchiveError(f"its members have {total:,} bytes; expected at most {MAX_BYTES:,}")
    if total > FREE_BYTES and total > MAX_RATIO * file_bytes:
        raise ArchiveError(
            f"{file_bytes:,} bytes inflate to {total:,}; expected at most {MAX_RATIO} times its "
            "size"
        )


def _check_member(info: zipfile.ZipInfo) -> None:
    if not _NAME.fullmatch(info.filename) or info.orig_filename != info.filename:
        raise ArchiveError(
            f"a member is named {info.filename[:80]!a}; expected names such as "
            "series/000-000-00.npy"
        )
    if info.flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{info.filename} is encrypted; expected a zip file without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(
            f"{info.filename} is compressed by method {info.compress_type}; expected stored (0) or "
            "deflated (8)"
        )
    limit = _member_limit(info.filename)
    if info.file_size > limit:
        raise ArchiveError(
            f"{info.filename} has {info.file_size:,} bytes; expected at most {limit:,}"
        )


def _member_limit(name: str) -> int:
    if name == "manifest.json":
        return MAX_MANIFEST_BYTES
    if name.endswith(".npy"):
        return MAX_BYTES
    return MAX_JSON_BYTES


def _inflate(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of one member, refused as soon as it is longer than declared."""
    pieces, length = [], 0
    with archive.open(info) as stream:
        while piece := stream.read(_PIECE_BYTES):
            pieces.append(piece)
            length += len(piece)
    if length != info.file_size:  # zipfile itself stops at the declared size
        raise ArchiveError(
            f"{info.filename} has {length:,} bytes, but {info.file_size:,} are declared; expected "
            "both to agree"
        )
    return b"".join(pieces)
