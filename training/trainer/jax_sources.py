"""A text that is the same on every machine: the Python sources inside the pinned jax wheel, byte by byte.

What it answers: which bytes does `data.source: jax_sources` train on? Those of the wheel's `jax/**/*.py`, in the order of their paths,
without jax's own test data. The wheel is the same for every Python and processor (py3-none-any), and the locks pin it by its hash.

    sha256(file 1 + file 2 + ...) = DIGEST

The assumption that can fail: the installed jax is the pinned one. Another version, or an edited file, has another digest and is refused.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import distribution
from pathlib import Path

JAX_VERSION = "0.10.2"
DIGEST = "f88fab3544a074819e6309f63e6a96d8b1567307f5dbdf548d54d02421c301c0"
_TEST_DATA = "internal_test_util"  # recorded modules as bytes literals: 1.8 MB that are no text


class DataChangedError(Exception):
    """The installed jax is not the one whose sources are pinned."""

    code = "DATA_CHANGED"


def read() -> tuple[bytes, int]:
    """Returns the text and the number of its files; raises DataChangedError if its SHA-256 is not DIGEST."""
    jax = distribution("jax")
    # The wheel's own list of files: a cache or a plugin in the same folder is not in it.
    names = sorted(
        file.as_posix() for file in jax.files or () if file.parts[0] == "jax" and file.suffix == ".py" and _TEST_DATA not in file.parts
    )
    paths = [path for path in (Path(str(jax.locate_file(name))) for name in names) if path.is_file()]
    text = b"".join(path.read_bytes() for path in paths)
    digest = hashlib.sha256(text).hexdigest()
    if digest != DIGEST:
        raise DataChangedError(
            f"the sources of jax {jax.version} have the SHA-256 {digest}, expected {DIGEST} of jax {JAX_VERSION}'s wheel; "
            "install jax from the locks again, or use data.source: text with a text of your own"
        )
    return text, len(paths)
