"""Convergence-parity validation for low-precision LLM training: does the model still converge under NVFP4?"""

from parity.client.run import Run
from parity.judging.criteria import Criteria, criteria_from_mapping
from parity.judging.curve import Curve, curve_from_arrays
from parity.judging.verdict import Verdict, judge

__all__ = ["Criteria", "Curve", "Run", "Verdict", "criteria_from_mapping", "curve_from_arrays", "judge"]
