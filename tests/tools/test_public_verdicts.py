"""Each set of examples/public is answered as allowed; picture and bundle have today's answers."""

import csv
import json
import re
from collections import Counter

import pytest
import yaml

from parity.report.view import view_of
from parity.report.words import words
from parity.wording import minus
from tools.public_verdicts.answers_in_words import grouped
from tools.public_verdicts.expected import expected, holds
from tools.public_verdicts.ladders import ladder, ladders
from tools.public_verdicts.page import NOT_VERIFIED
from tools.public_verdicts.sets import SETS, answers, sets
from tools.public_verdicts.systems import BUNDLE, PICTURE, systems, without
from tools.tables.generated import DOCS, ROOT
from tools.tables.printed import run

PAGE = DOCS / "public-verdicts.md"
MOST_BYTES = 3_000_000


def table(name):
    """The rows of a table of the sets."""
    with (SETS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_question_is_answered_as_allowed():
    assert {(answer.of.name, answer.question) for answer in answers()} == set(expected())
    wrong = [
        f"{answer.place}: {answer.word} {answer.document['codes'][0]}"
        for answer in answers()
        if not holds(answer)
    ]
    assert len(wrong) <= 1
    assert not [
        answer.place
        for answer in answers()
        if not holds(answer) and answer.word in ("pass", "fail")
    ]


def test_the_picture_and_the_bundle_have_the_answer_of_today():
    (answer,) = (
        answer
        for answer in answers()
        if answer.place.endswith("llama31-8b/parity.yaml:one-percent")
    )
    assert minus(words(view_of(answer.document)).line) in PICTURE.read_text(encoding="utf-8"), (
        "run python -m tools.public_verdicts --bundle"
    )
    assert run(f"parity verify {BUNDLE}").startswith("identical"), (
        "run python -m tools.public_verdicts --bundle"
    )


def test_a_set_has_its_source_and_only_numbers():
    files = [path for path in SETS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    for one in sets():
        missing = {
            "title",
            "model",
            "parameters",
            "trained",
            "hardware",
            "source",
            "licence",
            "precision",
            "differs",
        } - set(one.about)
        assert not missing, one.name
        assert re.match(r"MIT|Apache-2\.0", one.about["licence"]), one.name
        assert one.about.get("mlperf", False) == ("mlcommons/" in one.about["source"]), one.name
    assert {path.suffix for path in files} == {".csv", ".yaml", ".zip"}


def test_no_set_of_an_unseen_licence_ships():
    page = PAGE.read_text(encoding="utf-8")
    assert not list(SETS.glob("*marin*"))
    assert "marin-community" in page


def test_mlperf_sets_are_not_verified():
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(NOT_VERIFIED) == sum(bool(one.about.get("mlperf")) for one in sets())


def test_no_system_of_the_first_set_ran_both_precisions_and_the_gap_stays_above_zero_without_each():
    rows = table("llama31-8b/curves.csv")
    assert len({(row["system"], row["precision"]) for row in rows}) == len(systems()) == 6
    seeds = Counter({(row["system"], row["run"], row["seed"]) for row in rows})
    assert len(seeds) == len({seed for _, _, seed in seeds}) == 60
    for system in systems():
        assert without(system)["gap"]["over_runs"]["lo"] > 0.0


def test_a_ladder_ends_where_its_sizes_end():
    for rungs in ladders():
        assert len(rungs.sizes) >= 3
        low, high = rungs.predicted(rungs.sizes[-1])
        assert low < rungs.gaps[-1] < high
        for outside in (rungs.sizes[0] / 1.01, rungs.sizes[-1] * 1.01):
            with pytest.raises(ValueError, match="expected one between"):
                rungs.predicted(outside)


def test_a_prediction_interval_is_that_of_the_textbook():
    """With points 0, 1, 2 decades and values 0, 3, 0: slope 0, mean 1, residual variance 6, so 1 +-
    12.7062 sqrt(6 (1 + 1/3 + 1/2)).
    """

    made = ladder("made", [(1.0, 0.0), (10.0, 3.0), (100.0, 0.0)])
    assert made.predicted(100.0) == pytest.approx(
        (1 - 12.7062 * (6 * (1 + 1 / 3 + 1 / 2)) ** 0.5, 1 + 12.7062 * (6 * 11 / 6) ** 0.5),
        rel=1e-4,
    )


def test_questions_with_several_sizes_have_one_verdict():
    assert [len(group) for group in grouped() if len(group) > 1] == [4, 6, 3]


def test_the_times_that_were_made_follow_from_the_facts():
    stops = {
        (row["arm"], row["run"]): row
        for row in table("llama31-8b-mi355x/runs.csv")
        if row["minutes_at_stop"]
    }
    for row in table("llama31-8b-mi355x/times.csv"):
        stop = stops.pop((row["arm"], row["run"]))
        assert row["minutes_to_target"] == stop["minutes_at_stop"]
        assert float(row["step_seconds"]) == pytest.approx(
            60 * float(stop["minutes_at_stop"]) / int(stop["evaluation"]), abs=1e-3
        )
    assert not stops
    assert (
        "times.csv"
        in yaml.safe_load((SETS / "llama31-8b-mi355x" / "parity.yaml").read_text())["about"]["made"]
    )


def test_the_packaged_page_has_no_script_and_no_style():
    packaged = ROOT / "server" / "pages" / "public.json"
    content = json.loads(packaged.read_text(encoding="utf-8"))
    screens = [row["screen"] for row in content["answers"] if row["screen"]]
    assert len(screens) == len(grouped())
    assert not [
        screen
        for screen in screens
        if "<script" in screen or "style=" in screen or "onclick" in screen
    ]
