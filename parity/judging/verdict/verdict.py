"""`judge`: curves in, verdicts out, as documents with all that is needed to compute them again.
Pure, deterministic, no random numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.judging.codes import BY_CODE
from parity.judging.curves.alignment import NONFINITE_SHARE
from parity.judging.curves.arms import Arm, Arms
from parity.judging.curves.context import COMPARISONS, RECIPE, Comparison, compared_keys
from parity.judging.curves.curve import MAX_STEP, Curve
from parity.judging.curves.early_stop_noise import EarlySpread
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.curves.window import plan_window
from parity.judging.decide import decide
from parity.judging.decision import Decision, State
from parity.judging.document_types import CheckDocument, PeerDocument, VerdictDocument
from parity.judging.gap.interval import Interval, Margin, TokenSlope
from parity.judging.gap.window_statistics import ArmStatistics, WindowStatistics
from parity.judging.measurements import Compared, FurtherRuns, Measurements, measure
from parity.judging.noise.lending import Lenders, Loan
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.noise.run_floor import RunFloor
from parity.judging.policy import POINTS_TO_FAIL, Multiplicity, Policy, look_weight
from parity.judging.rules.stability import DRIFT_REACH, DRIFT_Z
from parity.judging.secondary.secondary import (
    Advisory,
    Evaluations,
    check_arms,
    compare_peers,
    downstream_gaps,
    measure_advisory,
)
from parity.judging.verdict.advice import Advice, LayerSnr, advise
from parity.judging.verdict.checks import apply_checks, checks
from parity.recipes import check_recipe, check_rounding
from parity.structure import fields_of, json_value, picked
from parity.version import JUDGE_VERSION
from parity.wording import interval_words, signed

# The verdict as a JSON-able document: everything that is needed to argue with it and to compute it
# again.
#
# Words: baseline and candidate; nats unless a name says `rel` (share of the baseline's loss) or
# `share`. What could not be measured is null, and the reasons say why.

VERDICT_SCHEMA = "parity.verdict/1"
SIDES = ("baseline", "candidate")


_MEASURED = (
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


def _measured(m: Measurements) -> dict[str, Any]:
    statistics = m.statistics
    if statistics is None:
        return {
            **dict.fromkeys(_MEASURED),
            "noise": {"r_pair": m.r_pair},
            "convergence": {"planned_share": m.planned_share},
        }
    return {
        **picked(statistics, "margin", "end"),
        "token_slope": statistics.token_slope
        if isinstance(statistics.token_slope, TokenSlope)
        else None,
        "gap": _gap(statistics, m.levels),
        "se_parts": {
            "within": statistics.interval.within.value,
            "within_df": statistics.interval.within.df,
            "run": statistics.interval.run.variance**0.5,
            "run_df": statistics.interval.run.df,
            "seeds": statistics.interval.run.seeds,
        },
        "tau": {
            "baseline": _tau(statistics.floors[0], statistics),
            "candidate": _tau(statistics.floors[1], statistics),
            "controls_used": len(m.controls.used),
        },
        "noise": _noise(statistics, m.r_pair),
        "convergence": {
            "baseline": picked(statistics.baseline, "decline", "first_loss"),
            "candidate": picked(statistics.candidate, "decline", "first_loss"),
            "planned_share": m.planned_share,
        },
        "drift": {
            "change": statistics.drift,
            "se": statistics.drift_se,
            "lower": statistics.drift - DRIFT_Z * statistics.drift_se,
            "gap_at_end": statistics.interval.mean + statistics.drift / 2.0,
            "gap_if_it_goes_on": statistics.interval.mean + DRIFT_REACH * statistics.drift,
        },
        "spikes": picked(
            statistics.spikes, "baseline", "candidate", "p_candidate_more", "masked_share"
        ),
    }


def _chance(m: Measurements, decision: Decision) -> dict[str, Any]:
    """The chance of parity, where only the evidence is missing for a pass or a fail."""
    s = m.statistics
    if (
        not BY_CODE[decision.deciding.code].shows_chance
        or s is None
        or s.margin is None
        or s.n < POINTS_TO_FAIL
    ):
        return {}
    below = s.interval.chance_below(-s.margin.nats) if m.policy.two_sided else 0.0
    return {"chance_of_parity": s.interval.chance_below(s.margin.nats) - below}


def _multiplicity(m: Measurements) -> dict[str, Any]:
    shared = m.multiplicity
    return {
        **picked(shared, "look", "looks", "candidates", "registered"),
        "weights": [look_weight(shared.looks)] * shared.looks,
        "confidence": m.confidence,
    }


def _gap(statistics: WindowStatistics, levels: tuple[float, float]) -> dict[str, Any]:
    level, interval = statistics.baseline.level, statistics.interval
    lo, hi = interval.bounds(*levels)
    return {
        **picked(interval, "mean", "se", "df"),
        "rel": interval.mean / level if level else None,
        "raw": statistics.raw_gap,
        "masked": interval.mean,
        "lo": lo,
        "hi": hi,
        "confidence": levels[0],
        "ci95": interval.bounds(0.95),
        "ci90": interval.bounds(0.90),
    }


def _tau(floor: RunFloor, statistics: WindowStatistics) -> dict[str, Any]:
    return {
        "value": floor.tau,
        "rel": floor.tau / abs(statistics.baseline.level) if statistics.baseline.level else None,
        **picked(floor, "source", "df", "measured", "measured_df"),
        "prior": floor.prior.tau,
        "prior_df": floor.prior.df,
        "prior_basis": floor.prior.basis,
        **({"early_stopped": _early_stopped(floor.early)} if floor.early else {}),
        **({"borrowed": _loan(floor.prior.loan)} if floor.prior.loan else {}),
    }


def _early_stopped(early: EarlySpread) -> dict[str, Any]:
    return {"rel": early.share, **picked(early, "df", "runs", "stop", "first", "last")}


def _loan(loan: Loan) -> dict[str, Any]:
    return {
        "family": loan.lender.family,
        "rel": loan.floor.share,
        **picked(loan.floor, "df", "groups", "runs", "outliers"),
        "bit_equal_groups": loan.lender.bit_equal,
        "own_over_family": loan.agreement.ratio,
        **picked(loan.agreement, "p", "weight"),
    }


def _noise(statistics: WindowStatistics, r_pair: float | None) -> dict[str, Any]:
    run_se = statistics.interval.run.variance**0.5
    return {
        **picked(statistics, "sigma_step", "sd_paired", "rho1"),
        "n_eff": statistics.effective_n,
        "r_step": statistics.interval.mean / statistics.sigma_step
        if statistics.sigma_step
        else None,
        "z_run": statistics.interval.mean / run_se if run_se else None,
        "r_pair": r_pair,
    }


def _arm(arm: Arm, statistics: ArmStatistics | None) -> dict[str, Any]:
    return {
        **picked(arm, "name", "recipe", "left_out"),
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


def _window(m: Measurements) -> dict[str, Any]:
    measured = (
        picked(m.statistics, "n", "sensitivity") if m.statistics else {"n": 0, "sensitivity": ()}
    )
    return {**picked(m.window, "first", "last", "fraction", "rule"), **measured}


def _inputs(m: Measurements) -> dict[str, Any]:
    early = {
        side: [_run(run) for run in own.used] for side, own in zip(SIDES, m.early, strict=True)
    }
    return {
        "baseline": [_run(run) for run in m.arms.baseline.runs],
        "candidate": [_run(run) for run in m.arms.candidate.runs],
        "controls": [_run(run) for run in m.controls.used],
        **({"short_reruns": early} if any(early.values()) else {}),
        "common_steps": len(m.aligned.steps),
        "sha256_aligned": m.aligned.digest(),
    }


def _run(run: Curve) -> dict[str, Any]:
    return {
        **picked(run, "label", "seed", "replicate", "recipe", "context", "notes", "completeness"),
        **({"rounding": run.rounding} if run.rounding else {}),
        "coverage": run.completeness.coverage,
    }


# `judge`: curves in, verdicts out. The one entry to the engine; pure, deterministic, no random
# numbers, no input or output.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Verdict:
    """What was decided about one candidate, on which measurements, and what to do next;
    `document()` is its JSON form.
    """

    decision: Decision
    advice: Advice
    measurements: Measurements
    advisory: Advisory
    checks: tuple[CheckDocument, ...] = ()
    peers: tuple[PeerDocument, ...] = ()
    layer_policy: str | None = None

    @property
    def verdict(self) -> State:
        """pass, fail or inconclusive."""
        return self.decision.state

    @property
    def codes(self) -> tuple[str, ...]:
        """Reason codes, the deciding one first."""
        return self.decision.codes

    @property
    def candidate(self) -> str:
        """The candidate's name."""
        return self.measurements.arms.candidate.name

    @property
    def gap(self) -> Interval | None:
        """The window's gap with its error in nats, where there is a window."""
        if not self.measurements.statistics:
            return None
        return self.measurements.statistics.interval

    @property
    def margin(self) -> Margin | None:
        """The deciding margin, where it could be determined."""
        if not self.measurements.statistics:
            return None
        return self.measurements.statistics.margin

    def __repr__(self) -> str:
        """One line: the candidate, the state and what decided it; `document()` has everything."""
        ends = self.measurements.bounds
        if self.gap and ends:
            interval = f", gap {signed(self.gap.mean)} nats ({interval_words(*ends)})"
        else:
            interval = ""
        return (
            f"<Verdict on {self.candidate!r:.80}: {self.verdict}{interval}, decided by "
            f"{self.codes[0]}>"
        )

    def document(self) -> VerdictDocument:
        """The verdict as a JSON-able dict with sorted keys."""
        m, decision = self.measurements, self.decision
        document: VerdictDocument = json_value(
            {
                "schema": VERDICT_SCHEMA,
                "engine_version": JUDGE_VERSION,
                "verdict": decision.state,
                "codes": decision.codes,
                "reasons": [decision.deciding, *decision.others],
                "profile": m.policy.profile_name,
                **(
                    {}
                    if m.compares == RECIPE
                    else {"compares": m.compares, "may_differ": compared_keys(m.compares)}
                ),
                **picked(self, "layer_policy", "advice", "checks"),
                "multiplicity": _multiplicity(m),
                "baseline": _arm(m.arms.baseline, m.statistics.baseline if m.statistics else None),
                "candidate": _arm(
                    m.arms.candidate, m.statistics.candidate if m.statistics else None
                ),
                "window": _window(m),
                **_chance(m, decision),
                "schedule": picked(m.schedule, "step", "finished", "stated", "slope"),
                "nonfinite": {
                    side: picked(arm.nonfinite, "count", "worst_share", "first_step", "at_end")
                    for side, arm in zip(SIDES, m.arms.both, strict=True)
                },
                **picked(m, "resolution", "mismatch", "worst_run"),
                **({} if m.arms.pairing.by == "seeds" else {"pairing": _pairing(m.arms)}),
                "context_differs": m.differing_context,
                **fields_of(self.advisory),
                "other_candidates": self.peers,
                "inputs": _inputs(m),
                "params": {
                    "policy": m.policy.document(),
                    **picked(m.window, "planned_steps", "plan"),
                    "max_nonfinite_share": NONFINITE_SHARE,
                },
                **_measured(m),
            }
        )
        return document


