"""The four sentences and the strip: what each kind of verdict says, and that no number contradicts
the verdict.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge
from parity.report.answer import answer_words
from parity.report.facts import facts
from parity.report.formats.markdown import render_markdown
from parity.report.formats.terminal import MOST_LINES, plain_text
from parity.report.number_words import chance_words
from parity.report.view import training_view, view_of, views_of
from parity.report.words import words
from parity.wording import minus

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
Compare = Callable[..., EvaluationDocument]
NUMBER = r"[+-]\d\.\d{4}"
MARGIN = r"the margin 0\.0268 \(1 % of the loss\)"


@pytest.mark.parametrize(
    ("name", "lead", "measure", "interval"),
    [
        (
            "pass",
            r"You may switch to cand\.",
            r"It ends 0\.00\d\d nats (above|below) FP8, \d+ % of the margin\.",
            rf"below {MARGIN}\.",
        ),
        (
            "fail",
            r"Do not switch to cand\.",
            r"It ends 0\.0\d\d\d nats above FP8, 1\.\d times the margin\.",
            rf"above {MARGIN}\.",
        ),
        (
            "straddle",
            r"Do not decide on cand yet\.",
            r"It ends 0\.02\d\d nats above FP8, ",
            rf"across {MARGIN}\.",
        ),
        (
            "better",
            r"Do not decide on cand yet\.",
            r"It ends 0\.08\d\d nats below FP8, 3\.\d times",
            rf"below {MARGIN}\. cand is better ",
        ),
    ],
)
def test_a_gap_is_told_in_three_sentences(
    name: str, lead: str, measure: str, interval: str, documents: dict[str, Any]
) -> None:
    told = words(view_of(documents[name]))
    assert re.fullmatch(lead, told.lead)
    assert re.match(measure, told.measure), told.measure
    assert re.match(rf"95 % interval {NUMBER} to {NUMBER}: {interval}", told.interval), (
        told.interval
    )
    assert (
        told.line
        == f"{documents[name]['verdict'].upper()}: {told.lead} {told.measure} {told.interval}"
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "nan",
            (
                "cand has 2,000 NaN, infinite or blank losses, the first at step 0 and the last "
                "at the end of its run."
            ),
        ),
        ("empty", "Run 1 of cand has no steps."),
    ],
)
def test_without_a_gap_the_reason_is_the_measure(
    name: str, why: str, documents: dict[str, Any]
) -> None:
    told = words(view_of(documents[name]))
    assert why in told.measure
    assert told.interval == ""
    assert told.strip[3].value == "Not used"


def test_words_survive_the_network(documents: dict[str, Any]) -> None:
    for document in documents.values():
        assert words(view_of(json.loads(json.dumps(document)))) == words(view_of(document))


def test_an_unfinished_schedule_has_a_lead_of_its_own(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    told = words(view_of(judge_pair(make_run(), make_run(seed=2), planned_steps=4000).document()))
    assert told.lead == "No loss beyond the margin as of step 1,999; too early to switch."
    assert told.measure.startswith("As of step 1,999 it is ")
    assert told.strip[4].value == "A planned end"


def test_two_logs_at_the_end_of_their_plan_are_not_called_too_early(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    unstated = Policy(margin="1%")
    told = words(view_of(judge_pair(make_run(), make_run(seed=2), unstated).document()))
    assert "too early" not in told.lead
    assert told.strip[4].value == "A statement"


def test_without_a_gap_below_the_margin_nothing_is_said_of_it(compared: Compare) -> None:
    document = compared(tokens_per_step=8192.0, margin="0.5 nats")
    as_of = {**document, "codes": ["AS_OF"], "verdict": "inconclusive"}
    assert words(view_of(as_of)).lead.startswith("No loss beyond the margin as of ")
    unknown = {
        **as_of,
        "gap": {**document["gap"], "over_runs": None, "over_clusters": None, "judged": None},
    }
    assert words(view_of(unknown)).lead == "Do not decide on NVFP4 yet."
    assert words(view_of({**as_of, "margin": None})).lead == "Do not decide on NVFP4 yet."


@pytest.mark.parametrize(
    ("gap", "lead"),
    [
        (0.0, "cand trains as base does."),
        (0.1, "cand does not train as base does."),
        (0.0267, "It is open whether cand trains as base does."),
    ],
)
def test_two_revisions_of_one_recipe_are_not_switched(
    gap: float, lead: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = make_run(recipe="nvfp4"), make_run(seed=2, gap=gap, recipe="nvfp4")
    assert words(view_of(judge_pair(base, cand, baseline_name="base").document())).lead == lead


@pytest.fixture
def revisions(make_run: MakeRun, one_percent: Policy) -> Callable[..., Any]:
    """Words of a head against its base, two runs each of one recipe that nobody stated."""

    def told(
        policy: Policy = one_percent,
        digits: int = 9,
        gap: float | None = None,
        compares: Any = "revision",
        **context: str,
    ) -> Any:
        base = [
            curve_from_arrays(run.steps, run.loss.round(digits), seed=seed)
            for seed, run in enumerate([make_run(), make_run(seed=2, batch_seed=1)])
        ]
        own = [make_run(seed=5), make_run(seed=6, batch_seed=1)]
        losses = [run.loss for run in base] if gap is None else [run.loss + gap for run in own]
        head = [
            curve_from_arrays(range(2000), loss, seed=seed, context=context)
            for seed, loss in enumerate(losses)
        ]
        base = [replace(run, context=dict.fromkeys(context, "other")) for run in base]
        (verdict,) = judge(
            base,
            {"head": head},
            policy,
            planned_steps=2000,
            baseline_name="base",
            compares={"head": compares},
        )
        return words(view_of(verdict.document()))

    return told


@pytest.mark.parametrize("compares", ["revision", "environment"])
def test_equal_runs_have_sentences_of_their_own(
    compares: str, revisions: Callable[..., Any]
) -> None:
    told = revisions(compares=compares)
    assert (told.verdict, told.lead) == ("pass", "head trains as base does.")
    assert told.measure == "Its 2 runs are equal to base's at every one of 2,000 steps."
    assert told.interval == "The gap is zero: no run-to-run noise is in it."
    assert "0.0001 nats" in revisions(digits=4, compares=compares).interval
    assert [fact.value for fact in told.strip[3:]] == ["Not used", "Nothing likely"]
    assert (told.why, told.next) == ("", "")


@pytest.mark.parametrize(
    ("gap", "lead"),
    [
        (0.0, "head trains as base does."),
        (0.1, "head does not train as base does."),
        (0.0267, "It is open whether head trains as base does."),
        (-0.1, "head trains better than base does: look for the reason first."),
    ],
)
def test_a_revision_is_not_switched_to(
    gap: float, lead: str, revisions: Callable[..., Any]
) -> None:
    told = revisions(gap=gap)
    assert told.lead == lead
    assert told.measure.startswith("It ends ")


def test_equal_runs_that_do_not_pass_say_why(revisions: Callable[..., Any]) -> None:
    as_of = revisions(Policy(margin="1%"))
    assert as_of.lead == "No loss beyond the margin as of step 1,999; was that the end?"
    accepted = revisions(Policy(margin="1%", as_of="accept"))
    assert accepted.lead == "head trains as base does, as of step 1,999."
    confounded = revisions(device_class="h100")
    assert (confounded.verdict, confounded.lead) == (
        "inconclusive",
        "It is open whether head trains as base does.",
    )
    assert "equal to base's" in confounded.measure
    assert "device_class (base: other, head: h100)" in confounded.interval


def test_a_candidate_with_a_baseline_of_its_own_is_named_with_it(
    make_run: MakeRun, one_percent: Policy
) -> None:
    arms = {"head": [make_run(seed=2)], "head-nvfp4": [make_run(seed=3, gap=0.1)]}
    verdicts = judge(
        [make_run()],
        arms,
        one_percent,
        planned_steps=2000,
        baseline_name="base",
        against={"head-nvfp4": "head"},
    )
    documents = [verdict.document() for verdict in verdicts]
    lead = answer_words(views_of(documents)).lead
    assert lead.startswith("head-nvfp4 against head fails.")
    assert "nats above head" in words(view_of(documents[1])).measure
    assert " ".join(plain_text(documents).split()).count(lead) == 1


def fail_at_the_policys_confidence_alone(make_run: MakeRun, policy: Policy) -> VerdictDocument:
    """A fail of one of eight candidates whose interval for a pass would cross the margin."""
    for gap in [0.040 + 0.0005 * number for number in range(20)]:
        runs = {name: [make_run(seed=2, gap=gap, recipe="fp8_current")] for name in "abcdefgh"}
        document = judge([make_run(recipe="fp8_current")], runs, policy, planned_steps=2000)[
            0
        ].document()
        recorded, margin = document["gap"], document["margin"]
        if document["verdict"] == "fail" and recorded and margin:
            assert recorded["lo"] < margin["nats"]
            return document
    pytest.fail("no gap is a fail at 95 % alone")


def test_a_fail_of_a_shared_error_shows_the_interval_that_decided(
    make_run: MakeRun, one_percent: Policy
) -> None:
    document = fail_at_the_policys_confidence_alone(make_run, one_percent)
    recorded, margin = document["gap"], document["margin"]
    assert recorded is not None
    assert margin is not None
    decided = recorded["deciding"]
    assert (decided["level"], decided["one_sided"]) == (0.95, True)
    assert [decided["lo"], decided["hi"]] == recorded["ci95"]
    assert margin["nats"] < decided["lo"]
    assert words(view_of(document)).interval.startswith("95 % interval +")
    assert "above the margin" in words(view_of(document)).interval


def test_a_fail_of_an_earlier_judge_shows_the_interval_at_the_policys_confidence(
    make_run: MakeRun, one_percent: Policy
) -> None:
    document = fail_at_the_policys_confidence_alone(make_run, one_percent)
    assert document["gap"] is not None
    earlier: Any = {
        **document,
        "gap": {key: value for key, value in document["gap"].items() if key != "deciding"},
    }
    assert words(view_of(earlier)) == words(view_of(document))


@pytest.mark.parametrize(
    ("chance", "said"),
    [(0.004, "<3 %"), (0.031, "3 %"), (0.618, "62 %"), (0.966, "97 %"), (0.9999, ">97 %")],
)
def test_the_chance_of_parity_of_an_open_verdict_ends_at_3_and_97_percent(
    chance: float, said: str, documents: dict[str, Any]
) -> None:
    document = {**documents["straddle"], "chance_of_parity": chance}
    assert chance_words(view_of(document)) == said
    assert any(
        said in value and "equally likely beforehand" in value
        for name, value in facts(training_view(document))
        if name == "chance of parity"
    )


def test_a_decided_verdict_has_no_chance_of_parity(documents: dict[str, Any]) -> None:
    assert 0.3 < documents["straddle"]["chance_of_parity"] < 0.9
    assert not any("chance_of_parity" in documents[name] for name in ("pass", "fail", "nan"))


def test_evaluations_name_their_point_and_both_intervals(compared: Compare) -> None:
    document = compared(
        cluster="system", target=3.34, tokens_per_step=8192.0, timed=True, margin="0.5 nats"
    )
    told = words(view_of(document))
    over_runs, over_clusters = document["gap"]["over_runs"], document["gap"]["over_clusters"]
    assert over_runs
    assert over_clusters
    assert told.measure.startswith(
        "As of 1.3 B tokens (mean of 3 points) it is "
    ) or told.measure.startswith("It ends ")
    ends = [minus(f"{over_clusters[key]:+.4f}") for key in ("lo", "hi")]
    assert minus(told.interval).startswith(
        f"95 % interval over 6 systems {ends[0]} to {ends[1]}: below the margin 0.5000."
    )
    assert (
        f"Over 14 runs {over_runs['lo']:+.4f} to {over_runs['hi']:+.4f}: below it." in told.interval
    )


def _text(document: Any, *, verbose: bool = False) -> str:
    return plain_text([document], verbose=verbose)


def test_the_sentences_stand_verbatim_on_terminal_and_comment(documents: dict[str, Any]) -> None:
    for document in documents.values():
        told = words(view_of(document))
        terminal = " ".join(_text(document).split())
        comment = render_markdown([document])
        for sentence in (told.lead, told.measure, told.interval):
            assert minus(sentence) in terminal
            assert minus(sentence) in comment


def test_a_verdict_has_at_most_15_lines_of_80_columns(documents: dict[str, Any]) -> None:
    for document in documents.values():
        lines = _text(document).rstrip("\n").split("\n")
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= 80
        assert len(_text(document, verbose=True).split("\n")) > MOST_LINES


def cut_pair(
    make_run: MakeRun, policy: Policy, candidate_steps: int, baseline_steps: int = 2000
) -> VerdictDocument:
    """A verdict on a candidate that is hardly worse, whose log may end before the baseline's."""
    (verdict,) = judge(
        [make_run(baseline_steps, recipe="fp8_current")],
        {"mxfp8": [make_run(candidate_steps, seed=2, gap=0.0265, recipe="mxfp8")]},
        policy,
        planned_steps=2000,
        baseline_name="fp8",
    )
    return verdict.document()


@pytest.mark.parametrize(
    ("candidate_steps", "baseline_steps", "end"),
    [
        (1200, 2000, "where mxfp8's log ends (fp8's: 1,999),"),
        (2000, 1200, "where fp8's log ends (mxfp8's: 1,999),"),
        (1200, 1200, ""),
        (1995, 2000, ""),  # as good as reached
    ],
)
def test_a_log_that_ends_before_the_others_is_named_in_the_first_lines(
    make_run: MakeRun, one_percent: Policy, candidate_steps: int, baseline_steps: int, end: str
) -> None:
    document = cut_pair(make_run, one_percent, candidate_steps, baseline_steps)
    told = words(view_of(document))
    assert ("log ends" in told.measure) == bool(end)
    assert end in told.measure
    asks = [one for one in document["advice"]["sentences"] if one.startswith("Give the rest of")]
    assert bool(asks) == bool(end)
    if end:
        assert document["advice"]["sentences"].index(asks[0]) == len(document["advice"]["offers"])
