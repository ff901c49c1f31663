"""What a decision consists of: verdict, reason code, sentence, warnings. The rules that decide are
in `parity.judging.reasons`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from parity.judging import document_types
from parity.judging.measurements import Measurements
from parity.structure import frozen

# What a decision consists of: one of three verdicts, a reason code with its sentence, and what else
# holds.

State = document_types.State
PASS: State = "pass"  # noqa: S105
FAIL: State = "fail"
INCONCLUSIVE: State = "inconclusive"

WORST_FIRST: tuple[State, ...] = (FAIL, INCONCLUSIVE, PASS)

Rule = Callable[[Measurements], str | None]
"""The sentence of a reason, with its numbers, where it holds; else None."""

CheckName = Literal[
    "input",
    "same data order",
    "same ground",
    "finite losses",
    "stability",
    "plan and window",
    "late phase",
    "run-to-run noise",
    "gap against margin",
    "policy check",
]
POLICY_CHECK: CheckName = "policy check"


def state_of(*, passes: bool, fails: bool) -> State:
    """The state of a check that passes, fails, or leaves it open."""
    if passes:
        return PASS
    return FAIL if fails else INCONCLUSIVE


def worst(states: Iterable[str]) -> State:
    """The worst of at least one verdict; ValueError for an unknown one, or for no verdict at
    all.
    """
    return min((_state(word) for word in states), key=WORST_FIRST.index)


def _state(word: str) -> State:
    for state in WORST_FIRST:
        if word == state:
            return state
    raise ValueError(f"{word!r} is not a verdict; expected one of {', '.join(WORST_FIRST)}")


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """A code, the one line that documents it, what a user does next, and the check that reports
    name it under (None: a warning only).

    `detail` adds what only the tables in the docs say. `next_step` is None where nothing needs
    doing, or where `advice` computes it; `next_step_of_job` takes its place for the job of a
    server, where a step in the words of the command line can't be taken.
    """

    code: str
    check: CheckName | None = None
    _: KW_ONLY
    means: str
    detail: str | None = None
    next_step: str | None = None
    next_step_of_job: str | None = None

    def next_for(self, *, job: bool) -> str | None:
        """What a user does next, in the words of a server's job or of the command line."""
        if job and self.next_step_of_job is not None:
            return self.next_step_of_job
        return self.next_step

    @property
    def meaning(self) -> str:
        """`means` with its detail."""
        if self.detail:
            return f"{self.means}; {self.detail}"
        return self.means


@frozen
class Reason:
    """A reason code with its sentence."""

    code: str
    sentence: str


