"""A text that is the same on every machine and with every version of every library: a snapshot of
this project's documentation.

What it answers: which bytes does `data.source: parity_docs` train on? Those of
corpus/parity_docs.txt, beside this module; a README there says how the file was made. It never
changes: what was measured on it (`parity/judging/noise/emulated.csv`) holds for this text only.

    sha256(corpus/parity_docs.txt) = DIGEST

The assumption that can fail: the file is as it was committed. An edited or truncated copy has
another digest and is refused.
"""

import hashlib
from pathlib import Path

TEXT = Path(__file__).with_name("corpus") / "parity_docs.txt"
DIGEST = "1a3aef49986a494d882578f52f979afd601c8ab22add645c9870a26114203742"


class DataChangedError(Exception):
    """The text is not the one that was committed."""

    code = "DATA_CHANGED"


def read() -> bytes:
    """Returns the text; raises DataChangedError if its SHA-256 is not DIGEST."""
    text = TEXT.read_bytes() if TEXT.is_file() else b""
    digest = hashlib.sha256(text).hexdigest()
    if digest != DIGEST:
        raise DataChangedError(
            f"{TEXT} has {len(text):,} bytes with the SHA-256 {digest}, expected {DIGEST}; get the "
            "file again from the release that "
            "this worker runs, or use data.source: text with a text of your own"
        )
    return text
