"""The targets of MLPerf training benchmarks, and whether an evaluation reaches one.

Source: `eval_accuracy` in mlperf_logging/compliance_checker (mlcommons/logging, rounds 3.1 to 6.0).
"""

import math

from parity.frozen import frozen


@frozen
class BenchmarkTarget:
    """The value at which a benchmark ends: a loss, which is to fall to it, or a share of right
    answers, which is to rise to it.
    """

    value: float
    lower_is_better: bool

    def is_stated(self, value: float) -> bool:
        """Whether a run states this target."""
        return math.isclose(value, self.value, rel_tol=1e-9)

    def is_reached(self, value: float) -> bool:
        """Whether an evaluation reaches it; NaN never does, nor does what no loss or share is."""
        if self.lower_is_better:
            return 0.0 < value <= self.value
        return self.value <= value <= 1.0


TARGETS = {
    name: BenchmarkTarget(value=value, lower_is_better=lower_is_better)
    for lower_is_better, values in (
        (
            True,
            {
                "deepseekv3_671b": 4.05,
                "flux1": 0.586,
                "gpt3": 2.69,
                "gpt_oss_20b": 3.34,
                "llama2_70b_lora": 0.925,
                "llama31_405b": 5.6,
                "llama31_8b": 3.3,
            },
        ),
        (False, {"bert": 0.72, "dlrm_dcnv2": 0.80275, "gnn": 0.72, "rgat": 0.72, "resnet": 0.759}),
    )
    for name, value in values.items()
}
"""By the names of `submission_benchmark`; stable diffusion is not here, as it has two targets."""
