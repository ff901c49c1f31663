"""The decision table: pass, fail or inconclusive; the first rule that holds wins, each with its code and its sentence.

The pass is non-inferiority: the upper end of the interval is below the margin. A candidate that is better than the baseline by more
than the margin is no pass either: something else than precision has changed. The order is argued in docs/method.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from parity.judging import reasons
from parity.judging import warnings as remarks
from parity.judging.measurements import Measurements

Rule = Callable[[Measurements], str | None]
State = Literal["pass", "fail", "inconclusive"]
PASS: State = "pass"  # noqa: S105  (a verdict, no password)
FAIL: State = "fail"
INCONCLUSIVE: State = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason code with its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict's state, the reason that decided, and what else holds (further vetoes, then warnings)."""

    state: State
    deciding: Reason
    others: tuple[Reason, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """All reason codes, the deciding one first."""
        return (self.deciding.code, *(reason.code for reason in self.others))


_TABLE: tuple[tuple[State, str, Rule], ...] = (
    (INCONCLUSIVE, "EMPTY", reasons.empty),
    (INCONCLUSIVE, "NO_COMMON_STEPS", reasons.no_common_steps),
    (INCONCLUSIVE, "DATA_ORDER_MISMATCH", reasons.data_order),
    (INCONCLUSIVE, "BASELINE_INVALID", reasons.baseline_invalid),
    (INCONCLUSIVE, "LOSS_NOT_NATS", reasons.not_nats),
    (FAIL, "NONFINITE_CAND", reasons.nonfinite_candidate),
    (FAIL, "DIVERGED", reasons.diverged),
    (FAIL, "CANDIDATE_UNSTABLE", reasons.candidate_unstable),
    (INCONCLUSIVE, "INCOMPLETE", reasons.incomplete),
    (INCONCLUSIVE, "TOO_FEW_STEPS", reasons.too_few),
    (INCONCLUSIVE, "MARGIN_UNDETERMINED", reasons.margin_undetermined),
    (INCONCLUSIVE, "UNSTABLE", reasons.unstable),
    (INCONCLUSIVE, "CONFOUNDED", reasons.confounded),
    (INCONCLUSIVE, "NOT_CONVERGED", reasons.not_converged),
    (FAIL, "GAP_EXCEEDS_MARGIN", reasons.gap_exceeds),
    (INCONCLUSIVE, "TOO_FEW_STEPS", reasons.few_for_a_pass),
    (INCONCLUSIVE, "BETTER_THAN_BASELINE", reasons.better),
    (INCONCLUSIVE, "GAP_GROWING", reasons.gap_growing),
    (INCONCLUSIVE, "PLAN_UNKNOWN", reasons.plan_unknown),
    (INCONCLUSIVE, "DOWNSAMPLED", reasons.downsampled),
    (INCONCLUSIVE, "SMOOTHED", reasons.smoothed),
    (INCONCLUSIVE, "ROUNDED", reasons.rounding_hides),
    (INCONCLUSIVE, "SPIKES_HIDE_GAP", reasons.spikes_hide),
    (INCONCLUSIVE, "RUN_NOISE_ASSUMED", reasons.noise_rejected),
    (PASS, "WITHIN_MARGIN", reasons.within_margin),
    (INCONCLUSIVE, "CI_STRADDLES_MARGIN", reasons.straddles),
)

_WARNINGS: tuple[tuple[str, Rule], ...] = (
    ("RUN_NOISE_ASSUMED", remarks.noise_assumed),
    ("REPLICATES_IDENTICAL", remarks.identical),
    ("ARMS_IDENTICAL", remarks.arms_identical),
    ("PAIRING_UNPROVEN", remarks.pairing_unproven),
    ("PAIRING_WEAK", remarks.pairing_weak),
    ("WINDOW_SENSITIVE", remarks.window_sensitive),
    ("ROUNDED", remarks.rounded),
    ("SMOOTHED", remarks.smooth),
    ("RUNS_UNPAIRED", remarks.unpaired_runs),
    ("CONTROLS_LEFT_OUT", remarks.controls_left_out),
    ("BEYOND_PLAN", remarks.beyond_plan),
)


def decide(m: Measurements) -> Decision:
    """Apply the table to one comparison's measurements."""
    matches = [(state, Reason(code=code, sentence=sentence)) for state, code, rule in _TABLE if (sentence := rule(m)) is not None]
    state, deciding = matches[0]
    others = [reason for other, reason in matches[1:] if other == INCONCLUSIVE]
    warnings = [Reason(code=code, sentence=sentence) for code, rule in _WARNINGS if (sentence := rule(m)) is not None]
    said = {deciding.code, *(reason.code for reason in others)}
    return Decision(state=state, deciding=deciding, others=(*others, *(reason for reason in warnings if reason.code not in said)))
