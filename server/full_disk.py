"""A full disk, as the operating system reports it: what it is called, and what frees it."""

import errno
import os
import tempfile
from pathlib import Path

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
_LEAST_BYTES = 64 * 1024  # less than SQLite's next page and its index of the log need


def is_full(error: BaseException) -> bool:
    """Whether a file could not be written because its disk, or the quota of its owner, is full."""
    return isinstance(error, OSError) and error.errno in _ERRORS


def has_no_room(folder: Path) -> bool:
    """Whether the disk of a folder has no space left for a process of this user, or no inodes, or
    the user's quota is used up.
    """
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # a file system without a fixed number of inodes has 0 of 0
    is_used_up = disk.f_bavail * disk.f_frsize < _LEAST_BYTES
    return is_used_up or (disk.f_files > 0 and not disk.f_favail) or _quota_is_used_up(folder)


def _quota_is_used_up(folder: Path) -> bool:
    """A quota shows in no number of the disk: what it refuses is a write."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_LEAST_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return is_full(error)
    return False


def sentence(error: OSError) -> str:
    """What cannot be written, and what to do."""
    place = f", writing {error.filename}" if error.filename else ""
    return f"the disk is full ({error.strerror}{place}); free space on it"
