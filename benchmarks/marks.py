"""A measured figure with its mark, as the benchmarks print it, and the folder of public runs that
some of them read.
"""

import os
from pathlib import Path

from parity.frozen import frozen

PUBLIC_RUNS = Path(
    os.environ.get("PARITY_PUBLIC_RUNS") or Path(__file__).parents[2] / "shared" / "data"
)
"""Tables of published runs, which are not part of the repository; checks that need them are left
out where the folder is not there.
"""


@frozen
class MarkedFigure:
    """One measured figure and its mark."""

    what: str
    value: str
    mark: str
    ok: bool


def share(value: float) -> str:
    """A share in words."""
    return f"{100 * value:.1f} %"
