"""The next step of `parity.compare` is the whole call: as it stands, it does what it says."""

import re

import numpy as np
import pytest

import parity
from parity.comparing.comparison import Comparison
from parity.judging.codes import BY_CODE, ReasonCode
from parity.report.next_steps import in_arguments
from tests.parity.conftest import DATA

CURVES = DATA.parents[1] / "examples" / "curves"


def carried_out(result: Comparison, **known: object) -> Comparison:
    """What the call of the next step returns."""
    call = re.search(r"`(parity\.compare\(.*\))`", result.next[0])
    assert call
    found = eval(call[1], {"parity": parity, **known})  # noqa: S307
    assert isinstance(found, Comparison)
    return found


def test_the_call_is_whole_for_files_with_the_options_that_were_given() -> None:
    base, cand = CURVES / "fp8.csv", CURVES / "mxfp8.csv"
    result = parity.compare(base, cand, margin="1%", names=("a", "b"))
    assert result.verdict == "inconclusive"
    assert 'margin="1%", names=("a", "b"), planned_steps=1500' in result.next[0]
    assert carried_out(result).verdict == "pass"
    assert "planned_steps=1500" in result.report()
    assert "all numbers: .report(verbose=True)" in " ".join(result.report().split())
    assert "planned_steps=1500" in repr(result)
    assert "parity.compare(" in result._repr_html_()


def test_data_in_memory_is_named_by_its_parameter_and_what_is_stated_by_arm_is_joined() -> None:
    """One rounding is stated; the other one is added to it."""
    steps = np.arange(2000)
    law = 2.5 + 8.0 * (steps + 1.0) ** -0.5 + np.random.default_rng(0).normal(0.0, 0.08, 2000)
    own = np.random.default_rng(1).normal(0.0, 0.004, 2000)
    base, candidate = ({"step": steps, "loss": loss} for loss in (law, law + own))
    result = parity.compare(
        base,
        candidate,
        margin="0.38%",
        planned_steps=2000,
        schedule="decayed",
        rounding={"baseline": "nearest"},
    )
    assert result.verdict == "inconclusive"
    assert "parity.compare(base, candidate, " in result.next[0]
    assert 'rounding={"baseline": "nearest", "candidate": "nearest"}' in result.next[0]
    assert carried_out(result, base=base, candidate=candidate).verdict == "pass"


@pytest.mark.parametrize(
    "entry",
    [entry for entry in BY_CODE.values() if "--" in (entry.next_step or "")],
    ids=lambda entry: entry.code,
)
def test_a_step_in_options_has_arguments_in_python(entry: ReasonCode) -> None:
    assert "--" not in in_arguments(entry.next_step or "--")