def judge(
    baseline: Sequence[Curve],
    candidates: Mapping[str, Sequence[Curve]],
    policy: Policy,
    *,
    controls: Sequence[Curve] = (),
    planned_steps: int | None = None,
    assume_complete: bool = False,
    layer_policy: str | None = None,
    baseline_name: str | None = None,
    layer_snr_db: Mapping[str, LayerSnr] | None = None,
    evaluations: Evaluations | None = None,
    noise_table: NoiseTable | None = None,
    families: Mapping[str, str] | None = None,
    short_reruns: Mapping[str, Sequence[Curve]] | None = None,
    multiplicity: Multiplicity | None = None,
    shorter: Sequence[Curve] = (),
    compares: Mapping[str, Comparison] | None = None,
    against: Mapping[str, str] | None = None,
) -> tuple[Verdict, ...]:
    """Judge every candidate (name -> runs) against the baseline's runs, one verdict each, in the
    mapping's order.

    `controls` are reruns of the baseline, `shorter` finished runs of its recipe on 25 to 50 % of
    its tokens, for margins in tokens; `planned_steps` is the registered length of a run,
    `assume_complete` takes the longest run's. Without either nothing passes. `layer_snr_db` holds
    per candidate the quantization SNR (dB) by (layer, operand), for the advice after a fail;
    `evaluations` downstream results by arm (the baseline's under `baseline_name`) and task. An arm
    in `families` (name -> family) borrows its run-to-run noise from that family of `noise_table`.
    `short_reruns` holds, by arm, reruns that were stopped early: they measure run-to-run noise
    only, and are never judged. `multiplicity` says which of the policy's looks this is and how many
    candidates share its error: by default the first, and those given. `compares` says in what a
    candidate differs from the arm that it is judged against: its recipe by default, else the
    revision of the code or the environment of one recipe; `against` names another candidate as that
    arm, in place of the baseline, whose `controls` and `shorter` runs then do not count. Losses in
    nats. Raises ValueError where an arm has no run, a recipe is not known or contradicts the
    rounding (`parity.recipes`), the plan is not positive, evaluations can't be compared, short
    reruns or a family are given for an unknown arm, an arm has more than 16 short reruns, a family
    is given without noise_table, `multiplicity` has other looks than the policy or fewer candidates
    than are given, `compares` or `against` name an unknown candidate or go in a circle, or arms
    that differ in revision or environment have two recipes.
    """
    if not baseline:
        raise ValueError("the baseline has no run; expected at least one curve")
    if not candidates or not all(candidates.values()):
        raise ValueError(
            f"candidates are {list(candidates)}; expected at least one name with at least one "
            "curve each"
        )
    if planned_steps is not None and not (
        type(planned_steps) is int and 1 <= planned_steps <= MAX_STEP
    ):
        raise ValueError(
            f"planned_steps is {ascii(planned_steps)[:40]}; expected a whole number from 1 to "
            f"{MAX_STEP}"
        )
    name = baseline_name or baseline[0].recipe or baseline[0].label or "baseline"
    early = dict(short_reruns or {})
    if unknown := [arm for arm in early if arm not in (name, *candidates)]:
        raise ValueError(
            f"short reruns are given for {unknown[0]!r}; expected one of the arms "
            f"{', '.join((name, *candidates))}"
        )
    if many := [arm for arm, runs in early.items() if len(runs) > MAX_SHORT_RERUNS]:
        number = len(early[many[0]])
        raise ValueError(
            f"short reruns of {many[0]} are {number:,}; expected at most {MAX_SHORT_RERUNS} per "
            "arm: give fewer"
        )
    for arm, runs in [
        *{name: baseline, **candidates, "controls": controls, "shorter": shorter}.items(),
        *early.items(),
    ]:
        for run in runs:
            check_recipe(run.recipe, f"recipe of {arm}")
            check_rounding(run.recipe, run.rounding, f"rounding of {arm}")
    check_arms(evaluations or {}, name, tuple(candidates))
    if strangers := [arm for arm in families or {} if arm not in (name, *candidates)]:
        raise ValueError(
            f"a family is named for {strangers[0]!r}; expected one of the arms "
            f"{', '.join((name, *candidates))}"
        )
    lenders = Lenders(noise_table, families or {})
    shared = _shared(multiplicity, policy, len(candidates))
    against = against or {}
    pairs = _pairs((name, baseline), candidates, compares or {}, against)
    verdicts = []
    with np.errstate(over="ignore", invalid="ignore"):
        for number, (candidate, runs) in enumerate(candidates.items()):
            complete = assume_complete or policy.schedule == "decayed"
            pair, base = pairs[candidate]
            window = plan_window((*base, *runs), planned_steps, complete, policy.window_fraction)
            own_controls, own_shorter = ((), ()) if candidate in against else (controls, shorter)
            further = FurtherRuns(
                own_controls, (early.get(pair.baseline, ()), early.get(candidate, ())), own_shorter
            )
            measured = measure(pair, base, runs, policy, window, lenders, further, shared)
            advisory = measure_advisory(
                measured, downstream_gaps(evaluations or {}, pair.baseline, candidate, policy)
            )
            made = checks(
                advisory, measured.statistics.margin if measured.statistics else None, policy
            )
            decision = apply_checks(decide(measured), made, policy)
            earlier = [
                (other, own)
                for other, own in list(candidates.items())[:number]
                if other != against.get(candidate)
            ]
            verdicts.append(
                Verdict(
                    decision=decision,
                    advice=advise(
                        measured, decision, layer_policy, (layer_snr_db or {}).get(candidate)
                    ),
                    measurements=measured,
                    advisory=advisory,
                    checks=made,
                    peers=tuple(
                        compare_peers(
                            (other, candidate),
                            others,
                            runs,
                            policy,
                            window,
                            lenders,
                            shared.candidates,
                        )
                        for other, others in earlier
                    ),
                    layer_policy=layer_policy,
                )
            )
    return tuple(verdicts)


