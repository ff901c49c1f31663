"""The command line as a whole: help, version, and a call without a verb."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from parity.cli.application import app
from parity.cli.command_table import Commands
from parity.cli.terminal.help import Group
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.policy import PROFILES
from parity.recipes import RECIPES
from parity.version import VERSION

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[3]


def _commands(command: Any, context: Any) -> Iterator[tuple[list[str], Any]]:
    """Every command with its words, groups included."""
    yield context.command_path.split()[1:], command
    for name in command.list_commands(context) if isinstance(command, Group) else ():
        below = command.get_command(context, name)
        yield from _commands(below, below.context_class(below, info_name=name, parent=context))


def _every_command() -> list[tuple[list[str], Any]]:
    whole = typer.main.get_command(app)
    return list(
        _commands(whole, whole.context_class(whole, info_name="parity", **whole.context_settings))
    )


def test_the_first_help_names_every_exit_code(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for name, number in EXIT_CODES.items():
        assert f"{number} {name}" in " ".join(out.split())


def test_the_first_help_fits_a_screen_and_the_other_has_every_command(run: Run) -> None:
    short, whole = (run(option)[1] for option in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 24
    assert re.findall(
        r"^  (\w+) ", short.partition("First commands:")[2].partition("Options:")[0], re.MULTILINE
    ) == [*Commands.first]
    assert short.splitlines()[-3].startswith("Exit codes: ")
    listed = re.findall(r"^  ([a-z-]+)  ", whole, re.MULTILINE)
    assert set(Commands.places) <= set(listed)


@pytest.mark.parametrize(
    ("words", "command"),
    _every_command(),
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_option_that_matters_has_a_group(words: list[str], command: Any, run: Run) -> None:
    _, _, rest = run(*words, "--help")[1].partition("\nOptions:\n")
    assert set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", rest, re.MULTILINE)) <= {
        "--help",
        "--help-all",
        "--version",
    }


def test_the_help_lists_the_known_recipes_and_what_margin_a_profile_sets(run: Run) -> None:
    for command in ("compare", "plan", "calibrate"):
        words = set(re.split(r"[\s,.:]+", run(command, "--help")[1]))
        assert words.issuperset(RECIPES), command
    for command, option in (("compare", "--help-all"), ("plan", "--help")):
        text = " ".join(run(command, option)[1].split())
        for name, amount in PROFILES.items():
            assert amount is None or f"{name} ({amount})".replace(" %", "%") in text, (
                command,
                name,
            )


def test_the_help_of_compare_shows_what_most_need_and_every_option_if_asked(run: Run) -> None:
    few, every = (
        set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", run("compare", option)[1], re.MULTILINE))
        for option in ("-h", "--help-all")
    )
    command = next(command for words, command in _every_command() if words == ["compare"])
    assert every == {
        max(parameter.opts, key=len)
        for parameter in command.params
        if parameter.param_type_name == "option"
    } | {"--help"}
    assert {"--recipe", "--planned-steps", "--margin", "--help-all"} <= few < every
    assert len(few) <= 15


@pytest.mark.parametrize(
    ("words", "command"),
    _every_command(),
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_help_is_readable_and_has_an_example_that_parses(
    words: list[str], command: Any, run: Run
) -> None:
    code, out, err = run(*words, "-h")
    assert (code, err) == (0, "")
    assert run(*words, "--help")[1] == out
    assert max(map(len, out.splitlines())) <= 80
    for unwanted in ("<", "Default: ", "default: None", "...\n", "$None"):
        assert unwanted not in out.replace("CAND...]", "").replace("RUN...", "").replace(
            "SPOOL...", ""
        ).replace("FILE...", "")
    example = re.search(r"Example:\n  parity (.*)\n", out)
    assert example, out
    context, parsing, rest = None, typer.main.get_command(app), shlex.split(example[1])
    while isinstance(parsing, Group):
        # With its settings: without them a command would keep a help option that is not called -h.
        context = parsing.context_class(
            parsing, info_name=parsing.name, parent=context, **parsing.context_settings
        )
        _, parsing, rest = parsing.resolve_command(context, rest)
    assert parsing.name == command.name or isinstance(command, Group)
    parsing.make_context(parsing.name, rest, parent=context)


def test_no_summary_in_a_list_of_commands_is_cut(run: Run) -> None:
    for words, command in _every_command():
        if isinstance(command, Group):
            listed = " ".join(run(*words, "--help" if words else "--help-all")[1].split())
            context = command.context_class(command)
            for below in (
                command.get_command(context, name) for name in command.list_commands(context)
            ):
                assert below.help.split("\n")[0].split(". ")[0].rstrip(".") in listed


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["comprae", "a", "b"], "unknown command 'comprae'; did you mean compare?"),
        (["baseline", "promot"], "unknown command 'promot'; did you mean promote?"),
        (
            ["compare", "a", "b", "--planed-steps", "3"],
            "unknown option --planed-steps; did you mean --planned-steps?",
        ),
        (["foo"], "unknown command 'foo'; see `parity --help`"),
        (["frobnicate"], "unknown command 'frobnicate'; see `parity --help`"),
    ],
)
def test_a_misspelled_word_gets_the_right_one(words: list[str], hint: str, run: Run) -> None:
    assert run(*words) == (2, "", f"parity: {hint}\n")


def test_version_and_bare_call(run: Run) -> None:
    assert run("--version")[1] == f"parity {VERSION}\n"
    code, out, _ = run()
    assert code == EXIT_CODES["usage"]
    assert "compare" in out


def test_the_engines_version_is_the_packages() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
