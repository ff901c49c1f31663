"""The next step of each code that decides about training losses is carried out on a case that
raises it: the verdict moves as the step says.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from parity.judging import codes
from parity.judging.curves.curve import LOSS_MEANING
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import policy_from_mapping
from parity.judging.precedence import ROWS
from parity.judging.verdict.verdict import Verdict, judge
from parity.report.next_steps import called
from tests.parity.judging.precedence.changes import CHANGES
from tests.parity.judging.precedence.pair import Pair, run, with_facts

Done = Callable[[Pair, Verdict], None]


def judged(pair: Pair) -> Verdict:
    """The verdict on a pair."""
    options: dict[str, Any] = dict(pair.options)
    if compares := options.pop("compares", None):
        options["compares"] = {pair.names[1]: compares}
    (verdict,) = judge(
        pair.base,
        {pair.names[1]: pair.cand},
        policy_from_mapping(pair.policy),
        baseline_name=pair.names[0],
        **options,
    )
    return verdict


def _as_it_should_be(pair: Pair, _verdict: Verdict) -> None:
    """The runs, the names and the plan of an honest pair: logged, trained or named again."""
    honest = Pair()
    pair.base, pair.cand, pair.names = honest.base, honest.cand, honest.names
    pair.options = honest.options


def _stated(pair: Pair, verdict: Verdict) -> None:
    """Every statement of the first offer, by hand."""
    for one in verdict.advice.offers[0].statements:
        if one.key in ("schedule", "pairing", "start", "loss_unit"):
            pair.policy[one.key] = one.value
        elif one.key == "loss_is":
            pair.base, pair.cand = (
                [with_facts(curve, **{LOSS_MEANING: "training loss"}) for curve in arm]
                for arm in (pair.base, pair.cand)
            )
        else:
            assert one.key == "start_precision"
            pair.cand = [with_facts(curve, start_precision=one.value) for curve in pair.cand]


def _more_runs(baseline: int, candidate: int) -> Done:
    def add(pair: Pair, _verdict: Verdict) -> None:
        _add(pair, baseline, candidate)

    return add


def _add(pair: Pair, baseline: int, candidate: int) -> None:
    for arm, number, first in ((pair.base, baseline, 20), (pair.cand, candidate, 40)):
        level = float(arm[0].loss[-200:].mean() - pair.base[0].loss[-200:].mean())
        for replicate in range(1, number + 1):
            rerun = run(first + replicate)
            arm.append(
                dataclasses.replace(
                    rerun, loss=rerun.loss + level, replicate=replicate, context=arm[0].context
                )
            )


def _advised_runs(pair: Pair, verdict: Verdict) -> None:
    advice = verdict.advice
    _add(pair, advice.add_baseline_runs or 0, advice.add_candidate_runs or 0)


def _policy(**policy: Any) -> Done:
    return lambda pair, _verdict: pair.policy.update(policy)


def _swapped(pair: Pair, _verdict: Verdict) -> None:
    pair.base, pair.cand = pair.cand, pair.base


@dataclasses.dataclass(frozen=True)
class Case:
    """A change that raises a code, words of its next step, and how it is done, with the verdict
    that follows (None: decided, or open for another reason).
    """

    made: str
    says: str
    done: Done = _as_it_should_be
    then: str | None = "pass"


CASES: dict[str, Case] = {
    "EMPTY": Case("candidate logs nothing", "right column"),
    "WINDOW_OTHER_RECIPE": Case("candidate nvfp4 was bf16 throughout", "Name the arm after what"),
    "LOSSES_DIFFER": Case("columns of two quantities", "--loss-is training", _stated),
    "STEPS_SHIFTED": Case("candidate counts steps from 1", "Renumber the steps"),
    "STEPS_SCALED": Case("candidate counts 512 a step", "Divide the step column"),
    "LOSS_SCALED": Case("candidate's losses in bits", "in nats"),
    "NO_COMMON_STEPS": Case("arms log in turn", "Log both arms on the same steps"),
    "SEEDS_UNSTATED": Case("two runs an arm without seeds, all of other batches", "State the seed"),
    "DATA_ORDER_MISMATCH": Case("candidate read other batches", "same seed and data order"),
    "ORDER_UNSHOWN": Case("batches so large that no part shows them", "--pairing stated", _stated),
    "ROUNDED": Case("losses with one decimal", "more digits"),
    "ARM_AVERAGED": Case("candidate's log holds means of 20 steps", "Log the raw loss"),
    "BASELINE_INVALID": Case("baseline ends in NaN", "Fix the baseline"),
    "LOSS_NOT_NATS": Case("losses of a hundred nats", "in nats"),
    "LOSS_CONSTANT": Case("baseline is constant in the window", "right column"),
    "STEPS_TOO_LARGE": Case("steps beyond a quadrillion", "counts optimizer steps"),
    "NONFINITE_CAND": Case("candidate ends in NaN", "first step with NaN"),
    "DIVERGED": Case("candidate drifts far away", "losses part"),
    "CANDIDATE_UNSTABLE": Case("candidate spikes at 8 points of the window", "spikes start"),
    "LEARNING_RATES_DIFFER": Case(
        "other learning rates", "may_differ", _policy(may_differ=["learning_rate"])
    ),
    "CONFOUNDED": Case("other engine", "same engine"),
    "START_DIFFERS": Case("candidate begins 4 % behind", "same initialization"),
    "MARGIN_UNDETERMINED": Case(
        "margin in tokens without a slope",
        "5% tokens at 0.2 nats",
        _policy(margin="20% tokens at 0.2 nats"),
    ),
    "RUN_NOISE_UNKNOWN": Case("small model", "Add replicates to both arms", _more_runs(3, 3)),
    "GAP_EXCEEDS_MARGIN": Case("candidate 2 % worse", "first step where the arms diverge"),
    "ENDS_ABOVE_MARGIN": Case(
        "candidate 1.6 margins worse in the last half of the window",
        "first step where the arms diverge",
    ),
    "UNSTABLE": Case("candidate spikes a little at 8 points", "cause of the spikes"),
    "TOO_FEW_STEPS": Case("every fortieth step", "Log the loss more often"),
    "ARMS_IDENTICAL": Case("candidate is the baseline's log", "given twice"),
    "RECIPE_CONTRADICTED": Case(
        "candidate recorded another recipe than is stated", "correct the arm's name"
    ),
    "TREATMENT_UNSHOWN": Case(
        "recipes on record and an equal first loss", "start_precision=bf16", _stated
    ),
    "END_DIFFERS": Case("candidate worse at its last points", "Train on"),
    "ARMS_SHARE_START": Case("candidate forked by its record", "from step 0"),
    "BETTER_THAN_BASELINE": Case("candidate 2 % better", "arms are not swapped", _swapped, "fail"),
    "START_OFFSET": Case("candidate begins 1 % ahead", "log the same terms"),
    "RUN_ABOVE_MARGIN": Case(
        "a second pair, whose candidate is 3 margins worse", "what happened in that run"
    ),
    "ROLLED_BACK": Case("candidate went back from a rise", "why that run rose"),
    "GRAD_NORM_APART": Case(
        "candidate's gradient norm is 40 times as large",
        "may_differ",
        _policy(may_differ=["grad_norm"]),
    ),
    "SHORT_RERUN_DIVERGED": Case(
        "a short rerun of the candidate diverged", "why that rerun diverged"
    ),
    "GAP_GROWING": Case("candidate drifts to 1.2 margins", "from which step on"),
    "BEYOND_PLAN": Case("plan of 70 % of the runs", "planned length"),
    "DOWNSAMPLED": Case("candidate lacks a tenth of the window", "full series"),
    "POINTS_IN_ONE_ARM": Case("candidate lacks five points in a row", "export the run again"),
    "LOSSES_NOT_LOGGED": Case("candidate's rows have a loss every second step", "every step"),
    "LINES_UNREAD": Case("candidate's log has lines that were not read", "--pattern"),
    "LOG_STARTS_LATE": Case("logs begin late", "from the first step"),
    "NONFINITE_DROPPED": Case("candidate has NaN at 2 points near the end", "steps with NaN"),
    "SMOOTHED": Case("both logs hold means of 60 steps", "without a moving average"),
    "SPIKES_HIDE_GAP": Case("candidate spikes at one point", "candidate's spikes"),
    "VALIDATION_LOSS_WORSE": Case(
        "candidate's validation loss is worse before the window",
        "validation: advise",
        _policy(validation="advise"),
    ),
    "TOO_FEW_RUNS": Case("loss of another kind", "at least two", _more_runs(3, 3), None),
    "RUN_NOISE_ASSUMED": Case("assumed noise is rejected", "Add 4 replicates", _more_runs(2, 2)),
    "MARGIN_WIDE": Case("margin of 8 %", "smaller margin", _policy(margin="1%")),
    "AS_OF": Case("schedule not stated", "--schedule decayed", _stated),
    "CI_STRADDLES_MARGIN": Case(
        "candidate 0.8 margins worse", "more cand runs", _advised_runs, None
    ),
}
OPERATORS = "parity new-question JOB --reason TEXT"  # a command, and no option of a comparison
NEED_NOTHING = {codes.WITHIN_MARGIN.code, codes.IDENTICAL.code}


def test_each_code_that_decides_has_a_case() -> None:
    assert {row.code.code for row in ROWS} == CASES.keys() | NEED_NOTHING


@pytest.mark.parametrize("code", CASES)
def test_the_next_step_does_what_it_says(code: str) -> None:
    case, pair = CASES[code], Pair()
    CHANGES[case.made](pair)
    verdict = judged(pair)
    assert verdict.codes[0] == code
    assert verdict.verdict != "pass"
    assert case.says in " ".join(verdict.advice.sentences)
    case.done(pair, verdict)
    after = judged(pair)
    assert after.codes[0] != code, after.decision.deciding.sentence
    if case.then is not None:
        assert after.verdict == case.then
    if case.done is _stated:
        assert after.verdict == verdict.advice.offers[0].verdict


@pytest.mark.parametrize("code", CASES)
def test_a_step_is_written_in_the_words_of_its_place(code: str) -> None:
    """In Python nobody has options, and neither has the owner of a job."""
    pair = Pair()
    CHANGES[CASES[code].made](pair)
    document = judged(pair).document()
    here = called(document, lambda arguments: f"compare({arguments})")["advice"]["sentences"]
    pair.options["multiplicity"] = Multiplicity(registered=True)
    there = judged(pair).advice.sentences
    assert "--" not in " ".join((*here, *there)).replace(OPERATORS, "")
    assert len(here) == len(document["advice"]["sentences"])
