"""The next step of each code that decides about held-out losses is carried out on a case that
raises it: the answer moves as the step says.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.judging import codes
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.precedence import ROWS, WARNINGS
from tests.parity.judging.precedence.evaluation_changes import CHANGES
from tests.parity.judging.precedence.evaluation_pair import MARGIN, STEPS, EvaluationPair, arm

Done = Callable[[EvaluationPair, EvaluationDocument], None]


def judged(pair: EvaluationPair) -> EvaluationDocument:
    """The answer about a pair."""
    (document,) = pair.case().documents()
    return document


def _as_it_should_be(pair: EvaluationPair, _document: EvaluationDocument) -> None:
    """The runs, the names and the plan of an honest pair: evaluated, trained or named again."""
    honest = EvaluationPair()
    pair.base, pair.cand, pair.names = honest.base, honest.cand, honest.names
    pair.options = honest.options


def _stated(pair: EvaluationPair, document: EvaluationDocument) -> None:
    """Every statement of the offer, by hand."""
    (offer,) = document["advice"]["offers"]
    for one in offer["statements"]:
        assert one["key"] == "schedule"
        pair.policy["schedule"] = one["value"]


def _options(**options: Any) -> Done:
    return lambda pair, _document: pair.options.update(options)


def _policy(**policy: Any) -> Done:
    return lambda pair, _document: pair.policy.update(policy)


def _runs(baseline: int, candidate: int) -> Done:
    """More runs, each as far from the honest ones as those of its arm are."""

    def add(pair: EvaluationPair, _document: EvaluationDocument) -> None:
        pair.base = [*pair.base, *arm(*range(40, 40 + baseline))]
        pair.cand = [*pair.cand, *arm(*range(60, 60 + candidate))]

    return add


def _advised_runs(pair: EvaluationPair, document: EvaluationDocument) -> None:
    """As many runs of each arm as the step names, with the noise and the gap of those there are."""
    (sentence,) = document["advice"]["sentences"]
    added = 1 if "one more" in sentence else int(sentence.split()[1])
    for which in ("base", "cand"):
        runs = getattr(pair, which)
        rng = np.random.default_rng(len(which))
        mean = np.mean([run.loss for run in runs], axis=0)
        offsets = rng.normal(0.0, 0.004, added)
        more = [
            curve_from_arrays(
                STEPS,
                mean + offset + rng.normal(0.0, 0.001, len(STEPS)),
                label=f"{which} {place}",
                rounding="nearest",
            )
            for place, offset in enumerate(offsets - offsets.mean())
        ]
        setattr(pair, which, [*runs, *more])


def _unpaired(pair: EvaluationPair, _document: EvaluationDocument) -> None:
    pair.options["paired"] = False


def _further_systems(pair: EvaluationPair, _document: EvaluationDocument) -> None:
    """Each arm on the same four systems."""
    for which, seeds in (("base", (1, 2, 3, 4)), ("cand", (5, 6, 7, 8))):
        runs = arm(*seeds)
        placed = [
            dataclasses.replace(run, context={"system": "abcd"[place]})
            for place, run in enumerate(runs)
        ]
        setattr(pair, which, placed)


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
    "BASELINE_INVALID": Case("baseline's last loss is NaN", "Fix the baseline"),
    "NONFINITE_CAND": Case("candidate's last loss is NaN", "first evaluation that is not finite"),
    "ARMS_IDENTICAL": Case("candidate's run is a copy of the baseline's", "given twice"),
    "ARMS_SHARE_START": Case("candidate's run begins as the baseline's", "from step 0"),
    "LOSS_NOT_NATS": Case("losses of hundred nats", "in nats"),
    "LOSS_SCALED": Case("candidate's losses in bits", "in nats"),
    "NO_COMMON_STEPS": Case("candidate evaluates at other steps", "on the same steps"),
    "RUNS_UNPAIRED": Case("runs are paired, without a common seed", "unpaired arms", _unpaired),
    "CLUSTERS_UNUSABLE": Case(
        "clusters of one system an arm", "the same systems", _further_systems, None
    ),
    "RUN_NOISE_UNKNOWN": Case("one run an arm of a small model", "Add 4 runs in all", _runs(2, 2)),
    "GAP_EXCEEDS_MARGIN": Case("candidate 2 % worse", "from the first evaluation on"),
    "CONFOUNDED": Case("other data", "the same data_digest"),
    "MARGIN_UNDETERMINED": Case("margin of the noise floor", "Add 1 run", _runs(1, 0)),
    "END_DIFFERS": Case("candidate bumps two points before the end", "Train on"),
    "GAP_GROWING": Case("gap grows to 0.7 margins", "from which step on"),
    "DOWNSAMPLED": Case("a run lacks two late evaluations", "every evaluation"),
    "BEYOND_PLAN": Case("plan of 1,500 steps", "planned length", _options(planned_steps=2_000)),
    "RECIPE_CONTRADICTED": Case(
        "candidate called nvfp4 recorded another recipe", "correct the arm's name"
    ),
    "ROLLED_BACK": Case("candidate went back from a rise", "why that run rose"),
    "ROUNDED": Case("losses with two decimals", "more digits"),
    "MARGIN_WIDE": Case("margin of 8 %", "smaller margin", _policy(margin="1%")),
    "TOO_FEW_RUNS": Case("one run an arm of another kind of loss", "at least two", _runs(1, 1)),
    "RUN_NOISE_ASSUMED": Case(
        "one run an arm, whose assumed noise is rejected", "Add a run of base and one", _runs(1, 1)
    ),
    "NUMBERS_ALONE": Case("losses are typed numbers", "Give the logs"),
    "AS_OF": Case("schedule not stated", "--schedule decayed", _stated),
    "BETTER_THAN_BASELINE": Case("candidate 3 % better", "not swapped"),
    "CI_STRADDLES_MARGIN": Case(
        "candidate half a margin worse, in runs that are apart", "more runs", _advised_runs
    ),
}
NEED_NOTHING = {codes.WITHIN_MARGIN.code}


def _a_copy(pair: EvaluationPair) -> None:
    pair.base = [*pair.base, dataclasses.replace(pair.base[0], loss=pair.base[0].loss + 0.002)]


def _a_fork(pair: EvaluationPair) -> None:
    fork = arm(31)[0]
    loss = np.concatenate([pair.base[0].loss[:5], fork.loss[5:]])
    pair.base = [*pair.base, dataclasses.replace(fork, loss=loss)]


def _few_systems(pair: EvaluationPair) -> None:
    """Each arm on two systems of its own, of which the candidate's are apart."""
    pair.options["cluster"] = "system"
    for which, systems in (("base", "ab"), ("cand", "cd")):
        placed = [
            dataclasses.replace(
                run,
                loss=run.loss + (0.02 if systems[place % 2] == "d" else 0.0),
                context={"system": systems[place % 2]},
            )
            for place, run in enumerate(arm(*range(9, 13) if which == "base" else range(13, 17)))
        ]
        setattr(pair, which, placed)


