import re

from parity.judging.codes import BY_CODE
from parity.judging.policy import POLICY_CHECKS
from parity.judging.precedence import CHECKS, table
from tools.tables.reason_codes import reason_codes


def test_every_code_comes_once_with_its_meaning() -> None:
    codes = [entry.code for _, entry in table()]
    assert len(codes) == len(set(codes)) == len(BY_CODE)
    assert all(entry.means for entry in BY_CODE.values())
    text = reason_codes()
    assert [text.count(f"\n### {code}\n") for code in codes] == [1] * len(codes)
    deciding = [entry.code for state, entry in table() if state]
    assert re.findall(r"^\d+\. \[`(\w+)`\]", text, re.MULTILINE) == deciding


def test_a_remedy_stands_here_only_where_the_judge_has_none() -> None:
    assert [
        code for code, entry in BY_CODE.items() if bool(entry.next_step) == bool(entry.remedy)
    ] == []


def test_every_gate_of_a_policy_has_its_two_codes() -> None:
    assert set(CHECKS) == set(POLICY_CHECKS) - {"loss"}
