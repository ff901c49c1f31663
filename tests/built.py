"""The wheel and the source distribution, built from this checkout."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from server.settings import CHECKOUT


class Built(NamedTuple):
    """The two files."""

    wheel: Path
    sdist: Path


def build(folder: Path) -> Built:
    """Build both into a folder, with the locked hatchling."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)