WARNED: dict[str, tuple[Callable[[EvaluationPair], None], str, Done]] = {
    "REPLICATES_IDENTICAL": (_a_copy, "that the trainer wrote", _as_it_should_be),
    "REPLICATES_DEPENDENT": (_a_fork, "from step 0", _as_it_should_be),
    "CLUSTERS_WIDEN": (_few_systems, "the same systems", _further_systems),
}
"""How a warning comes about that has a step of its own, words of the step, and how it is done."""


def _made(name: str) -> EvaluationPair:
    pair = EvaluationPair()
    if name == "candidate called nvfp4 recorded another recipe":
        pair.names = ("base", "nvfp4")
        name = "candidate recorded another recipe"
    if name == "candidate half a margin worse, in runs that are apart":
        for which, worse in (("base", 0.0), ("cand", 0.5 * MARGIN)):
            runs = [
                dataclasses.replace(run, loss=run.loss + offset + worse)
                for run, offset in zip(getattr(pair, which), (-0.003, 0.0, 0.003), strict=True)
            ]
            setattr(pair, which, runs)
        return pair
    CHANGES[name](pair)
    return pair


def test_each_code_that_decides_has_a_case() -> None:
    assert {row.code.code for row in ROWS} == CASES.keys() | NEED_NOTHING


@pytest.mark.parametrize("code", CASES)
def test_the_next_step_does_what_it_says(code: str) -> None:
    case = CASES[code]
    pair = _made(case.made)
    document = judged(pair)
    assert document["codes"][0] == code
    assert document["verdict"] != "pass"
    assert case.says in " ".join(document["advice"]["sentences"])
    case.done(pair, document)
    after = judged(pair)
    assert after["codes"][0] != code, after["reasons"][0]
    if case.then is not None:
        assert after["verdict"] == case.then, after["reasons"]
    if case.done is _stated:
        assert after["verdict"] == document["advice"]["offers"][0]["verdict"]


def test_each_warning_with_a_step_has_a_case() -> None:
    with_step = {entry.code for entry, _ in WARNINGS if entry.next_step}
    assert with_step == WARNED.keys() | (with_step & CASES.keys())


@pytest.mark.parametrize("code", WARNED)
def test_the_step_of_a_warning_takes_it_away(code: str) -> None:
    make, says, done = WARNED[code]
    pair = EvaluationPair()
    make(pair)
    document = judged(pair)
    assert code in document["codes"]
    assert says in " ".join(document["advice"]["sentences"])
    done(pair, document)
    after = judged(pair)
    assert code not in after["codes"]
    assert after["verdict"] == "pass"