def _pairs(
    baseline: tuple[str, Sequence[Curve]],
    candidates: Mapping[str, Sequence[Curve]],
    compares: Mapping[str, Comparison],
    against: Mapping[str, str],
) -> dict[str, tuple[Compared, Sequence[Curve]]]:
    """By candidate what is compared, and the runs that it is judged against."""
    for what, named in (("compares", [*compares]), ("against", [*against, *against.values()])):
        if strangers := [name for name in named if name not in candidates]:
            raise ValueError(
                f"{what} names {strangers[0]!r}; expected one of the candidates "
                f"{', '.join(candidates)}"
            )
    if wrong := next((name for name in compares if compares[name] not in COMPARISONS), None):
        raise ValueError(
            f"compares of {wrong} is {compares[wrong]!r}; expected {' or '.join(COMPARISONS)}"
        )
    pairs = {}
    for candidate, runs in candidates.items():
        _check_chain(candidate, against)
        if candidate in against:
            name, base = (against[candidate], candidates[against[candidate]])
        else:
            name, base = baseline
        comparison = compares.get(candidate, RECIPE)
        recipes = {run.recipe or "none stated" for run in (*base, *runs)}
        if comparison != RECIPE and len(recipes) > 1:
            stated = ", ".join(sorted(recipes))
            raise ValueError(
                f"{candidate} compares its {comparison} with {name}, but the recipes are {stated}; "
                "expected one recipe in both"
            )
        pairs[candidate] = Compared(name, candidate, comparison), base
    return pairs


def _check_chain(candidate: str, against: Mapping[str, str]) -> None:
    """ValueError where the arms that a candidate is judged against, one after the other, never end
    at the baseline.
    """
    seen = [candidate]
    while (other := against.get(seen[-1])) is not None:
        if other in seen:
            raise ValueError(
                f"{' against '.join([*seen, other])} is a circle; expected arms that end at the "
                "baseline"
            )
        seen.append(other)


def _shared(multiplicity: Multiplicity | None, policy: Policy, candidates: int) -> Multiplicity:
    shared = multiplicity or Multiplicity(looks=policy.looks, candidates=candidates)
    if shared.looks != policy.looks:
        raise ValueError(
            f"multiplicity has {shared.looks} looks; expected those of the policy, {policy.looks}"
        )
    if shared.candidates < candidates:
        raise ValueError(
            f"multiplicity has {shared.candidates} candidates; expected at least the {candidates} "
            "that are given"
        )
    return shared