@frozen
class Decision:
    """The verdict's state, the reason that decided it, and what else holds (further vetoes, then
    warnings).
    """

    state: State
    deciding: Reason
    others: tuple[Reason, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """All reason codes, the deciding one first."""
        return (self.deciding.code, *(reason.code for reason in self.others))


# Reason codes of the checks in addition to the loss: those that a policy names, and the validation
# veto. `checks` applies them.

# The checks that a policy can let decide in addition to the loss (`checks`): the code if one fails,
# and if it is open or could not be made.
CHECK_CODES: Mapping[str, tuple[ReasonCode, ReasonCode]] = {
    "grad_norm": (
        ReasonCode(
            "GRAD_NORM_FAILS",
            POLICY_CHECK,
            means="check grad_norm: the gradient norms differ by more than 10 %",
            next_step="Look at the gradients by layer: the first layers to keep in bf16 are those "
            "whose norms differ.",
        ),
        ReasonCode(
            "GRAD_NORM_OPEN",
            POLICY_CHECK,
            means="check grad_norm: undecided, or gradient norms were not recorded",
            next_step="Record grad_norm in every run, before clipping; if it is recorded already, "
            "add runs.",
        ),
    ),
    "spikes": (
        ReasonCode(
            "SPIKES_FAILS",
            POLICY_CHECK,
            means="check spikes: the candidate spikes more often than by chance",
            next_step="Look at the candidate's spikes: keep the layers that start them in bf16, "
            "or lower the learning rate.",
        ),
        ReasonCode(
            "SPIKES_OPEN",
            POLICY_CHECK,
            means="check spikes: undecided, or too few common steps to count spikes",
            next_step="Look at the candidate's spikes: another run of both arms shows whether "
            "they are chance.",
        ),
    ),
    "validation_loss": (
        ReasonCode(
            "VALIDATION_LOSS_FAILS",
            POLICY_CHECK,
            means="check validation_loss: the validation gap is above the margin",
        ),
        ReasonCode(
            "VALIDATION_LOSS_OPEN",
            POLICY_CHECK,
            means="check validation_loss: undecided, or validation losses were not recorded",
            next_step="Evaluate all runs on the same steps of the window; if they are, add runs.",
        ),
    ),
    "accuracy": (
        ReasonCode(
            "ACCURACY_FAILS",
            POLICY_CHECK,
            means="check accuracy: a downstream task is worse by more than its margin",
            next_step="Evaluate another run of both arms before you give up the recipe: a single "
            "one does not include run-to-run noise.",
        ),
        ReasonCode(
            "ACCURACY_OPEN",
            POLICY_CHECK,
            means="check accuracy: undecided, or no downstream accuracy was given",
            next_step="Give both arms' results by item on the same items, or evaluate more items.",
        ),
    ),
    "net_speedup": (
        ReasonCode(
            "NET_SPEEDUP_FAILS",
            POLICY_CHECK,
            means="check net_speedup: slower to the same loss than the baseline",
            next_step="The token tax cancels the speed-up: quantize fewer layers, or look for "
            "what slows the step.",
        ),
        ReasonCode(
            "NET_SPEEDUP_OPEN",
            POLICY_CHECK,
            means="check net_speedup: undecided, or step times were not recorded or cannot be "
            "compared",
            next_step="Train both arms at the same time on one machine, or in turns with two runs "
            "each, and record step_seconds.",
        ),
    ),
}


VALIDATION_LOSS_WORSE = ReasonCode(
    "VALIDATION_LOSS_WORSE",
    "gap against margin",
    means="the validation gap is above the margin, although the training gap is below it",
    next_step="Find out why the model is worse on held-out data; `validation: advise` in the "
    "policy lets the training loss alone decide.",
)


# The reason codes that only a comparison of evaluations has; all others are the judge's own
# (`reasons`).

AS_OF = ReasonCode(
    "AS_OF",
    "plan and window",
    means="the gap is known as of a point before the training's end",
    detail="a plan that is not reached or not known, a learning rate that has not decayed, or "
    "nothing that says that it has; "
    "blocks a pass unless the policy accepts it (as_of: accept)",
    next_step="Train both arms to the end of their schedule, log the learning rate and state the "
    "plan (--planned-steps N), or state "
    "--schedule decayed if the rate had decayed; until then read the gap as of this point.",
)
IDENTICAL = ReasonCode(
    "IDENTICAL",
    "gap against margin",
    means="arms of one recipe, which differ in revision or environment, are equal at every logged "
    "step",
    detail="run by run, bit for bit, with digits that show it; then no run-to-run noise and no "
    "number of points counts",
)
TOO_FEW_RUNS = ReasonCode(
    "TOO_FEW_RUNS",
    "run-to-run noise",
    means="an arm has a single run, and the loss is of a kind whose run-to-run noise cannot be "
    "assumed",
    next_step="Add runs, so that each arm has at least two; five or more give a useful interval.",
)
RUNS_TRUNCATED = ReasonCode(
    "RUNS_TRUNCATED",
    means="runs end at different points, so the comparison is made at the last one that all "
    "reached",
)
CLUSTERS_WIDEN = ReasonCode(
    "CLUSTERS_WIDEN",
    means="over clusters of runs the interval decides otherwise than over runs",
    next_step="Run both arms on the same systems, or on more of them.",
)
CLUSTERS_UNUSABLE = ReasonCode(
    "CLUSTERS_UNUSABLE",
    "same ground",
    means="each arm has one cluster, so what is the cluster's and what the recipe's cannot be "
    "told apart",
    next_step="Run both arms on the same systems, or each on at least two.",
)

NUMBERS_ALONE = ReasonCode(
    "NUMBERS_ALONE",
    "same ground",
    means="each arm is one number that was typed: pairing, software and schedule of the runs are "
    "not known",
    detail="a gap above the margin fails, no number passes",
    next_step="Give the logs of both runs in place of the numbers, with the same data order, and "
    "state their plan and schedule.",
)

DECIDING, WARNINGS = (
    (AS_OF, NUMBERS_ALONE, TOO_FEW_RUNS, CLUSTERS_UNUSABLE),
    (RUNS_TRUNCATED, CLUSTERS_WIDEN),
)
