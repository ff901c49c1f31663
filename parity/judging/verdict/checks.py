"""Checks in addition to the loss that the policy lets decide: they can turn a pass into a fail or
leave it open, never the other way round.

The loss always decides. `grad_norm`, `spikes`, `validation_loss`, `accuracy` and `net_speedup`
advise unless the policy's `checks` names them; a check of its list that could not be measured
leaves the verdict open, because a check that was asked for and not made is no pass.

spikes: exact binomial P(X >= n_B | n_A + n_B, 1/2) over the whole run; below 1 % a fail, below 5 %
open accuracy: fails where one task is surely worse by more than its margin, passes where every task
is surely not
"""

from collections.abc import Mapping

from parity.judging.codes import AS_OF, VALIDATION_LOSS_WORSE
from parity.judging.curves.spikes import ONE_SIDED_ALPHA, RUN_BLOCK_POINTS
from parity.judging.decision import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    WORST_FIRST,
    Decision,
    Reason,
    State,
    state_of,
)
from parity.judging.document_types import CheckDocument
from parity.judging.gap.margin import Margin
from parity.judging.policy import Policy
from parity.judging.precedence import CHECKS
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.gradients import MOST_RATIO
from parity.wording import count

# a handful of spikes of one arm alone can't reach 1 %, and is no reason for a pass either
OPEN_ALPHA = 0.05


def checks(advisory: Advisory, margin: Margin | None, policy: Policy) -> tuple[CheckDocument, ...]:
    """Every check in addition to the loss, in a fixed order."""
    outcomes = {
        "grad_norm": _grad_norm(advisory),
        "spikes": _spikes(advisory),
        "validation_loss": _validation_loss(advisory, margin),
        "accuracy": _accuracy(advisory),
        "net_speedup": _net_speedup(advisory),
    }
    return tuple(
        CheckDocument(
            name=name,
            role="decides" if name in policy.checks else "advises",
            state=state,
            sentence=sentence,
        )
        for name, (state, sentence) in outcomes.items()
    )


def apply_checks(decision: Decision, made: tuple[CheckDocument, ...], policy: Policy) -> Decision:
    """The decision after the policy's checks: the first failing one fails a pass (or one as of a
    point), else an open or unmade one leaves it open.

    A validation gap above the margin leaves it open too, on the list or not, unless the policy only
    wants advice.
    """
    # what would pass as of a point has to hold there, too
    if decision.state != PASS and decision.deciding.code != AS_OF.code:
        return decision
    deciding = [check for check in made if check["role"] == "decides"]
    for place, state in enumerate((FAIL, INCONCLUSIVE)):
        for check in deciding:
            if (check["state"] or INCONCLUSIVE) == state:
                reason = Reason(code=CHECKS[check["name"]][place].code, sentence=check["sentence"])
                return Decision(
                    state=state, deciding=reason, others=(decision.deciding, *decision.others)
                )
    worse = next(
        (check for check in made if check["name"] == "validation_loss" and check["state"] == FAIL),
        None,
    )
    if worse is not None and policy.validation == "veto":
        reason = Reason(code=VALIDATION_LOSS_WORSE.code, sentence=worse["sentence"])
        return Decision(
            state=INCONCLUSIVE, deciding=reason, others=(decision.deciding, *decision.others)
        )
    return decision


def _grad_norm(advisory: Advisory) -> tuple[State | None, str]:
    norms = advisory.grad_norm
    if norms is None:
        return None, "Gradient norms were not recorded by all runs."
    outcomes: Mapping[str, tuple[State, str]] = {
        "inside": (PASS, "is inside"),
        "outside": (FAIL, "is outside"),
        "open": (INCONCLUSIVE, "straddles"),
    }
    state, words = outcomes[norms["state"]]
    return (
        state,
        (
            f"The gradient norms' ratio {norms['ratio']:.3f} ({norms['lo']:.3f} to "
            f"{norms['hi']:.3f}) {words} {1.0 / MOST_RATIO:.3f} to {MOST_RATIO:.3f}."
        ),
    )


def _spikes(advisory: Advisory) -> tuple[State | None, str]:
    spikes = advisory.run_spikes
    if spikes is None:
        return (
            None,
            (
                "Spikes over the whole run could not be counted: fewer than "
                f"{2 * RUN_BLOCK_POINTS} common steps."
            ),
        )
    p = spikes["p_candidate_more"]
    state = state_of(passes=p >= OPEN_ALPHA, fails=p < ONE_SIDED_ALPHA)
    words = {
        PASS: "no more than chance gives",
        FAIL: "more than chance gives",
        INCONCLUSIVE: "perhaps more than chance gives",
    }[state]
    both = (
        f"Over the whole run the candidate spikes {count(spikes['candidate'], 'time')}, the "
        f"baseline {count(spikes['baseline'], 'time')}"
    )
    return state, f"{both}: {words} (p {p:.2g})."


def _accuracy(advisory: Advisory) -> tuple[State | None, str]:
    tasks = advisory.downstream
    if not tasks:
        return None, "No downstream accuracy of both arms was given."
    worst = min(
        tasks,
        key=lambda task: (
            WORST_FIRST.index(task["state"]),
            task["lo_points"] + task["margin_points"],
        ),
    )
    others = len(tasks) - 1
    scope = f"; worst of {len(tasks)} tasks" if others else ""
    return worst["state"], f"Accuracy: {worst['sentence']}{scope}."


def _validation_loss(advisory: Advisory, margin: Margin | None) -> tuple[State | None, str]:
    gap = advisory.validation
    if gap is None or margin is None:
        return None, "Validation losses were not recorded by all runs in the window."
    if gap.infinite:
        return FAIL, "The candidate has an infinite validation loss."
    if gap.last_lo > margin.nats:
        return (
            FAIL,
            (
                f"At the last evaluation the validation gap is at least {gap.last_lo:+.4f} nats, "
                f"above the margin of {margin.nats:.4f}."
            ),
        )
    state = state_of(passes=gap.hi < margin.nats, fails=gap.lo > margin.nats)
    words = {PASS: "is below", FAIL: "is above", INCONCLUSIVE: "straddles"}[state]
    return (
        state,
        (
            f"The validation gap {gap.mean:+.4f} nats ({gap.lo:+.4f} to {gap.hi:+.4f}) {words} the "
            f"margin of {margin.nats:.4f}."
        ),
    )


def _net_speedup(advisory: Advisory) -> tuple[State | None, str]:
    speedup = advisory.net_speedup
    if speedup is None:
        return None, f"The net speed-up cannot be computed: {_why_no_speedup(advisory)}."
    state = state_of(passes=speedup["lo"] > 1.0, fails=speedup["hi"] < 1.0)
    words = {PASS: "is a gain", FAIL: "is a loss", INCONCLUSIVE: "is not distinguishable from 1"}[
        state
    ]
    return (
        state,
        (
            f"The net speed-up {speedup['value']:.3f} x ({speedup['lo']:.3f} to "
            f"{speedup['hi']:.3f}) {words}."
        ),
    )


def _why_no_speedup(advisory: Advisory) -> str:
    if advisory.speed_reason is not None:
        return advisory.speed_reason
    if advisory.throughput is None:
        return "step times were not recorded by all runs"
    if advisory.token_tax is None:
        return "the token tax is not known"
    return "the token tax is unbounded"
