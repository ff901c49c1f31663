"""`judge`: curves in, verdicts out. The one entry to the engine; pure, deterministic, no random
numbers, no input or output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curves.context import COMPARISONS, RECIPE, Comparison
from parity.judging.curves.curve import MAX_STEP, Curve
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.decision import Decision, State
from parity.judging.document_types import CheckDocument, PeerDocument, VerdictDocument
from parity.judging.gap.interval import Interval
from parity.judging.gap.margin import Margin
from parity.judging.measurements import Compared, FurtherRuns, Measurements
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.policy import Policy
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.candidates import compare_peers
from parity.judging.secondary.tasks import Evaluations, check_arms
from parity.judging.verdict.advice import Advice, advise
from parity.judging.verdict.document import verdict_document
from parity.judging.verdict.free_statements import free_offers
from parity.judging.verdict.layer_statistics import LayerSnr
from parity.judging.verdict.margin_to_pass import margin_to_pass
from parity.judging.verdict.pair import PairQuestion, judge_pair
from parity.recipes import check_recipe, check_rounding
from parity.wording import interval_words, signed


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
        return verdict_document(
            self.measurements,
            self.decision,
            self.advisory,
            layer_policy=self.layer_policy,
            advice=self.advice,
            checks=self.checks,
            peers=self.peers,
        )


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
    noise_families = NoiseFamilies(noise_table, families or {})
    shared = _shared(multiplicity, policy, len(candidates))
    against = against or {}
    pairs = _pairs((name, baseline), candidates, compares or {}, against)
    verdicts = []
    with np.errstate(over="ignore", invalid="ignore"):
        for number, (candidate, runs) in enumerate(candidates.items()):
            pair, base = pairs[candidate]
            own_controls, own_shorter = ((), ()) if candidate in against else (controls, shorter)
            question = PairQuestion(
                compared=pair,
                baseline=base,
                candidate=runs,
                policy=policy,
                planned_steps=planned_steps,
                assume_complete=assume_complete,
                noise_families=noise_families,
                further=FurtherRuns(
                    own_controls,
                    (early.get(pair.baseline, ()), early.get(candidate, ())),
                    own_shorter,
                ),
                multiplicity=shared,
                evaluations=evaluations or {},
            )
            judged = judge_pair(question)
            earlier = [
                (other, arm_runs)
                for other, arm_runs in list(candidates.items())[:number]
                if other != against.get(candidate)
            ]
            verdicts.append(
                Verdict(
                    decision=judged.decision,
                    advice=advise(
                        judged.measurements,
                        judged.decision,
                        layer_policy,
                        (layer_snr_db or {}).get(candidate),
                        free_offers(question, judged),
                        margin_to_pass(judged),
                    ),
                    measurements=judged.measurements,
                    advisory=judged.advisory,
                    checks=judged.checks,
                    peers=tuple(
                        compare_peers(
                            (other, candidate),
                            others,
                            runs,
                            policy,
                            judged.window,
                            noise_families,
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
