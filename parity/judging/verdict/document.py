"""The verdict as a JSON-able document: everything that is needed to argue with it and to compute it
again.

Words: baseline and candidate; nats unless a name says `rel` (share of the baseline's loss) or
`share`. What could not be measured is null, and the reasons say why.
"""

from collections.abc import Sequence
from typing import Any

from parity.canonical_json import fields_of, json_value
from parity.judging.codes import BY_CODE
from parity.judging.curves.arms import Arm, Arms
from parity.judging.curves.context import RECIPE, compared_keys
from parity.judging.curves.curve import Curve
from parity.judging.curves.early_stop_noise import EarlySpread
from parity.judging.curves.nonfinite import NONFINITE_SHARE
from parity.judging.decision import Decision, State
from parity.judging.document_types import CheckDocument, PeerDocument, VerdictDocument
from parity.judging.gap.token_slope import TokenSlope
from parity.judging.gap.window_statistics import ArmStatistics, WindowStatistics
from parity.judging.measurements import Measurements
from parity.judging.multiplicity import look_weight
from parity.judging.noise.arm_noise import ArmNoise
from parity.judging.noise.noise_source import BorrowedNoise
from parity.judging.policy import POINTS_TO_FAIL
from parity.judging.rules.stability import DRIFT_REACH, DRIFT_Z
from parity.judging.secondary.advisory import Advisory
from parity.judging.verdict.advice import Advice
from parity.judging.verdict.deciding_interval import deciding_interval
from parity.version import JUDGE_VERSION

VERDICT_SCHEMA = "parity.verdict/1"
SIDES = ("baseline", "candidate")


MEASURED = (
    "margin",
    "token_slope",
    "end",
    "gap",
    "se_parts",
    "tau",
    "noise",
    "convergence",
    "drift",
    "spikes",
)


def verdict_document(
    measurements: Measurements,
    decision: Decision,
    advisory: Advisory,
    *,
    layer_policy: str | None,
    advice: Advice,
    checks: Sequence[CheckDocument],
    peers: Sequence[PeerDocument],
) -> VerdictDocument:
    """One comparison as a JSON-able dict with sorted keys."""
    document: VerdictDocument = json_value(
        {
            "schema": VERDICT_SCHEMA,
            "engine_version": JUDGE_VERSION,
            "verdict": decision.state,
            "codes": decision.codes,
            "reasons": [decision.deciding, *decision.others],
            "profile": measurements.policy.profile_name,
            **(
                {}
                if measurements.compares == RECIPE
                else {
                    "compares": measurements.compares,
                    "may_differ": compared_keys(measurements.compares),
                }
            ),
            "layer_policy": layer_policy,
            "advice": advice,
            "checks": checks,
            "multiplicity": _multiplicity(measurements),
            "baseline": _arm(
                measurements.arms.baseline,
                measurements.statistics.baseline if measurements.statistics else None,
            ),
            "candidate": _arm(
                measurements.arms.candidate,
                measurements.statistics.candidate if measurements.statistics else None,
            ),
            "window": _window(measurements),
            **_chance(measurements, decision),
            "schedule": {
                "step": measurements.schedule.step,
                "finished": measurements.schedule.finished,
                "stated": measurements.schedule.stated,
                "slope": measurements.schedule.slope,
            },
            "nonfinite": {
                side: {
                    "count": arm.nonfinite.count,
                    "worst_share": arm.nonfinite.worst_share,
                    "first_step": arm.nonfinite.first_step,
                    "at_end": arm.nonfinite.at_end,
                }
                for side, arm in zip(SIDES, measurements.arms.both, strict=True)
            },
            "resolution": measurements.resolution,
            "mismatch": measurements.mismatch,
            "worst_run": measurements.worst_run,
            **(
                {}
                if measurements.arms.pairing.by == "seeds"
                else {"pairing": _pairing(measurements.arms)}
            ),
            "context_differs": measurements.differing_context,
            **fields_of(advisory),
            "other_candidates": peers,
            "inputs": _inputs(measurements),
            "params": {
                "policy": measurements.policy.document(),
                "planned_steps": measurements.window.planned_steps,
                "plan": measurements.window.plan,
                "max_nonfinite_share": NONFINITE_SHARE,
            },
            **_measured(measurements, decision.state),
        }
    )
    return document


