"""How often would the judge be wrong on reruns of one configuration? The run-to-run noise with its
interval, and every pair judged.

tau = sd of the runs' window means; its interval from chi-squared with K - 1 df. Every ordered pair
is an A/A comparison: a fail is a false alarm, and an interval that misses 0 a wrong interval.
Injected constant gaps (multiples of the margin) give the power. naive: what a test without the
between-run term says, |gap| > t SE_within.

Runs of other seeds spread by their initialization and data order, too, which a pair of one seed
shares: their spread is no run-to-run noise, and they are refused. Where no seed is stated, batches
that differ say so: the smallest correlation of two runs' batch noise is below 0.15, and below 0.5
by more than two of its standard errors, 1.4/sqrt(n - 5).

Can fail: pairs share runs, so the shares are not independent; with few runs they are coarse.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.alignment import align
from parity.judging.curves.curve import Curve, FloatArray
from parity.judging.curves.data_order import OTHER_ORDER, OVERLAP, SAME_ORDER, pair_correlation
from parity.judging.curves.window import plan_window
from parity.judging.gap.interval import Interval, t_quantile
from parity.judging.policy import Amount, Policy
from parity.judging.verdict.verdict import Verdict, judge
from parity.wording import percent

DEFAULT_MARGINS = (0.01, 0.005, 0.0025)
INJECTED = (0.5, 1.0, 1.5, 2.0)
MAX_INJECTED_PAIRS = 200
SURE_ERRORS = 2.0


@frozen
class Tau:
    """Run-to-run noise in nats and as a share of the loss, with the ends of its 95 % interval in
    nats.
    """

    value: float
    lo: float
    hi: float
    rel: float


_StateShares = TypedDict("_StateShares", {"pass": float, "inconclusive": float, "fail": float})


class MarginShares(_StateShares):
    """Shares of the ordered pairs by their verdict at the margin `margin_rel`, a share of the
    loss.
    """

    margin_rel: float


class InjectedShares(MarginShares):
    """Shares of at most 200 of the pairs where a constant gap of `gap_in_margins` margins was added
    to the candidate.
    """

    gap_in_margins: float


@frozen
class Calibration:
    """What was found: `level` is the mean loss in nats, `margins` and `injected` hold shares of the
    ordered pairs; `covers_zero` and `naive_rejects` shares of intervals; `codes` counts what
    decided at the first margin. `correlation` is the smallest of two runs' batch noise,
    None where they have none to compare: from 0.5 on they read the same batches.
    """

    runs: int
    pairs: int
    level: float
    tau: Tau
    correlation: float | None
    covers_zero: float
    naive_rejects: float
    margins: tuple[MarginShares, ...]
    injected: tuple[InjectedShares, ...]
    codes: Mapping[str, int]


def calibrate(
    runs: Sequence[Curve],
    *,
    planned_steps: int | None = None,
    margins: Sequence[float] = DEFAULT_MARGINS,
    policy: Policy | None = None,
) -> Calibration:
    """Judge all ordered pairs of K >= 2 reruns at each relative margin; `policy` gives everything
    but the margin.

    Without `planned_steps` the longest run's length is the plan. Raises ValueError for fewer than 2
    runs, no common window, runs of other seeds or batches, and where the gap of no pair could be
    measured.
    """
    if len(runs) < 2:
        raise ValueError(
            f"{len(runs)} run was given; expected at least 2 reruns of one configuration"
        )
    policies = {rel: _margin_policy(policy, rel) for rel in margins}
    plan = _plan(runs, planned_steps)
    means = _run_means(runs, plan, policies[margins[0]])
    correlation = _shared_order(runs, _tau(means))
    level = float(means.mean())
    pairs = list(itertools.permutations(runs, 2))
    judged = {
        rel: [_one(base, cand, margin_policy, plan) for base, cand in pairs]
        for rel, margin_policy in policies.items()
    }
    gaps = [verdict.gap for verdict in judged[margins[0]] if verdict.gap is not None]
    if not gaps:
        why = judged[margins[0]][0].decision.deciding.sentence
        raise ValueError(f"the gap of no pair of these {len(runs)} runs could be measured: {why}")
    return Calibration(
        runs=len(runs),
        pairs=len(pairs),
        level=level,
        tau=_tau(means),
        correlation=correlation,
        covers_zero=_share(gaps, _covers_zero),
        naive_rejects=_share(gaps, _naive_rejects),
        margins=tuple(MarginShares(margin_rel=rel, **_states(judged[rel])) for rel in margins),
        injected=tuple(
            _inject(pairs, policies[rel], plan, rel, factor, level)
            for rel in margins
            for factor in INJECTED
        ),
        codes=dict(sorted(Counter(verdict.codes[0] for verdict in judged[margins[0]]).items())),
    )


def _margin_policy(policy: Policy | None, rel: float) -> Policy:
    margin = Amount(value=rel, unit="relative")
    if policy:
        return dataclasses.replace(policy, margin=margin, profile=None)
    return Policy(margin=margin)


def _plan(runs: Sequence[Curve], planned_steps: int | None) -> int:
    if planned_steps is not None:
        return planned_steps
    longest = max(runs, key=lambda run: len(run.steps))
    if len(longest.steps) == 0:
        raise ValueError("the runs have no steps; expected reruns of one configuration")
    return int(longest.steps[-1]) - min(1, int(longest.steps[0])) + 1


def _one(base: Curve, cand: Curve, policy: Policy, plan: int) -> Verdict:
    """The verdict on one pair, as for runs that came to the end of their schedule."""
    return judge(
        [base],
        {"rerun": [cand]},
        dataclasses.replace(policy, schedule="decayed"),
        planned_steps=plan,
    )[0]


def _states(verdicts: Sequence[Verdict]) -> _StateShares:
    counted, number = Counter(verdict.verdict for verdict in verdicts), len(verdicts)
    return {
        "pass": counted["pass"] / number,
        "inconclusive": counted["inconclusive"] / number,
        "fail": counted["fail"] / number,
    }


def _share(gaps: Sequence[Interval], holds: Callable[[Interval], bool]) -> float:
    return sum(map(holds, gaps)) / len(gaps)


def _covers_zero(gap: Interval) -> bool:
    lo, hi = gap.bounds(0.95)
    return lo <= 0.0 <= hi


def _naive_rejects(gap: Interval) -> bool:
    return abs(gap.mean) > t_quantile(0.95, gap.within.df) * gap.within.value


def _run_means(runs: Sequence[Curve], plan: int, policy: Policy) -> FloatArray:
    """Window means of the runs on their common steps, (K,)."""
    window = plan_window(runs, plan, False, policy.window_fraction)
    together = align(runs, runs[:1], window.last)
    part = window.part(together.steps)
    if part.start >= part.stop:
        raise ValueError(
            f"the runs have no common step in the window ({window.first} to {window.last}); "
            "expected complete reruns of one plan"
        )
    means: FloatArray = together.baseline[:, part].mean(axis=1)
    return means


def _tau(means: FloatArray) -> Tau:
    df = len(means) - 1
    value = float(means.std(ddof=1))
    lo, hi = (value * math.sqrt(df / float(special.chdtri(df, p))) for p in (0.025, 0.975))
    return Tau(value=value, lo=lo, hi=hi, rel=value / abs(float(means.mean())))


def _shared_order(runs: Sequence[Curve], spread: Tau) -> float | None:
    """The smallest correlation of the batch noise of two runs. Raises ValueError where the seeds or
    the batches of the runs differ.
    """
    holds = (
        f"so their spread, {spread.value:.4f} nats ({percent(spread.rel)} of the loss), holds "
        "initialization and data order and is no run-to-run noise; expected reruns of one seed"
    )
    seeds = sorted({run.seed for run in runs if run.seed_stated})
    if len(seeds) > 1:
        named = ", ".join(map(str, seeds[:4])) + (", ..." if len(seeds) > 4 else "")
        raise ValueError(f"the runs have {len(seeds)} seeds ({named}), {holds}")
    least = None
    for first, second in itertools.combinations(runs, 2):
        together = align([first], [second])
        r = pair_correlation(together.baseline[0], together.candidate[0])
        if r is None:
            continue
        error = OVERLAP / math.sqrt(max(len(together.steps) // 2 - 5, 1))
        if r < OTHER_ORDER and math.atanh(max(r, 0.0)) + SURE_ERRORS * error < math.atanh(
            SAME_ORDER
        ):
            named = " and ".join(run.label for run in (first, second) if run.label)
            raise ValueError(
                f"{named or 'two of the runs'} read different batches (their batch noise "
                f"correlates {r:.2f}), {holds}"
            )
        least = r if least is None else min(least, r)
    return least


def _inject(
    pairs: Sequence[tuple[Curve, Curve]],
    policy: Policy,
    plan: int,
    rel: float,
    factor: float,
    level: float,
) -> InjectedShares:
    """Shares of verdicts where a constant gap of `factor` margins is added to the candidate, on at
    most 200 of the pairs.
    """
    stride = 1 + len(pairs) // MAX_INJECTED_PAIRS
    gap = factor * rel * level
    verdicts = [
        _one(base, dataclasses.replace(cand, loss=cand.loss + gap), policy, plan)
        for base, cand in pairs[::stride]
    ]
    return InjectedShares(margin_rel=rel, gap_in_margins=factor, **_states(verdicts))
