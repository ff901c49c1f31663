"""docs/planning.md: its commands print what the page shows, and its table of claims is that of today's judge."""

import re

import pytest

from tools.planning_page import ASSUMED, CLAIMS, PAGE, RERUNS_8B, TABLE, Claim, answer, any_decoder, half_width, written
from tools.public_verdicts import ROOT, run

CLAIM = Claim(work="x", scale="y", recipes=("bf16", "nvfp4"), source="z", share=0.006)


def test_the_page_holds_what_the_commands_print_today():
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python -m tools.planning_page"


def test_the_first_commands_of_the_page_run():
    block = re.search(r"```sh\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
    commands = block.splitlines()
    assert len(commands) == 2
    for command in commands:
        assert "decide a margin" in " ".join(run(command).split())


def test_the_half_widths_in_the_text_are_those_of_the_judge():
    page = PAGE.read_text(encoding="utf-8")
    assert f"half-width of {100 * half_width(CLAIM, ASSUMED):.2f} %" in page
    eight = half_width(CLAIM, RERUNS_8B)
    assert eight == pytest.approx(2.03 * (0.00175**2 + 0.002**2) ** 0.5, rel=0.02), "t of 38 degrees of freedom"
    assert half_width(CLAIM, ASSUMED, any_decoder()) < half_width(CLAIM, ASSUMED) < eight


@pytest.mark.parametrize(
    ("share", "half", "words"),
    [
        (0.006, 0.008, "not told from 0; open at 0.5 %, open at 1.0 %"),
        (0.006, 0.002, "differs from 0; open at 0.5 %, below 1.0 %"),
        (0.015, 0.002, "differs from 0; above 0.5 %, above 1.0 %"),
        (-0.003, 0.002, "differs from 0; below 0.5 %, below 1.0 %"),
    ],
)
def test_an_answer_names_0_and_each_margin(share, half, words):
    assert answer(Claim(work="x", scale="y", recipes=("bf16", "nvfp4"), source="z", share=share), half).endswith(words)


def test_a_gap_without_a_loss_is_answered_for_the_loss():
    assert "below 5.0 nats" in answer(Claim(work="x", scale="y", recipes=("bf16", "nvfp4"), source="z", nats=0.05), 0.01)


def test_each_claim_has_a_gap_and_a_source():
    assert len({claim.source for claim in CLAIMS}) >= 5
    assert all((claim.share is None) != (claim.nats is None) for claim in CLAIMS)


def test_the_example_table_says_that_it_is_invented():
    rows = (ROOT / TABLE).read_text(encoding="utf-8").splitlines()[1:]
    assert all("invented" in row for row in rows)
