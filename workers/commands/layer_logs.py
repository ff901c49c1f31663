"""The statistics by layer that a trainer's debug tool wrote, read once it has ended.

The folder belongs to code that nobody has reviewed: it is opened by descriptors below the output
folder, through no link, and what is read of it is bounded. It decides no verdict, so whatever is
wrong with it is a note on the attempt.
"""

import os
from collections.abc import Iterator

from parity.client.layer_tables import pieces
from parity.judging.verdict.layer_statistics import LayerColumns
from parity.readers.errors import ReadError
from parity.readers.secondary.inspect_log import inspect_table
from workers.commands.follow import LogRefusedError, open_below
from workers.protocol import LayerTableMessage

_MOST_FILES = 1024
_MOST_BYTES = 2**30  # of all files together
_LONGEST_LINE = 4096


def layer_messages(output: int, folder: str) -> Iterator[LayerTableMessage]:
    """The statistics below an open output folder, in pieces; none where the folder is missing or
    empty. Raises LogRefusedError.
    """
    try:
        table = _read(output, folder)
    except ReadError as error:
        raise LogRefusedError(str(error)) from None
    for piece in pieces(table) if table is not None else ():
        yield {
            "kind": "layer_table",
            "steps": piece.steps.tolist(),
            "columns": {
                "/".join(column): values.tolist() for column, values in piece.columns.items()
            },
        }


def _read(output: int, folder: str) -> LayerColumns | None:
    opened = open_below(output, folder)
    if opened is None:
        return None
    try:
        with os.scandir(opened) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".log"))
        if len(names) > _MOST_FILES:
            raise LogRefusedError(
                f"{folder} has {len(names):,} logs, expected at most {_MOST_FILES:,}, one a rank"
            )
        if not names:
            return None
        return inspect_table(folder, _logs(opened, folder, names))
    except NotADirectoryError:
        raise LogRefusedError(f"{folder} is a file, expected a folder of logs") from None
    finally:
        os.close(opened)


def _logs(opened: int, folder: str, names: list[str]) -> Iterator[tuple[str, Iterator[str]]]:
    left = _MOST_BYTES
    for name in names:
        log = open_below(opened, name)
        if log is None:
            continue
        with os.fdopen(log, encoding="utf-8", errors="replace") as file:
            left -= os.fstat(log).st_size
            if left < 0:
                raise LogRefusedError(
                    f"{folder} has more than {_MOST_BYTES:,} bytes of logs; log less often (`freq`)"
                )
            yield f"{folder}/{name}", iter(lambda: file.readline(_LONGEST_LINE), "")
