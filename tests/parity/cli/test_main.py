"""The command line as a whole: help, version, and a call without a verb."""

import re
from collections.abc import Callable
from pathlib import Path

from parity.cli.exits import EXIT_CODES
from parity.version import VERSION

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[3]


def test_help_names_defaults_and_exit_codes(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for name, number in EXIT_CODES.items():
        assert f"{number} {name}" in " ".join(out.split())
    _, out, _ = run("compare", "--help")
    options = re.split(r"\n  (?=--)", out.split("Options:")[1])[1:]
    for option in options:
        assert re.search(r"[Dd]efault|further run|control|File whose|Print|Show this", " ".join(option.split())), option


def test_version_and_bare_call(run: Run) -> None:
    assert run("--version")[1] == f"parity {VERSION}\n"
    code, out, _ = run()
    assert code == EXIT_CODES["usage"]
    assert "compare" in out


def test_the_engines_version_is_the_packages() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