def _measured(measurements: Measurements, state: State) -> dict[str, Any]:
    statistics = measurements.statistics
    if statistics is None:
        return {
            **dict.fromkeys(MEASURED),
            "noise": {"r_pair": measurements.r_pair},
            "convergence": {"planned_share": measurements.planned_share},
        }
    return {
        "margin": statistics.margin,
        "end": statistics.end,
        "token_slope": statistics.token_slope
        if isinstance(statistics.token_slope, TokenSlope)
        else None,
        "gap": {
            **_gap(statistics, measurements.levels),
            "deciding": deciding_interval(measurements, statistics.interval, state),
        },
        "se_parts": {
            "within": statistics.interval.within.value,
            "within_df": statistics.interval.within.df,
            "run": statistics.interval.run.variance**0.5,
            "run_df": statistics.interval.run.df,
            "seeds": statistics.interval.run.seeds,
        },
        "tau": {
            "baseline": _tau(statistics.noises[0], statistics),
            "candidate": _tau(statistics.noises[1], statistics),
            "controls_used": len(measurements.controls.used),
        },
        "noise": _noise(statistics, measurements.r_pair),
        "convergence": {
            "baseline": {
                "decline": statistics.baseline.decline,
                "first_loss": statistics.baseline.first_loss,
            },
            "candidate": {
                "decline": statistics.candidate.decline,
                "first_loss": statistics.candidate.first_loss,
            },
            "planned_share": measurements.planned_share,
        },
        "drift": {
            "change": statistics.drift,
            "se": statistics.drift_se,
            "lower": statistics.drift - DRIFT_Z * statistics.drift_se,
            "gap_at_end": statistics.interval.mean + statistics.drift / 2.0,
            "gap_if_it_goes_on": statistics.interval.mean + DRIFT_REACH * statistics.drift,
        },
        "spikes": {
            "baseline": statistics.spikes.baseline,
            "candidate": statistics.spikes.candidate,
            "p_candidate_more": statistics.spikes.p_candidate_more,
            "masked_share": statistics.spikes.masked_share,
        },
    }


def _chance(measurements: Measurements, decision: Decision) -> dict[str, Any]:
    """The chance of parity, where only the evidence is missing for a pass or a fail."""
    s = measurements.statistics
    if (
        not BY_CODE[decision.deciding.code].shows_chance
        or s is None
        or s.margin is None
        or s.n < POINTS_TO_FAIL
    ):
        return {}
    below = s.interval.chance_below(-s.margin.nats) if measurements.policy.two_sided else 0.0
    return {"chance_of_parity": s.interval.chance_below(s.margin.nats) - below}


def _multiplicity(measurements: Measurements) -> dict[str, Any]:
    shared = measurements.multiplicity
    return {
        "look": shared.look,
        "looks": shared.looks,
        "candidates": shared.candidates,
        "registered": shared.registered,
        "weights": [look_weight(shared.looks)] * shared.looks,
        "confidence": measurements.confidence,
    }


def _gap(statistics: WindowStatistics, levels: tuple[float, float]) -> dict[str, Any]:
    level, interval = statistics.baseline.level, statistics.interval
    lo, hi = interval.bounds(*levels)
    return {
        "mean": interval.mean,
        "se": interval.se,
        "df": interval.df,
        "rel": interval.mean / level if level else None,
        "raw": statistics.raw_gap,
        "masked": interval.mean,
        "lo": lo,
        "hi": hi,
        "confidence": levels[0],
        "ci95": interval.bounds(0.95),
        "ci90": interval.bounds(0.90),
    }


