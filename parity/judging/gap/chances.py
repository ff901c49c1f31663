"""What one more pair of runs would make of a verdict: the chances that its interval then lies below
the margin, above it, or on both sides.

new mean  gap + d, d ~ N(0, se^2 - se'^2), where every true gap is equally likely beforehand
se'       SE_run'^2 + SE_within'^2 with the run-to-run noise as it is seeds: SE_run'^2 = SE_run^2
          S/(S + 1); replicates of one seed: tau_A^2/(K_A + 1) + tau_B^2/(K_B + 1) SE_within'^2 =
          SE_within^2 (1/(K_A + 1) + 1/(K_B + 1)) / (1/K_A + 1/K_B)
new ends  those of the verdict, their distances from the mean in proportion to the half-width with
          SE' on df + 1; over seeds the new pair itself widens them, (df SE_run^2 S + S (S + 1) d^2)
          / (df + 1) / (S + 1) in place of SE_run'^2, as the judge does
pass      the interval lies below the margin, and nothing that is known keeps a pass back; fail: it
          lies above

Assumption that can fail: apart from that the run-to-run noise does not change. Replicates change
measured noise, by chance in either direction; assumed noise stays assumed, so that what is refused
because it is assumed is still refused. The new pair is one like the others (a single run an arm
gets one of a second seed), at the same confidence: a further look that nobody registered raises
false passes. What else can decide, such as a rise at the end or one broken run, is not foreseen.
Source: the predictive distribution of a mean, averaged over 2,000 quantiles of d; simulation
(`benchmarks/calibration/chances.py`).
"""

import math
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.codes import BY_CODE
from parity.judging.curves.curve import FloatArray
from parity.judging.document_types import (
    ChancesDocument,
    ErrorPartsDocument,
    RunNoiseDocument,
    VerdictDocument,
    VerdictGapDocument,
)
from parity.judging.gap.interval import t_quantile
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import LOSS, POINTS_TO_FAIL, WIDE_MARGIN

PAIRS, QUANTILES = 1, 2_000


@frozen
class _Error:
    """The two parts of a gap's standard error, nats, with their degrees of freedom, and the seeds
    that the first rests on.
    """

    run: float
    run_df: float
    within: float
    within_df: float
    seeds: int

    def half_width(self, confidence: float, within_confidence: float) -> float:
        """Half the interval, nats."""
        return math.hypot(
            t_quantile(confidence, self.run_df) * self.run,
            t_quantile(within_confidence, self.within_df) * self.within,
        )


def chances_of(document: VerdictDocument) -> ChancesDocument | None:
    """The chances after one more pair, from a verdict's document; None without a gap or a margin,
    or where no pair of runs changes what decided, such as other data in one arm.
    """
    code = BY_CODE.get(document["codes"][0])
    gap, margin, parts, tau = (
        document["gap"],
        document["margin"],
        document["se_parts"],
        document["tau"],
    )
    if (
        gap is None
        or margin is None
        or parts is None
        or tau is None
        or code is None
        or not (code.decided_by_interval or code.keeps_back_a_pass)
    ):
        return None
    if not _all_finite(gap, margin["nats"], parts) or document["window"]["n"] < POINTS_TO_FAIL:
        return None
    policy = document["params"]["policy"]
    now = _Error(**parts)
    then = _error_with_a_pair(now, document, tau)
    nominal = float(policy["confidence"])
    level, within_level = gap["confidence"], _shared(document).within_confidence(nominal)
    spread = math.sqrt(max(now.run**2 + now.within**2 - then.run**2 - then.within**2, 0.0))
    moves = spread * special.ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    mean, margin_nats = gap["mean"] + moves, margin["nats"]
    # Each end's distance from the mean as a share of the plain half-width: capped series move one
    # end alone.
    half_now = now.half_width(level, within_level) or 1.0
    down, up = (gap["mean"] - gap["lo"]) / half_now, (gap["hi"] - gap["mean"]) / half_now
    half, nominal_half = (
        _half_widths(now, then, moves, levels)
        for levels in ((level, within_level), (nominal, nominal))
    )
    fails = mean - down * nominal_half > margin_nats
    # by more than the precision explains
    is_better = (mean + up * nominal_half < 0.0) & (mean <= -margin_nats)
    passes = (mean + up * half < margin_nats) & ~is_better
    if policy.get("two_sided"):
        passes &= mean - down * half > -margin_nats
    if _keeps_a_pass_back(document, policy):
        passes[:] = False
    passed, failed = float(passes.mean()), float(fails.mean())
    return {"pass": passed, "fail": failed, "undecided": 1.0 - passed - failed, "pairs": PAIRS}


