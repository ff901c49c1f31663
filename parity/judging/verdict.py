"""`judge`: curves in, verdicts out. The one entry to the engine; pure, deterministic, no random numbers, no input or output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.advice import Advice, LayerSnr, advise
from parity.judging.criteria import Criteria
from parity.judging.curve import MAX_STEP, Curve
from parity.judging.decision import Decision, State
from parity.judging.document import verdict_document
from parity.judging.document_types import CheckDocument, PeerDocument, VerdictDocument
from parity.judging.early_stops.usable import MAX_NOISE_RUNS
from parity.judging.floors.groups import Floors
from parity.judging.floors.lending import Lenders
from parity.judging.gates import apply_gates, checks
from parity.judging.interval import Interval
from parity.judging.margin import Margin
from parity.judging.measurements import FurtherRuns, Measurements, measure
from parity.judging.multiplicity import Multiplicity
from parity.judging.reasons import decide
from parity.judging.secondary.advisory import Advisory, measure_advisory
from parity.judging.secondary.downstream import Evaluations, check_arms, downstream_gaps
from parity.judging.secondary.peers import compare_peers
from parity.judging.window import plan_window
from parity.recipes import check_recipe, check_rounding
from parity.wording import interval_words, signed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Verdict:
    """What was decided about one candidate, on which measurements, and what to do next; `document()` is its JSON form."""

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
        return self.measurements.statistics.interval if self.measurements.statistics else None

    @property
    def margin(self) -> Margin | None:
        """The deciding margin, where it could be determined."""
        return self.measurements.statistics.margin if self.measurements.statistics else None

    def __repr__(self) -> str:
        """One line: the candidate, the state and what decided it; `document()` has everything."""
        ends = self.measurements.bounds
        interval = f", gap {signed(self.gap.mean)} nats ({interval_words(*ends)})" if self.gap and ends else ""
        return f"<Verdict on {self.candidate!r:.80}: {self.verdict}{interval}, decided by {self.codes[0]}>"

    def document(self) -> VerdictDocument:
        """The verdict as a JSON-able dict with sorted keys."""
        return verdict_document(self.measurements, self.decision, self.advice, self.advisory, self.checks, self.peers, self.layer_policy)


def judge(
    baseline: Sequence[Curve],
    candidates: Mapping[str, Sequence[Curve]],
    criteria: Criteria,
    *,
    controls: Sequence[Curve] = (),
    planned_steps: int | None = None,
    assume_complete: bool = False,
    layer_policy: str | None = None,
    baseline_name: str | None = None,
    layer_snr_db: Mapping[str, LayerSnr] | None = None,
    evaluations: Evaluations | None = None,
    floors: Floors | None = None,
    families: Mapping[str, str] | None = None,
    noise_runs: Mapping[str, Sequence[Curve]] | None = None,
    multiplicity: Multiplicity | None = None,
    shorter: Sequence[Curve] = (),
) -> tuple[Verdict, ...]:
    """Judge every candidate (name -> runs) against the baseline's runs, one verdict each, in the mapping's order.

    `controls` are reruns of the baseline, `shorter` finished runs of its recipe on 25 to 50 % of its tokens, for margins in tokens;
    `planned_steps` is the registered length of a run, `assume_complete` takes the longest run's. Without either nothing passes.
    `layer_snr_db` holds per candidate the quantization SNR (dB) by (layer, operand), for the advice after a fail; `evaluations`
    downstream results by arm (the baseline's under `baseline_name`) and task. An arm in `families` (name -> family) borrows its run floor
    from that family of `floors`. `noise_runs` holds, by arm, reruns that were stopped early: they measure run noise only, and are never
    judged. `multiplicity` says which of the policy's looks this is and how many candidates share its error: by default the first, and
    those given. Losses in nats. Raises ValueError where an arm has no run, a recipe is not known or contradicts the rounding
    (`parity.recipes`), the plan is not positive, evaluations can't be compared, noise runs or a family are given for an unknown arm, an
    arm has more than 16 noise runs, a family is given without floors, or `multiplicity` has other looks than the policy or fewer
    candidates than are given.
    """
    if not baseline:
        raise ValueError("the baseline has no run; expected at least one curve")
    if not candidates or not all(candidates.values()):
        raise ValueError(f"candidates are {list(candidates)}; expected at least one name with at least one curve each")
    if planned_steps is not None and not (type(planned_steps) is int and 1 <= planned_steps <= MAX_STEP):
        raise ValueError(f"planned_steps is {ascii(planned_steps)[:40]}; expected a whole number from 1 to {MAX_STEP}")
    name = baseline_name or baseline[0].recipe or baseline[0].label or "baseline"
    early = dict(noise_runs or {})
    if unknown := [arm for arm in early if arm not in (name, *candidates)]:
        raise ValueError(f"noise runs are given for {unknown[0]!r}; expected one of the arms {', '.join((name, *candidates))}")
    if many := [arm for arm, runs in early.items() if len(runs) > MAX_NOISE_RUNS]:
        number = len(early[many[0]])
        raise ValueError(f"noise runs of {many[0]} are {number:,}; expected at most {MAX_NOISE_RUNS} per arm: give fewer")
    for arm, runs in [*{name: baseline, **candidates, "controls": controls, "shorter": shorter}.items(), *early.items()]:
        for run in runs:
            check_recipe(run.recipe, f"recipe of {arm}")
            check_rounding(run.recipe, run.rounding, f"rounding of {arm}")
    check_arms(evaluations or {}, name, tuple(candidates))
    lenders = _lenders(floors, families or {}, (name, *candidates))
    shared = _shared(multiplicity, criteria, len(candidates))
    verdicts = []
    with np.errstate(over="ignore", invalid="ignore"):
        for number, (candidate, runs) in enumerate(candidates.items()):
            complete = assume_complete or criteria.schedule == "decayed"
            window = plan_window((*baseline, *runs), planned_steps, complete, criteria.window_fraction)
            further = FurtherRuns(controls, (early.get(name, ()), early.get(candidate, ())), shorter)
            measured = measure((name, candidate), baseline, runs, criteria, window, lenders, further, shared)
            advisory = measure_advisory(measured, downstream_gaps(evaluations or {}, name, candidate, criteria))
            made = checks(advisory, measured.statistics.margin if measured.statistics else None, criteria)
            decision = apply_gates(decide(measured), made, criteria)
            earlier = list(candidates.items())[:number]
            verdicts.append(
                Verdict(
                    decision=decision,
                    advice=advise(measured, decision, layer_policy, (layer_snr_db or {}).get(candidate)),
                    measurements=measured,
                    advisory=advisory,
                    checks=made,
                    peers=tuple(
                        compare_peers((other, candidate), others, runs, criteria, window, lenders, shared.candidates)
                        for other, others in earlier
                    ),
                    layer_policy=layer_policy,
                )
            )
    return tuple(verdicts)


def _shared(multiplicity: Multiplicity | None, criteria: Criteria, candidates: int) -> Multiplicity:
    shared = multiplicity or Multiplicity(looks=criteria.looks, candidates=candidates)
    if shared.looks != criteria.looks:
        raise ValueError(f"multiplicity has {shared.looks} looks; expected those of the policy, {criteria.looks}")
    if shared.candidates < candidates:
        raise ValueError(f"multiplicity has {shared.candidates} candidates; expected at least the {candidates} that are given")
    return shared


def _lenders(floors: Floors | None, families: Mapping[str, str], arms: tuple[str, ...]) -> Lenders:
    if unknown := [arm for arm in families if arm not in arms]:
        raise ValueError(f"a family is named for {unknown[0]!r}; expected one of the arms {', '.join(arms)}")
    return Lenders(floors, families)