def _tau(noise: ArmNoise, statistics: WindowStatistics) -> dict[str, Any]:
    return {
        "value": noise.tau,
        "rel": noise.tau / abs(statistics.baseline.level) if statistics.baseline.level else None,
        "source": noise.source,
        "df": noise.df,
        "measured": noise.measured,
        "measured_df": noise.measured_df,
        "prior": noise.prior.tau,
        "prior_df": noise.prior.df,
        "prior_basis": noise.prior.basis,
        **({"early_stopped": _early_stopped(noise.early)} if noise.early else {}),
        **(
            {"borrowed": _borrowed_noise_document(noise.prior.borrowed)}
            if noise.prior.borrowed
            else {}
        ),
    }


def _early_stopped(early: EarlySpread) -> dict[str, Any]:
    return {
        "rel": early.share,
        "df": early.df,
        "runs": early.runs,
        "stop": early.stop,
        "first": early.first,
        "last": early.last,
    }


def _borrowed_noise_document(borrowed: BorrowedNoise) -> dict[str, Any]:
    return {
        "family": borrowed.noise_source.family,
        "rel": borrowed.noise.share,
        "df": borrowed.noise.df,
        "groups": borrowed.noise.groups,
        "runs": borrowed.noise.runs,
        "outliers": borrowed.noise.outliers,
        "bit_equal_groups": borrowed.noise_source.bit_equal,
        "own_over_family": borrowed.agreement.ratio,
        "p": borrowed.agreement.p,
        "weight": borrowed.agreement.weight,
    }


def _noise(statistics: WindowStatistics, r_pair: float | None) -> dict[str, Any]:
    run_se = statistics.interval.run.variance**0.5
    return {
        "sigma_step": statistics.sigma_step,
        "sd_paired": statistics.sd_paired,
        "rho1": statistics.rho1,
        "n_eff": statistics.effective_n,
        "r_step": statistics.interval.mean / statistics.sigma_step
        if statistics.sigma_step
        else None,
        "z_run": statistics.interval.mean / run_se if run_se else None,
        "r_pair": r_pair,
    }


def _arm(arm: Arm, statistics: ArmStatistics | None) -> dict[str, Any]:
    return {
        "name": arm.name,
        "recipe": arm.recipe,
        "left_out": arm.left_out,
        "runs": len(arm.runs),
        "identical_runs": len(arm.left_out),
        "level": statistics.level if statistics else None,
    }


def _pairing(arms: Arms) -> dict[str, Any]:
    """How runs were paired; of pairs that the batches show the labels, the seed that stands for
    them, and how their noise correlates.
    """
    pairs = [
        {"seed": seed, "baseline": base.label, "candidate": cand.label, "r": pair.r}
        for seed, (pair, base, cand) in enumerate(
            zip(arms.pairing.pairs, *arms.both_runs, strict=False)
        )
    ]
    return {"by": arms.pairing.by, "pairs": pairs}


def _window(measurements: Measurements) -> dict[str, Any]:
    measured = (
        {"n": measurements.statistics.n, "sensitivity": measurements.statistics.sensitivity}
        if measurements.statistics
        else {"n": 0, "sensitivity": ()}
    )
    return {
        "first": measurements.window.first,
        "last": measurements.window.last,
        "fraction": measurements.window.fraction,
        "rule": measurements.window.rule,
        **measured,
    }


def _inputs(measurements: Measurements) -> dict[str, Any]:
    early = {
        side: [_run(run) for run in arm.used]
        for side, arm in zip(SIDES, measurements.early, strict=True)
    }
    return {
        "baseline": [_run(run) for run in measurements.arms.baseline.runs],
        "candidate": [_run(run) for run in measurements.arms.candidate.runs],
        "controls": [_run(run) for run in measurements.controls.used],
        **({"short_reruns": early} if any(early.values()) else {}),
        "common_steps": len(measurements.aligned.steps),
        "sha256_aligned": measurements.aligned.digest(),
    }


def _run(run: Curve) -> dict[str, Any]:
    return {
        "label": run.label,
        "seed": run.seed,
        "replicate": run.replicate,
        "recipe": run.recipe,
        "context": run.context,
        "notes": run.notes,
        "completeness": run.completeness,
        **({"rounding": run.rounding} if run.rounding else {}),
        "coverage": run.completeness.coverage,
    }
