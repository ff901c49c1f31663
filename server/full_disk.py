"""A full disk, as the operating system reports it: what it is called, and what frees it."""

import errno
import os
from pathlib import Path

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
_LEAST_BYTES = 64 * 1024  # less than SQLite's next page and its index of the log need


def is_full(error: BaseException) -> bool:
    """Whether a file could not be written because its disk, or the quota of its owner, is full."""
    return isinstance(error, OSError) and error.errno in _ERRORS


def has_no_room(folder: Path) -> bool:
    """Whether the disk of a folder has no space left for a process of this user, or no inodes."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # a file system without a fixed number of inodes has 0 of 0
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES or (disk.f_files > 0 and not disk.f_favail)


def sentence(error: OSError) -> str:
    """What cannot be written, and what to do."""
    place = f", writing {error.filename}" if error.filename else ""
    return f"the disk is full ({error.strerror}{place}); free space on it"
