"""What a page says to do about the code of a run or a job: each remedy is a sentence, and all that
it tells somebody to type or to set is there.
"""

import dataclasses
import importlib.util
import re
import shlex
import typing
from collections.abc import Callable
from typing import Any

import pytest
import typer

from parity.cli.application import app
from parity.judging.policy import policy_from_mapping
from server.run_codes import RUN_CODES, remedy_of
from server.settings import CHECKOUT, Settings
from tests.setting_readers import variable, variables_named
from training.spec import JobSpec
from workers.commands.launchers import Launcher

# What others define: an option of Slurm's sbatch, and the ends of files.
FOREIGN_WORDS = {"--requeue", ".npy", ".bin"}
QUOTED = [
    (code, words)
    for code, entry in RUN_CODES.items()
    for words in re.findall("`([^`]+)`", entry.next_step)
]


def is_typed(words: str) -> bool:
    """Whether this begins as a command does."""
    return words.startswith(("parity ", "python "))


def is_command(words: str) -> bool:
    """Whether the command line takes this as a whole command."""
    program, *arguments = shlex.split(words)
    if program == "python":
        flag, module = arguments
        return flag == "-m" and importlib.util.find_spec(module) is not None
    command: Any = typer.main.get_command(app)
    if program != "parity":
        return False
    context: Any = None
    while hasattr(command, "get_command"):
        context = command.context_class(command, info_name="parity", parent=context)
        command = command.get_command(context, arguments.pop(0))
    return command is not None and bool(command.make_context("parity", arguments, parent=context))


def is_variable(words: str) -> bool:
    """Whether the service reads a variable of this name."""
    if not words.startswith("PARITY_"):
        return False
    settings = {variable(name) for name in Settings.model_fields}
    return words in settings | variables_named("workers.app", "server.app")


def has_field(root: type, words: str) -> bool:
    """Whether a path of names leads through dataclasses from this one."""
    kind: Any = root
    for name in words.partition(":")[0].split("."):
        kinds = [kind, *typing.get_args(kind)]
        owner = next((one for one in kinds if dataclasses.is_dataclass(one)), None)
        if owner is None or name not in {field.name for field in dataclasses.fields(owner)}:
            return False
        kind = typing.get_type_hints(owner)[name]
    return True


def is_policy(words: str) -> bool:
    """Whether this is a line that a policy takes."""
    key, _, value = words.partition(": ")
    try:
        return bool(policy_from_mapping({"margin": "1 %", key: value}))
    except ValueError:
        return False


KINDS: dict[str, Callable[[str], bool]] = {
    "a command": is_command,
    "a variable": is_variable,
    "a field of a job": lambda words: has_field(JobSpec, words),
    "a field of a launcher": lambda words: has_field(Launcher, words),
    "a line of a policy": is_policy,
    "a file": lambda words: "/" in words and (CHECKOUT / words).is_file(),
    "of others": FOREIGN_WORDS.__contains__,
}


@pytest.mark.parametrize("code", sorted(RUN_CODES))
def test_every_code_has_a_remedy_that_is_a_sentence_without_links(code: str) -> None:
    remedy = remedy_of(code)
    assert remedy[0].isupper() or not remedy[0].isalpha()
    assert remedy.endswith(".")
    assert "](" not in remedy


@pytest.mark.parametrize(("code", "words"), QUOTED)
def test_what_a_remedy_tells_to_type_or_to_set_is_there(code: str, words: str) -> None:
    if is_typed(words):
        assert is_command(words), code
    else:
        assert any(holds(words) for name, holds in KINDS.items() if name != "a command"), code


def test_every_kind_is_told_somewhere_and_no_name_of_others_is_left_over() -> None:
    told = [words for _, words in QUOTED]
    for name, holds in KINDS.items():
        of_this_kind = [words for words in told if is_typed(words) == (name == "a command")]
        assert any(map(holds, of_this_kind)), name
    assert set(told) >= FOREIGN_WORDS


@pytest.mark.parametrize(
    "words",
    ["PARITY_NO_SUCH", "data.no_such", "early_stop: sometimes", "no/such/file", "--no-such"],
)
def test_what_is_not_there_would_be_found(words: str) -> None:
    assert not any(holds(words) for name, holds in KINDS.items() if name != "a command")


@pytest.mark.parametrize("words", ["parity resend", "parity runs conclude", "parity doctor --no"])
def test_a_command_that_lacks_something_or_has_too_much_is_found(words: str) -> None:
    with pytest.raises(Exception, match=r"Missing parameter|No such option"):
        is_command(words)


def test_a_code_without_an_entry_has_none() -> None:
    assert remedy_of("NO_SUCH_CODE") == ""
