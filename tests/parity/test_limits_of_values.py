"""How much of a stranger's value is shown."""

from parity.typed_json import shown


def test_60_characters_of_a_value_are_shown() -> None:
    """The quotes and the dots are among them."""
    assert shown("x" * 58) == repr("x" * 58)
    assert shown("x" * 59) == "'" + "x" * 56 + "..."
    assert len(shown("x" * 59)) == 60
