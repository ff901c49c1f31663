"""docs/plan.md: its outputs and its table are what the commands print today, and its further
commands run.
"""

from server.settings import CHECKOUT
from tests.documentation import run_by
from tools.plan_page import COMMANDS, MARGINS, PAGE, TABLE, cheapest, written
from tools.public_verdicts import run


def test_the_page_holds_what_the_commands_print_today():
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python -m tools.plan_page"


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
    rows = (CHECKOUT / TABLE).read_text(encoding="utf-8").splitlines()[1:]
    assert all("invented" in row for row in rows)
