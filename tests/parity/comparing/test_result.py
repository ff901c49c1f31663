"""What `parity.compare` returns: numbers, three lines, a notebook's HTML, a figure, and no truth
value.
"""

import html.parser
import json

import pytest

import parity
from parity.judging.policy import Amount


@pytest.fixture(scope="module")
def result(frames):
    return parity.compare(frames["fp8"], frames["nvfp4"], margin="1%", planned_steps=1500)


def test_the_numbers_are_those_of_the_document(result):
    document = result.to_dict()
    assert result.verdict == document["verdict"] == "fail"
    assert result.gap == document["gap"]["mean"]
    assert result.interval == (document["gap"]["lo"], document["gap"]["hi"])
    assert result.margin == document["margin"]["nats"]
    assert [reason.code for reason in result.reasons] == document["codes"]
    assert len(result.next) == len(document["advice"]["sentences"])
    json.dumps(document, allow_nan=False)
    document["verdict"], document["gap"]["mean"] = "pass", 0.0
    assert result.verdict == "fail"
    assert result.gap != 0.0


def test_the_repr_has_four_lines_at_most(result, frames):
    lines = repr(result).split("\n")
    assert len(lines) == 4
    assert lines[0] == "■ FAIL Do not switch to candidate."
    assert lines[1].startswith("As of step 1,499 it is 0.0")
    assert lines[3].startswith("Next: ")
    named = parity.compare(
        frames["fp8"],
        frames["mxfp8"],
        margin="1%",
        names=("a\nb", "x" * 5000),
        rounding="nearest",
        planned_steps=1500,
    )
    assert repr(named).count("\n") <= 3
    assert max(map(len, repr(named).split("\n"))) <= 300


def test_the_verdict_of_the_judge_has_a_short_repr(make_run, judge_pair):
    verdict = judge_pair(make_run(), make_run(seed=2, gap=0.2))
    assert repr(verdict).count("\n") == 0
    assert len(repr(verdict)) < 200


def test_a_comparison_has_no_truth_value(result):
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(result)


def test_a_notebook_shows_the_picture_without_a_script_and_without_a_network(result):
    page = result._repr_html_()
    assert "<svg" in page
    assert "GAP_EXCEEDS_MARGIN" in page
    for outside in ("<script", "http://", "href=", "src=", "@import", "url(", "style=", "onclick"):
        assert outside not in page
    html.parser.HTMLParser().feed(page)
    assert len(page) < 50_000


def test_names_cannot_write_html(frames):
    page = parity.compare(
        frames["fp8"], frames["nvfp4"], planned_steps=1500, names=("<b>a", "<script>x()")
    )._repr_html_()
    assert "<script" not in page
    assert "<b>a" not in page


def test_a_pair_without_a_common_step_is_shown_too(frames):
    late = frames["nvfp4"].assign(step=frames["nvfp4"]["step"] + 5000)
    empty = parity.compare(frames["fp8"], late, planned_steps=9000)
    assert (empty.verdict, empty.gap, empty.interval) == ("inconclusive", None, None)
    assert "no gap is judged" in empty._repr_html_()
    assert repr(empty)
    assert empty.report()


def test_the_report_is_that_of_the_command_line(result):
    assert result.report().startswith("■ FAIL")
    assert max(map(len, result.report().splitlines())) <= 80


def test_the_figure_is_a_matplotlib_figure_of_the_pages_picture(result):
    figure = result.figure()
    plot, judged = figure.axes
    assert "judged" in plot.texts[0].get_text()
    assert "verdict" in [text.get_text() for text in judged.texts]
    assert "FAIL" in figure.texts[0].get_text()


def test_amounts_of_a_policy_may_be_text():
    policy = parity.Policy(
        margin="1%",
        candidate_run_noise="0.3 %",
        baseline_run_noise=Amount(value=0.001, unit="relative"),
    )
    assert policy.margin == Amount(value=0.01, unit="relative")
    assert policy.candidate_run_noise == Amount(value=0.003, unit="relative")
    assert parity.policy_from_mapping(policy.document()) == policy
