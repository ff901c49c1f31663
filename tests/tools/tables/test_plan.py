"""docs/plan.md: all of its commands run, and its numbers agree with each other."""

from server.settings import CHECKOUT
from tests.documentation import run_by
from tools.tables.plan import COMMANDS, MARGINS, NOISE_TABLE, cheapest
from tools.tables.printed import run


def test_every_command_of_the_page_names_runs():
    commands = [line for block in run_by("docs/plan.md", __file__) for line in block.commands]
    assert len(commands) == len(COMMANDS) + 2
    for command in commands:
        assert "decide a margin" in " ".join(run(command).split()), command


def test_a_narrower_margin_never_needs_fewer_runs():
    needed = [sum(cheapest(margin, "nvfp4")) for margin in MARGINS]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


def test_the_example_table_says_that_it_is_invented():
    rows = (CHECKOUT / NOISE_TABLE).read_text(encoding="utf-8").splitlines()[1:]
    assert all("invented" in row for row in rows)
