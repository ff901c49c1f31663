"""What is wrong with a value that pydantic refuses, in our words: its own speak of Python, of
"input" and of regular expressions.
"""

import reprlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic_core.core_schema import ErrorType

_LONGEST_WORD, _SHOWN = 100, 80
_NUMBER, _WHOLE, _MAPPING, _LIST, _TEXT = (
    "a number",
    "a whole number",
    "a mapping from its fields to their values",
    "a list",
    "a text",
)
_DATE, _TIME, _ADDRESS = (
    "a date such as 2026-11-23",
    "a time such as 2026-11-23T12:00:00Z",
    "an address such as https://example.org/hook",
)
# Whose messages are not ours. Those of a validator (a ValueError) are, behind two words of
# pydantic's, and so is that of `web.requests.bodies`.
_PYDANTICS = frozenset(get_args(ErrorType)) - {"value_error", "json_invalid"}
_LETTERS = "letters, digits"
# in words, by the pattern as the field has it; a test finds every pattern of the API and of the
# settings here
_PATTERN_WORDS = {
    r"^[A-Za-z0-9_.-]{1,64}$": f"1 to 64 {_LETTERS} and _ . -",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$": f"1 to 64 {_LETTERS} and _ . -, of which the first is a "
    "letter or digit",
    r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}$": f"1 to 64 {_LETTERS} and _ . / -, of which the first "
    "is a letter, a digit or _",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[1-9][0-9]{0,8})?$": "NAME, NAME@VERSION or the id of a "
    "job",
    r"^[jr][0-9a-f]{12,}-[0-9a-f]{10}$": "the id of a job or of a run, such as "
    "j0000000000001-0000000001",
    "^[ -~]*$": "a text in ASCII, in one line",
    "^[0-9a-f]{64}$": "64 digits of a SHA-256, 0 to 9 and a to f",
    "^(train|validation)$": "train or validation",
    "^(cpu|gpu|sm90|sm100|command)$": "cpu, gpu, sm90, sm100 or command",
    "^([A-Z]{3})?$": "a currency of three capital letters, such as USD",
    "^(https?://.+)?$": "an address that begins with https:// or http://",
}
_REPLACED = {  # keys that earlier versions took, and what to write now
    "bf16_from_step": "then: {recipe: bf16, from_step: N}",
    "bf16_scope": "then: {recipe: bf16, from_step: N, gemms: forward}",
}
_EXPECTED = {  # by pydantic's type of an error
    "dataclass_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "iterable_type": _LIST,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "a whole number with fewer digits",
    "multiple_of": "a multiple of {multiple_of}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} of them",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "string_unicode": "a text in UTF-8",
    "invalid_key": "texts as its keys",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "url_type": _ADDRESS,
    "url_parsing": _ADDRESS,
    "url_syntax_violation": _ADDRESS,
    "url_scheme": "an address that begins with {expected_schemes}",
    "none_required": "no value",
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
}


def reason(finding: Mapping[str, Any]) -> str:
    """What is wrong, without the value: "expected at most 90", or our own message; `finding` is one
    of `ValidationError.errors()`.
    """
    context, kind = finding.get("ctx") or {}, finding["type"]
    if kind not in _PYDANTICS:
        return str(finding["msg"]).removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        return f"expected {_PATTERN_WORDS.get(context['pattern'], 'a text of another form')}"
    if kind in _EXPECTED:
        return "expected " + _EXPECTED[kind].format(
            **{name: _number(value) for name, value in context.items()}
        ).replace("'", "")
    if kind == "extra_forbidden":
        key = finding["loc"][-1]
        today = f"; today it is {_REPLACED[key]}" if key in _REPLACED else ""
        return f"{key!r} is an unknown key{today}"
    return "expected " + (
        str(context["expected"]).replace("'", "") if "expected" in context else "another value"
    )


def sentence(finding: Mapping[str, Any], place: Sequence[str] | None = None) -> str:
    """What is wrong, at the finding's own place or another, which is named by its last key: "days
    is 140; expected at most 90".
    """
    place = [str(part) for part in finding["loc"]] if place is None else place
    field = next((part for part in reversed(place) if not part.isdecimal()), "the body")
    match finding["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden" if place[-1] in _REPLACED:
            return f"{place[-1]!r} is the key of an earlier version; write {_REPLACED[place[-1]]}"
        case "unexpected_keyword_argument" | "extra_forbidden":
            return (
                f"{place[-1]!r} is an unknown key; remove it, or correct its name with "
                "/api/v1/schemas/parity.json"
            )
        case kind if kind.startswith("missing") and kind != "missing_sentinel_error":
            return f"{place[-1] if place else 'the body'} is missing"
        case "too_long" if place:
            return (
                f"{place[-1]} is too long; expected at most "
                f"{_number(finding['ctx']['max_length'])} {place[-1]}"
            )
        case "literal_error" | "enum":
            return _not_one_of(field, finding)
        case kind if kind not in _PYDANTICS:
            return reason(finding) + (
                f", not {shown(finding['input'])}"
                if not isinstance(finding.get("input"), dict | list)
                else ""
            )
    return f"{field} is {shown(finding.get('input'))}; {reason(finding)}"


def shown(value: object) -> str:
    """The beginning of a value; `repr` alone would write a list of millions of numbers to its end
    first.
    """
    if isinstance(value, float):
        return f"{value:.15g}"
    text = repr(value[:_LONGEST_WORD]) if isinstance(value, str) else reprlib.repr(value)
    return text[:_SHOWN]


def _number(value: object) -> object:
    """A number as people write it: 90 for 90.0, and thousands apart."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.15g}"


def _not_one_of(field: str, finding: Mapping[str, Any]) -> str:
    """The sentence for a word that is not one of the allowed ones: with the nearest of them, or
    with all where none is near.
    """
    choices = [
        choice.strip("'") for choice in finding["ctx"]["expected"].replace(" or ", ", ").split(", ")
    ]
    # Comparing takes time with the product of the lengths, and a word that is longer than any known
    # one is no slip of the pen.
    word = finding["input"]
    close = get_close_matches(word[:_LONGEST_WORD], choices, n=1) if isinstance(word, str) else []
    return f"{field} is {shown(word)}; " + (
        f"did you mean {close[0]}?" if close else f"expected one of {', '.join(choices)}"
    )
