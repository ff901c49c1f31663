from dataclasses import dataclass
from typing import Literal

import pytest

from parity.typed_json import (
    ManifestError,
    check_between,
    check_words,
    known_keys,
    manifest_error,
    optional,
    record,
    typed,
)


@dataclass(frozen=True, kw_only=True)
class Part:
    count: int
    share: float | None
    mode: Literal["on", "off"]


def test_a_record_takes_every_field_by_its_annotation() -> None:
    assert record(Part, {"count": 2, "share": 1, "mode": "on", "more": 7}, "part") == Part(
        count=2, share=1, mode="on"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], r"part is \[\]; expected an object"),
        (
            {"count": True, "share": None, "mode": "on"},
            "part.count is True; expected a whole number",
        ),
        ({"share": None, "mode": "on"}, "part.count is None; expected a whole number"),
        ({"count": 1, "share": "x", "mode": "on"}, "part.share is 'x'; expected a number or null"),
        (
            {"count": 1, "share": False, "mode": "on"},
            "part.share is False; expected a number or null",
        ),
        ({"count": 1, "share": None, "mode": 5}, "part.mode is 5; expected text"),
    ],
)
def test_what_a_record_refuses(value: object, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        record(Part, value, "part")


def test_a_field_that_may_be_null_must_be_there() -> None:
    with pytest.raises(KeyError, match="share"):
        record(Part, {"count": 1, "mode": "on"}, "part")


def test_nothing_is_converted_and_long_values_are_cut() -> None:
    assert typed(3, float, "x") == 3
    assert optional(None, str, "x") is None
    with pytest.raises(ManifestError, match=r"x is 'a{40,60}\.\.\.; expected a whole number"):
        typed("a" * 500, int, "x")


def test_keys_and_words_of_a_record() -> None:
    assert known_keys({"count": 1}, Part, "part", manifest_error) == {"count": 1}
    with pytest.raises(
        ManifestError,
        match=r"part\.cuont is 1; expected no such key; known keys: count, share, mode",
    ):
        known_keys({"cuont": 1}, Part, "part", manifest_error)
    with pytest.raises(ManifestError, match=r"part\.mode is 'of'; expected on or off"):
        check_words(Part(count=1, share=None, mode="of"), "part", manifest_error)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), 3.1, -0.1])
def test_a_number_outside_its_range_is_refused(value: object) -> None:
    with pytest.raises(ManifestError, match="expected a number from 0 to 3"):
        check_between("x", value, 0.0, 3.0, manifest_error)
