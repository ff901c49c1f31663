"""docs/public-verdict.md: its figures, its picture and its bundle are those of today's judge, and the sentences around them are true."""

import re

import pytest

from parity.report.words import words
from parity.wording import minus
from tools.public_verdict import BUNDLE, EXAMPLE, PAGE, PARTS, PICTURE, ROOT, judged, other_than, run, systems, table_rows, written


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.name)
def test_the_page_holds_what_the_command_gives_today(path):
    page = path.read_text(encoding="utf-8")
    assert written(path, page) == page, "run python -m tools.public_verdict"


def test_the_picture_has_the_answer_of_today():
    assert minus(words(judged()).line) in PICTURE.read_text(encoding="utf-8"), "run python -m tools.public_verdict"


def test_the_bundle_gives_the_same_verdict_again():
    assert run(f"parity verify {BUNDLE}").startswith("identical")


def test_the_sentences_of_the_page_hold():
    document, page = judged(), PAGE.read_text(encoding="utf-8")
    base, cand = document["baseline"], document["candidate"]
    assert f"{len(base['runs']) + len(cand['runs'])} public training runs" in page
    assert f"{len(base['runs'])} in FP8 and {len(cand['runs'])} in NVFP4" in page
    assert document["gap"]["over_clusters"]["baseline"] == 2
    assert document["gap"]["over_clusters"]["candidate"] == 4
    assert document["gap"]["over_clusters"]["lo"] > 0.0
    assert (document["verdict"], document["codes"][0]) == ("inconclusive", "CI_STRADDLES_MARGIN")
    assert "AS_OF" in document["codes"]
    assert document["as_of"]["points"] == [135168, 147456, 159744]
    assert base["spread"]["rel"] > base["spread"]["assumed_rel"]
    assert cand["spread"]["rel"] < cand["spread"]["assumed_rel"]
    for system in systems():
        assert judged(other_than(system))["gap"]["over_runs"]["lo"] > 0.0


def test_no_system_ran_both_precisions_and_each_seed_is_one_run():
    rows = table_rows("curves.csv")
    assert len({(row["system"], row["precision"]) for row in rows}) == len({row["system"] for row in rows}) == 6
    seeds = {(row["system"], row["run"]): row["seed"] for row in rows}
    assert len(set(seeds.values())) == len(seeds) == 60


@pytest.mark.parametrize("path", [*PARTS, ROOT / EXAMPLE / "README.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_source_does_not_stand_behind_the_comparison(path):
    assert re.search(r"not verified by MLCommons", path.read_text(encoding="utf-8"), re.IGNORECASE)
