import pytest

from parity.judging.bundles.strict_json import JsonError, parse_json


def test_plain_json_is_read() -> None:
    assert parse_json('{"a": [1, -2.5, "é", null, true, 9223372036854775808]}'.encode()) == {
        "a": [1, -2.5, "é", None, True, 2**63]
    }


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": NaN}', "holds NaN"),
        (b"[Infinity]", "holds Infinity"),
        (b"[-Infinity]", "holds -Infinity"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' is in one object twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "5,000 digits"),
        (b"[-" + b"9" * 400 + b"]", "400 digits"),
        (b"[9223372036854775809]", "19 digits"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "line 1"),
        (b"{} {}", "column 4"),
        (b"\xef\xbb\xbf{}", "line 1"),
    ],
)
def test_everything_else_is_refused_in_one_short_line(data: bytes, words: str) -> None:
    with pytest.raises(JsonError) as error:
        parse_json(data)
    assert words in str(error.value)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)
