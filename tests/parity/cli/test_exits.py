"""Exit codes: one meaning each, and never Python's own 1 for an error of ours."""

import pytest

from parity.cli import main
from parity.cli.compare import read_comparison
from parity.gate.exit_codes import EXIT_CODES, exit_code


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["pass"], 0), (["pass", "fail", "inconclusive"], 1), (["pass", "inconclusive"], 3), ([], 3)],
)
def test_several_verdicts_leave_with_the_worst(verdicts, code):
    assert exit_code([{"verdict": verdict} for verdict in verdicts]) == code


def test_every_code_means_one_thing():
    assert sorted(EXIT_CODES.values()) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_an_error_of_ours_is_no_fail_verdict(monkeypatch, capsys):
    monkeypatch.setattr(read_comparison, "read_arms", lambda *_: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a.csv", "b.csv"])
    assert ended.value.code == EXIT_CODES["infrastructure"]
    assert "ZeroDivisionError" in capsys.readouterr().err
