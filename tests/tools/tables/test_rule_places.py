"""Where the page of codes says that a rule stands and that its numbers are measured."""

import pytest

from parity.judging.precedence import table
from tools.tables.rule_places import (
    measured_by,
    numbers_in_words,
    places_in_words,
    rules_of_codes,
)


def places(code: str) -> tuple[str, str]:
    """Where a code's rules stand, and where what they look at is measured, in words."""
    rules = rules_of_codes()[code]
    return places_in_words(rules), places_in_words(
        [function for rule in rules for function in measured_by(rule)]
    )


def test_every_code_has_the_place_of_a_rule() -> None:
    assert {entry.code for _, entry in table()} == set(rules_of_codes())


@pytest.mark.parametrize(
    ("code", "rule", "measured"),
    [
        # the rule calls what measures; reads a field of the measurements; of an arm; of a check
        ("LOSSES_DIFFER", "rules/inputs.py` (`losses_differ`", "reading.py` (`different_meanings`"),
        ("STEPS_SCALED", "comparability.py` (`steps_scaled`", "mismatch.py` (`find_mismatch`"),
        ("NONFINITE_CAND", "stability.py` (`nonfinite_candidate`", "nonfinite.py` (`nonfinite`"),
        ("VALIDATION_LOSS_FAILS", "verdict/checks.py` (`_validation_loss`", "secondary/validation"),
    ],
)
def test_a_rule_is_told_from_what_measures_for_it(code: str, rule: str, measured: str) -> None:
    stands, measures = places(code)
    assert rule in stands
    assert measured in measures
    assert measured not in stands


def test_a_rule_that_measures_nothing_names_no_other_file() -> None:
    assert places("EMPTY")[1] == ""


@pytest.mark.parametrize(
    ("code", "file", "names"),
    [
        # of the rule's own file; imported into it; of what it calls; of what made its field
        ("GAP_GROWING", "rules/stability.py", ("DRIFT_Z", "DRIFT_REACH")),
        ("UNSTABLE", "curves/spikes.py", ("MAX_MASKED_SHARE",)),
        ("LOG_STARTS_LATE", "curves/outside_plan.py", ("MAX_LATE",)),
        ("NONFINITE_CAND", "curves/nonfinite.py", ("NONFINITE_FAILS", "NONFINITE_SHARE")),
    ],
)
def test_a_number_has_the_file_that_states_it(code: str, file: str, names: tuple[str, ...]) -> None:
    words = numbers_in_words(rules_of_codes()[code])
    of_file = words.partition(f"{file}`")[2].partition(")")[0]
    assert all(f"`{name}`" in of_file for name in names), words


def test_how_many_things_a_sentence_lists_is_no_number_of_its_rule() -> None:
    assert numbers_in_words(rules_of_codes()["REPLICATES_EQUAL"]) == ""
