"""What the search says of pairs of rules that it gained and lost."""

from tests.parity.judging.precedence.search import changes_of_pairs

ORDER = ("empty", "constant", "downsampled")


def test_a_pair_that_no_case_shows_any_more_is_said_to_be_lost() -> None:
    before, after = {("empty", "constant"), ("empty", "downsampled")}, {("empty", "constant")}
    (line,) = changes_of_pairs(before, after, ORDER)
    assert line.startswith("lost: empty decided over downsampled")
    assert "no case" in line


def test_a_pair_of_a_rule_that_is_gone_is_told_from_one_that_is_hidden() -> None:
    (line,) = changes_of_pairs({("empty", "old_rule")}, set(), ORDER)
    assert "a rule is gone" in line


def test_a_new_pair_is_said_to_be_gained_and_equal_ones_say_nothing() -> None:
    same = {("empty", "constant")}
    assert list(changes_of_pairs(same, same, ORDER)) == []
    assert list(changes_of_pairs(set(), same, ORDER)) == ["gained: empty decides over constant"]
