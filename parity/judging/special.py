"""The functions of scipy that judge, imported when the first of them is called:
`special.stdtrit(…)`.

What only shows a verdict, such as a gate in CI, needs the names of its codes, which are written
next to their rules, but no scipy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.fft import dct
    from scipy.special import (
        bdtrc,
        chdtri,
        fdtrc,
        log_ndtr,
        ndtr,
        ndtri,
        polygamma,
        psi,
        roots_genlaguerre,
        roots_hermitenorm,
        stdtr,
        stdtrit,
    )

__all__ = [
    "bdtrc",
    "chdtri",
    "dct",
    "fdtrc",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "roots_genlaguerre",
    "roots_hermitenorm",
    "stdtr",
    "stdtrit",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(
        importlib.import_module("scipy.fft" if name == "dct" else "scipy.special"), name
    )
    globals()[name] = function
    return function
