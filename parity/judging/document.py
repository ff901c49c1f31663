"""The verdict as a JSON-able document: everything that is needed to argue with it and to compute it again.

Words: baseline and candidate; nats unless a name says `rel` (share of the baseline's loss) or `share`. What could not be measured is null,
and the reasons say why.
"""

from typing import Any

from parity.canonical_json import plain
from parity.judging.advice import Advice
from parity.judging.arms import Arm
from parity.judging.curve import Curve
from parity.judging.decision import Decision
from parity.judging.gates import Check
from parity.judging.measurements import Measurements
from parity.judging.peers import Peer
from parity.judging.reasons import DRIFT_REACH, DRIFT_Z, MAX_NONFINITE_SHARE
from parity.judging.secondary.advisory import Advisory
from parity.judging.window_statistics import ArmLate, Late
from parity.version import ENGINE_VERSION

VERDICT_SCHEMA = "parity.verdict/1"


def verdict_document(
    m: Measurements,
    decision: Decision,
    advice: Advice,
    advisory: Advisory,
    checks: tuple[Check, ...],
    peers: tuple[Peer, ...],
    layer_policy: str | None,
) -> dict[str, Any]:
    """The document of one comparison, keys sorted, safe for JSON."""
    found: dict[str, Any] = plain(
        {
            "schema": VERDICT_SCHEMA,
            "engine_version": ENGINE_VERSION,
            "verdict": decision.state,
            "codes": decision.codes,
            "reasons": [decision.deciding, *decision.others],
            "profile": m.criteria.profile_name,
            "layer_policy": layer_policy,
            "baseline": _arm(m.arms.baseline, m.late.baseline if m.late else None),
            "candidate": _arm(m.arms.candidate, m.late.candidate if m.late else None),
            "window": _window(m),
            "nonfinite": {"baseline": m.arms.baseline.nonfinite, "candidate": m.arms.candidate.nonfinite},
            "resolution": m.resolution,
            "context_differs": m.differing_context,
            "advice": advice,
            "grad_norm": advisory.grad_norm,
            "token_tax": advisory.token_tax,
            "throughput": advisory.throughput,
            "net_speedup": advisory.net_speedup,
            "checks": checks,
            "other_candidates": peers,
            "validation": advisory.validation,
            "run_spikes": advisory.run_spikes,
            "downstream": advisory.downstream,
            "inputs": _inputs(m),
            "params": {
                "criteria": m.criteria.document(),
                "planned_steps": m.window.planned_steps,
                "plan": m.window.plan,
                "max_nonfinite_share": MAX_NONFINITE_SHARE,
            },
            **_late(m),
        }
    )
    return found


_MEASURED = ("margin", "gap", "se_parts", "tau", "noise", "convergence", "drift", "spikes")


def _late(m: Measurements) -> dict[str, Any]:
    late = m.late
    if late is None:
        return {**dict.fromkeys(_MEASURED), "noise": {"r_pair": m.r_pair}, "convergence": {"planned_share": m.planned_share}}
    return {
        "margin": late.margin,
        "gap": _gap(late, m.criteria.confidence),
        "se_parts": {
            "within": late.interval.within.value,
            "within_df": late.interval.within.df,
            "run": late.interval.run.variance**0.5,
            "run_df": late.interval.run.df,
            "seeds": late.interval.run.seeds,
        },
        "tau": {"baseline": _tau(late.baseline, late), "candidate": _tau(late.candidate, late), "controls_used": len(m.controls.used)},
        "noise": _noise(late, m.r_pair),
        "convergence": {
            "baseline": _decline(late.baseline),
            "candidate": _decline(late.candidate),
            "planned_share": m.planned_share,
        },
        "drift": {
            "change": late.drift,
            "se": late.drift_se,
            "lower": late.drift - DRIFT_Z * late.drift_se,
            "gap_at_end": late.interval.mean + late.drift / 2.0,
            "gap_if_it_goes_on": late.interval.mean + DRIFT_REACH * late.drift,
        },
        "spikes": {
            "baseline": late.spikes.baseline,
            "candidate": late.spikes.candidate,
            "p_candidate_more": late.spikes.p_candidate_more,
            "masked_share": late.spikes.masked_share,
        },
    }


def _gap(late: Late, confidence: float) -> dict[str, Any]:
    level = late.baseline.level
    return {
        "mean": late.interval.mean,
        "rel": late.interval.mean / level if level else None,
        "raw": late.raw_gap,
        "masked": late.interval.mean,
        "lo": late.interval.bounds(confidence)[0],
        "hi": late.interval.bounds(confidence)[1],
        "confidence": confidence,
        "ci95": late.interval.bounds(0.95),
        "ci90": late.interval.bounds(0.90),
        "se": late.interval.se,
        "df": late.interval.df,
    }


def _tau(arm: ArmLate, late: Late) -> dict[str, Any]:
    floor = arm.floor
    return {
        "value": floor.tau,
        "rel": floor.tau / abs(late.baseline.level) if late.baseline.level else None,
        "source": floor.source,
        "df": floor.df,
        "measured": floor.measured,
        "measured_df": floor.measured_df,
        "prior": floor.prior.tau,
        "prior_df": floor.prior.df,
        "prior_basis": floor.prior.basis,
    }


def _noise(late: Late, r_pair: float | None) -> dict[str, Any]:
    run_se = late.interval.run.variance**0.5
    return {
        "sigma_step": late.sigma_step,
        "sd_paired": late.sd_paired,
        "rho1": late.rho1,
        "n_eff": late.effective_n,
        "r_step": late.interval.mean / late.sigma_step if late.sigma_step else None,
        "z_run": late.interval.mean / run_se if run_se else None,
        "r_pair": r_pair,
    }


def _decline(arm: ArmLate) -> dict[str, Any]:
    return {"decline": arm.decline, "limit": arm.decline_limit, "first_loss": arm.first_loss, "converged": arm.converged}


def _arm(arm: Arm, late: ArmLate | None) -> dict[str, Any]:
    return {
        "name": arm.name,
        "recipe": arm.recipe,
        "runs": len(arm.runs),
        "identical_runs": arm.identical,
        "level": late.level if late else None,
    }


def _window(m: Measurements) -> dict[str, Any]:
    sensitivity = m.late.sensitivity if m.late else ()
    window = m.window
    return {
        "first": window.first,
        "last": window.last,
        "n": m.late.n if m.late else 0,
        "fraction": window.fraction,
        "rule": window.rule,
        "sensitivity": sensitivity,
    }


def _inputs(m: Measurements) -> dict[str, Any]:
    return {
        "baseline": [_run(run) for run in m.arms.baseline.runs],
        "candidate": [_run(run) for run in m.arms.candidate.runs],
        "controls": [_run(run) for run in m.controls.used],
        "common_steps": len(m.aligned.steps),
        "sha256_aligned": m.aligned.digest(),
    }


def _run(run: Curve) -> dict[str, Any]:
    return {
        "label": run.label,
        "seed": run.seed,
        "replicate": run.replicate,
        "recipe": run.recipe,
        "context": dict(run.context),
        "notes": run.notes,
        "completeness": run.completeness,
        "coverage": run.completeness.coverage,
    }