def _error_with_a_pair(now: _Error, document: VerdictDocument, tau: RunNoiseDocument) -> _Error:
    """The error with a pair more, where its own distance from the others does not count."""
    arms = (
        (document["baseline"]["runs"], tau["baseline"]),
        (document["candidate"]["runs"], tau["candidate"]),
    )
    share = sum(1.0 / (runs + PAIRS) for runs, _ in arms) / sum(1.0 / runs for runs, _ in arms)
    if now.seeds > 1 or _single(document):
        run = now.run * math.sqrt(now.seeds / (now.seeds + PAIRS))
    else:
        run = math.sqrt(sum(noise["value"] ** 2 / (runs + PAIRS) for runs, noise in arms))
    df = min(noise["prior_df"] for _, noise in arms) if _single(document) else now.run_df
    seeds = now.seeds + PAIRS if now.seeds > 1 or _single(document) else now.seeds
    return _Error(
        run=run,
        run_df=df + PAIRS,
        within=now.within * math.sqrt(share),
        within_df=now.within_df,
        seeds=seeds,
    )


def _single(document: VerdictDocument) -> bool:
    return max(document["baseline"]["runs"], document["candidate"]["runs"]) == 1


def _half_widths(
    now: _Error, then: _Error, moves: FloatArray, levels: tuple[float, float]
) -> FloatArray:
    """Half the new interval (q,) where the mean moves by (q,) nats: over seeds the further the new
    pair lies apart, the wider.
    """
    variance = np.full(len(moves), then.run**2)
    if then.seeds > now.seeds:
        squares = (then.run_df - PAIRS) * now.run**2 * now.seeds + now.seeds * then.seeds * moves**2
        variance = squares / then.run_df / then.seeds
    within = t_quantile(levels[1], then.within_df) * then.within
    half: FloatArray = np.hypot(t_quantile(levels[0], then.run_df) * np.sqrt(variance), within)
    return half


def _shared(document: VerdictDocument) -> Multiplicity:
    """What the verdict shares its error with; nothing for judges before 0.3.0."""
    stated = document.get("multiplicity")
    if stated is None:
        return Multiplicity()
    return Multiplicity(looks=stated["looks"], candidates=stated["candidates"])


def _keeps_a_pass_back(document: VerdictDocument, policy: dict[str, Any]) -> bool:
    """Whether something is known that refuses a pass, whatever the interval says after further
    runs.
    """
    codes, margin = document["codes"], document["margin"]
    refused = {
        "TOO_FEW_STEPS": True,
        "AS_OF": policy.get("as_of", "refuse") != "accept",
        "RUN_NOISE_ASSUMED": policy.get("assumed_noise") == "reject",
    }
    is_wide = (
        margin is not None
        and margin["rel"] > WIDE_MARGIN
        and policy.get("wide_margin", "refuse") != "accept"
    )
    deciding = [
        check["state"]
        for check in document["checks"]
        if check["role"] == "decides" and check["name"] != LOSS
    ]
    return (
        is_wide
        or any(state != "pass" for state in deciding)
        or any(holds and code in codes for code, holds in refused.items())
    )


def _all_finite(gap: VerdictGapDocument, margin: float, parts: ErrorPartsDocument) -> bool:
    """Whether all that the chances rest on is a finite number; documents have words for those that
    are not.
    """
    values = (
        gap["mean"],
        gap["lo"],
        gap["hi"],
        margin,
        parts["within"],
        parts["run"],
        parts["within_df"],
        parts["run_df"],
    )
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)
