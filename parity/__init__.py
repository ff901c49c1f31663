"""Convergence-parity validation for low-precision LLM training: does the model still converge under
NVFP4?
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.client.run import Run
    from parity.comparing.compare import assert_parity, compare
    from parity.comparing.comparison import Comparison
    from parity.golden.asserting import assert_golden
    from parity.judging.curves.curve import Curve, curve_from_arrays
    from parity.judging.noise.noise_table import NoiseTable, read_noise_table
    from parity.judging.noise.public_table import public_noise_table
    from parity.judging.policy import Policy, policy_from_mapping
    from parity.judging.verdict.verdict import Verdict, judge
    from parity.readers.run_tables.layout import RunTable
    from parity.readers.run_tables.run_table import read_run_table

__all__ = [
    "Comparison",
    "Curve",
    "NoiseTable",
    "Policy",
    "Run",
    "RunTable",
    "Verdict",
    "assert_golden",
    "assert_parity",
    "compare",
    "curve_from_arrays",
    "judge",
    "policy_from_mapping",
    "public_noise_table",
    "read_noise_table",
    "read_run_table",
]

_HOMES = {
    "Comparison": "parity.comparing.compare",
    "Policy": "parity.judging.policy",
    "Curve": "parity.judging.curves.curve",
    "NoiseTable": "parity.judging.noise.noise_table",
    "Run": "parity.client.run",
    "RunTable": "parity.readers.run_tables.layout",
    "Verdict": "parity.judging.verdict.verdict",
    "assert_golden": "parity.golden.asserting",
    "assert_parity": "parity.comparing.compare",
    "compare": "parity.comparing.compare",
    "policy_from_mapping": "parity.judging.policy",
    "curve_from_arrays": "parity.judging.curves.curve",
    "judge": "parity.judging.verdict.verdict",
    "public_noise_table": "parity.judging.noise.public_table",
    "read_noise_table": "parity.judging.noise.noise_table",
    "read_run_table": "parity.readers.run_tables.run_table",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line can handle Ctrl-C from
    its start.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'parity' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names too, which are no attributes before their first use."""
    return sorted({*globals(), *__all__})
