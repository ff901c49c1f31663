"""Groups of options: their fields become options of a command, each in its place."""

import inspect
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from parity.cli.terminal.help import CommandWithExample
from parity.cli.terminal.options import Options, argument, flag, flat, option, refuse, repeatable
from parity.cli.terminal.wrong_calls import UsageError


class Size(Options, panel="Sizes"):
    """Sizes of a run."""

    steps: int | None = option(None, "Number of steps.", "N", min=1)
    seeds: list[str] = repeatable("A seed; repeatable.", "SEED", "--seed")
    quick: bool = flag("--quick", "Fewer of both.", rich_help_panel="Speed")
    known: str = "not an option"


class Larger(Size):
    """A size with one more option, and other words for one that it has."""

    steps: int | None = option(7, "Many steps.", "N")
    warm_up: float = option(0.5, "Share of the warm-up.", "SHARE")


@flat
def train(
    name: Annotated[str, argument("NAME", "Name of the run.")],
    size: Annotated[Larger, ("steps", "seeds")],
    speed: str = option("fast", "How fast.", "WORD"),
    *,
    rest: Annotated[Size, ("quick",)],
) -> int:
    """Train."""
    print(name, size.steps, size.seeds, size.warm_up, speed, rest.quick, rest.known)
    return 0


def test_the_options_of_a_group_stand_where_the_group_stood():
    assert list(inspect.signature(train).parameters) == ["name", "steps", "seeds", "speed", "quick"]
    app = typer.Typer(rich_markup_mode=None)
    app.command(cls=CommandWithExample)(train)
    text = CliRunner().invoke(app, ["--help"]).output
    assert [line for line in text.splitlines() if line.endswith(":")] == [
        "Arguments:",
        "Sizes:",
        "Speed:",
        "Options:",
    ]
    assert "Many steps" in text
    assert "Number of steps" not in text


def test_a_command_gets_its_groups_with_values_or_defaults():
    app = typer.Typer()
    app.command()(train)
    assert CliRunner().invoke(app, ["a"]).output == "a 7 [] 0.5 fast False not an option\n"
    words = ["a", "--steps", "3", "--seed", "1", "--seed", "2", "--quick", "--speed", "slow"]
    assert CliRunner().invoke(app, words).output == "a 3 ['1', '2'] 0.5 slow True not an option\n"


def test_options_that_were_given_are_named_as_they_are_typed():
    assert Size().given() == {}
    assert Size(known="stated").given() == {"known": "--known"}
    given = Larger(steps=0, seeds=["1"], quick=True, warm_up=0.1).given(
        "warm_up", "seeds", "quick", "steps"
    )
    assert list(given.values()) == ["--warm-up", "--seed", "--quick", "--steps"]
    refuse({}, "is not refused")
    with pytest.raises(UsageError, match="--seed needs a file"):
        refuse({"seeds": "--seed"}, "needs a file")
