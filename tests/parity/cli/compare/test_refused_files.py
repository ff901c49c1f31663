"""Each refusal of a file ends in whole commands, which were tried: typed as they stand, they read
all files of the command at once.
"""

import io
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from parity.cli.application import run
from parity.gate.exit_codes import EXIT_CODES
from tests.parity.readers.kinds.kind import LOSSES, lines
from tests.parity.readers.test_refusals import HOPELESS, TEXTS

PLAIN = lines("{s},{x}", "step,loss\n")
ANOTHER = {"tokens", "held-out losses alone"}
"""What no file of steps and training losses can be compared with."""
READ = {EXIT_CODES["pass"], EXIT_CODES["fail"], EXIT_CODES["inconclusive"]}
TABLE = "arm,tick,objective\n" + "".join(
    f"{arm},{at},{loss}\n" for arm in ("bf16", "fp8") for at, loss in enumerate(LOSSES)
)


class Typed:
    """Commands typed in a folder, with what comes on stdin."""

    def __init__(self, folder: Path, capsys, monkeypatch) -> None:
        self.folder, self._capsys, self._monkeypatch = folder, capsys, monkeypatch
        self.stdin = ""
        monkeypatch.chdir(folder)

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def __call__(self, *words: str) -> tuple[int, str]:
        stdin = io.TextIOWrapper(io.BytesIO(self.stdin.encode()))
        self._monkeypatch.setattr(sys, "stdin", stdin)
        code = run(words)
        return code, self._capsys.readouterr().err

    def commands(self, *words: str) -> Sequence[Sequence[str]]:
        """The commands in which the refusal of this one ends."""
        code, said = self(*words)
        assert code == EXIT_CODES["usage"], said
        assert not re.search(r"\bNAME\b|\bCOLUMN\b", said), said
        return [shlex.split(command)[1:] for command in re.findall(r"`(parity [^`]*)`", said)]


@pytest.fixture
def typed(tmp_path: Path, capsys, monkeypatch) -> Typed:
    return Typed(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize("name", TEXTS)
def test_two_files_of_one_shape_are_read_at_the_next_try(name: str, typed: Typed) -> None:
    file, text = TEXTS[name]
    files = [typed.write(f"{arm}-{file}", text) for arm in ("a", "b")]
    commands = typed.commands("compare", *files)
    assert commands
    for command in commands:
        assert typed(*command)[0] in READ, command


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - ANOTHER))
def test_a_file_beside_a_plain_one_is_read_at_the_next_try(name: str, typed: Typed) -> None:
    file, text = TEXTS[name]
    files = [typed.write("plain.csv", PLAIN), typed.write(file, text)]
    commands = typed.commands("compare", *files)
    assert commands
    for command in commands:
        assert typed(*command)[0] in READ, command


@pytest.mark.parametrize("name", sorted({*HOPELESS, *ANOTHER}))
def test_where_nothing_can_be_compared_no_command_is_said(name: str, typed: Typed) -> None:
    file, text = {**HOPELESS, **TEXTS}[name]
    files = [typed.write("plain.csv", PLAIN), typed.write(file, text)]
    assert not typed.commands("compare", *files)


@pytest.mark.parametrize(
    "name", ["both of other names", "a log of other words", "two runs", "nested names"]
)
@pytest.mark.parametrize("place", [0, 1])
def test_what_comes_on_stdin_is_read_at_the_next_try(name: str, place: int, typed: Typed) -> None:
    typed.stdin = TEXTS[name][1]
    files = [typed.write("plain.csv", PLAIN)]
    files.insert(place, "-")
    (command, *_) = typed.commands("compare", *files)
    assert typed(*command)[0] in READ


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "plain.csv", "other.csv", "--column", "loss=los"),
        ("compare", "plain.csv", "other.csv", "--column", "other.csv:loss=los"),
        ("compare", "plain.csv", "other.csv", "--column=other.csv:loss=los"),
        ("compare", "plain.csv", "b=other.csv", "--column", "step=loss"),
        ("compare", "table.csv"),
        ("compare", "table.csv", "--arm-by", "arm", "--baseline", "bf16"),
        ("plan", "--like", "odd.csv", "--planned-steps", "40"),
    ],
)
def test_a_command_says_what_to_type_in_its_place(words: Sequence[str], typed: Typed) -> None:
    typed.write("plain.csv", PLAIN)
    typed.write("other.csv", PLAIN.replace("step", "Step"))
    typed.write("odd.csv", PLAIN.replace("step,loss", "tick,objective"))
    typed.write("table.csv", TABLE)
    (command, *_) = typed.commands(*words)
    assert typed(*command)[0] != EXIT_CODES["usage"]
