"""Every code has a next step that some test carries out, or a reason why there is none."""

from parity.judging.codes import BY_CODE
from tests.parity.judging.evaluations import test_next_step_of_each_code as held_out
from tests.parity.judging.verdict import test_next_step_of_each_check as checks
from tests.parity.judging.verdict import test_next_step_of_each_code as training
from tests.parity.judging.verdict import test_next_step_of_each_warning as warnings

NOT_CARRIED_OUT = {
    "IDENTICAL": "a pass",
    "WITHIN_MARGIN": "a pass",
    "RUNS_TRUNCATED": "it says where the runs end; the gap needs nothing",
}


def test_each_code_has_a_step_that_is_carried_out_or_a_reason() -> None:
    carried_out = {
        *training.CASES,
        *checks.CASES,
        *warnings.CASES,
        *held_out.CASES,
        *held_out.WARNED,
    }
    assert not carried_out & NOT_CARRIED_OUT.keys()
    assert carried_out | NOT_CARRIED_OUT.keys() == BY_CODE.keys()


def test_what_is_not_carried_out_has_no_step() -> None:
    assert not [code for code in NOT_CARRIED_OUT if BY_CODE[code].next_step]
