"""What is printed as JSON."""

import json

import pytest

from parity.cli.terminal.output import print_json


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def test_numbers_that_are_not_finite_are_printed_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"b": [float("nan"), float("inf")], "a": {"low": -float("inf"), "high": 0.5}})
    printed = json.loads(capsys.readouterr().out, parse_constant=_refused)
    assert printed == {"a": {"low": "-inf", "high": 0.5}, "b": ["nan", "inf"]}
    assert list(printed) == ["a", "b"]
