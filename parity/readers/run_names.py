"""The name of a run: the path and the run in it, and a short name for a report."""

from pathlib import Path

from parity.readers.files.text import STDIN
from parity.readers.tables.npz import NPZ
from parity.readers.trackers.sources import is_source, source_name
from parity.readers.trackers.wandb_folder import offline_name


def split_name(name: str) -> tuple[str, str | None]:
    """A run's name as path and run: `file.npz:run`, `-:RUN`, or `FILE:RUN` where FILE exists and
    the whole name does not.

    A run in a tracker is not split.
    """
    if is_source(name):
        return name, None
    path, colon, run = name.rpartition(NPZ + ":")
    if colon:
        return path + NPZ, run
    if name.startswith(STDIN + ":"):
        return STDIN, name[2:]
    if ":" in name and not _exists(name):
        parts = name.split(":")
        for end in range(len(parts) - 1, 0, -1):
            if _exists(path := ":".join(parts[:end])):
                return path, ":".join(parts[end:])
    return name, None


def run_name(name: str) -> str:
    """A short name for a run: its file's stem, the archive's or table's run, its name in the
    tracker, or "stdin". Bytes of a file's name that are not UTF-8 are escapes.
    """
    if is_source(name):
        return source_name(name)
    run = split_name(name)[1]
    if run:
        return utf8_name(run)
    if name == STDIN:
        return "stdin"
    stem = Path(name).name
    for suffix in (
        ".gz",
        ".zip",
        ".csv",
        ".tsv",
        ".txt",
        ".log",
        ".jsonl",
        ".json",
        ".ndjson",
        ".parquet",
        ".wandb",
        NPZ,
    ):
        stem = stem.removesuffix(suffix)
    return utf8_name(offline_name(stem) or name)


def utf8_name(name: str) -> str:
    """A name as text that can be written: Python has bytes of a file's name that are not UTF-8 as
    surrogates, which no encoding has.
    """
    return name.encode("utf-8", "backslashreplace").decode()


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False
