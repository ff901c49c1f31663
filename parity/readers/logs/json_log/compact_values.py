"""The value of a JSON document of any size in bounded memory.

Long lists are not made objects of Python, which take ten times the memory of their text: numbers
become arrays, and the objects of a list stay text, which is read again each time that they are
asked for. NaN and Infinity are data, which streaming parsers such as ijson refuse.
"""

import json
import re
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from parity.judging.curves.curve import FloatArray
from parity.names_once import NameTwiceError
from parity.readers.columns.number import BLANK, MISSING, plain_number
from parity.readers.errors import ReadError
from parity.readers.files.json_values import flat_object, object_of_values

_NOTHING = frozenset(MISSING) - {"nan"}
_DEEPEST = 64  # containers in containers
_LONG = 1 << 12  # characters of a list of numbers that is not made a list of Python
_PIECE = 1 << 20  # characters of numbers that are read in one go
_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBERS = re.compile(r"\[[-+\w.,\s]*\]")
_DECODER = json.JSONDecoder(object_pairs_hook=object_of_values)


class Objects:
    """The objects of a list, or of an object that has them by step (`by_step`): each with its
    number from 1, and nested names joined.
    """

    def __init__(self, text: str, start: int, *, by_step: bool = False) -> None:
        self._text, self._start, self._by_step = text, start, by_step
        self.end = start
        self.names: dict[str, None] = {}
        self.number = 0
        for number, record in self:
            self.names.update(dict.fromkeys(record))
            self.number = number

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Raises ValueError where a value of the list is no object."""
        text, at, number = self._text, self._start + 1, 0
        close = "}" if self._by_step else "]"
        at = _next(text, at)
        while text[at] != close:
            step = None
            if self._by_step:
                step, at = _key(text, at)
                if not (step.isascii() and step.isdigit()):
                    raise ValueError("a name that is no step")
            value, at = _decoded(text, at)
            if not isinstance(value, dict):
                raise ValueError("a value that is no object")
            number += 1
            record = flat_object(value)
            yield number, record if step is None else {"step": int(step), **record}
            at = _after(text, at, close)
        self.end = at + 1


class Steps:
    """Numbers by step: steps (n,) and values (n,), NaN for null."""

    def __init__(self, steps: FloatArray, values: FloatArray) -> None:
        self.steps, self.values = steps, values


def compact_value(
    text: str, at: int, source: str, remedy: str = "check the file"
) -> tuple[Any, int]:
    """The value that begins at or behind a place in a text, and where it ends: objects as dicts,
    lists as `Objects`, as arrays of numbers (n,) or rows (n, k), or as they are; an object of
    numbers by step is `Steps`.

    Raises ReadError, with the line, for what is not valid JSON or too deep, and where an object
    gives one name two values.
    """
    try:
        return _value(text, _next(text, at), 0)
    except NameTwiceError as error:
        raise ReadError(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        raise ReadError(f"{source}, line {error.lineno}: not valid JSON; {remedy}") from None
    except (ValueError, RecursionError, IndexError):
        line = text.count("\n", 0, at) + 1
        raise ReadError(f"{source}, line {line}: not valid JSON; {remedy}") from None


def as_number(value: Any) -> float | None:
    """A value as a number, `BLANK` for null or its words; None for any other."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return BLANK
    return plain_number(value)


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise RecursionError
    if text[at] == "{":
        return _object(text, at, depth)
    if text[at] == "[":
        return _list(text, at)
    return _decoded(text, at)


def _object(text: str, at: int, depth: int) -> tuple[Any, int]:
    if (begin := _next(text, at + 1)) < len(text) and text[begin] == '"':
        key, value_at = _key(text, begin)
        if key.isascii() and key.isdigit() and text[value_at] == "{":
            try:
                objects = Objects(text, at, by_step=True)
            except json.JSONDecodeError:
                raise
            except NameTwiceError:
                raise
            except ValueError:
                pass
            else:
                return objects, objects.end
        if key.isascii() and key.isdigit() and text[value_at] not in "{[":
            return _steps(text, at, depth)
    return _pairs(text, at, depth)


def _pairs(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: list[tuple[str, Any]] = []
    at = _next(text, at + 1)
    while text[at] != "}":
        key, at = _key(text, at)
        value, at = _value(text, at, depth + 1)
        found.append((key, value))
        at = _after(text, at, "}")
    return object_of_values(found), at + 1


def _steps(text: str, start: int, depth: int) -> tuple[Any, int]:
    """Numbers by step; any other object as it is."""
    steps, values = array("d"), array("d")
    at = _next(text, start + 1)
    while text[at] != "}":
        key, at = _key(text, at)
        number = None
        if key.isascii() and key.isdigit() and len(key) < 16 and text[at] not in "{[":
            value, at = _decoded(text, at)
            number = as_number(value)
        if number is None:
            return _pairs(text, start, depth)
        steps.append(float(key))
        values.append(number)
        at = _after(text, at, "}")
    read = Steps(np.frombuffer(steps), np.frombuffer(values))
    if not len(read.steps) or bool((np.diff(read.steps) > 0).all()):
        return read, at + 1
    order = np.argsort(read.steps, kind="stable")
    twice = np.flatnonzero(np.diff(read.steps[order]) == 0)
    for place in twice:
        left, right = read.values[order[place]], read.values[order[place + 1]]
        step = f"{read.steps[order[place]]:.0f}"
        if left != right and not (np.isnan(left) and np.isnan(right)):
            raise NameTwiceError(
                f"{step!r} is {left:g} and {right:g} in one object; expected one value; remove the "
                "other"
            )
    return read, at + 1


def _list(text: str, start: int) -> tuple[Any, int]:
    at = _next(text, start + 1)
    if text[at] == "{":
        try:
            objects = Objects(text, start)
        except (json.JSONDecodeError, NameTwiceError):
            raise
        except ValueError:
            return _decoded(text, start)
        return objects, objects.end
    if text[at] == "[":
        return _rows(text, start)
    if text[at] != '"' and (found := _NUMBERS.match(text, start)) and found.end() - start > _LONG:
        return _long_numbers(text, start, found.end()), found.end()
    value, end = _decoded(text, start)
    numbers = [as_number(item) for item in value]
    if value and all(number is not None for number in numbers):
        return np.array(numbers, np.float64), end
    return value, end


def _rows(text: str, start: int) -> tuple[Any, int]:
    """Rows (n, k) of numbers, the further cells of longer rows left out; any other list of lists as
    it is.
    """
    flat, width = array("d"), 0
    at = _next(text, start + 1)
    while text[at] != "]":
        row, at = _decoded(text, at)
        numbers = [as_number(cell) for cell in row] if isinstance(row, list) else []
        width = width or len(numbers)
        if not numbers or len(numbers) != width or None in numbers:
            return _decoded(text, start)
        flat.extend(number for number in numbers if number is not None)
        at = _after(text, at, "]")
    return np.frombuffer(flat).reshape(-1, width), at + 1


def _long_numbers(text: str, start: int, end: int) -> FloatArray:
    parts = []
    at = start + 1
    while at < end - 1:
        stop = end - 1 if end - at <= _PIECE else text.find(",", at + _PIECE, end - 1)
        stop = end - 1 if stop < 0 else stop
        piece = text[at:stop]
        numbers = json.loads(f"[{piece}]")
        if "null" in piece:
            numbers = [BLANK if number is None else number for number in numbers]
        parts.append(np.array(numbers, np.float64))
        at = stop + 1
    return np.concatenate(parts)


def _decoded(text: str, at: int) -> tuple[Any, int]:
    return _DECODER.raw_decode(text, at)


def _key(text: str, at: int) -> tuple[str, int]:
    """A name that begins at a place, and where its value does."""
    if text[at] != '"':
        raise json.JSONDecodeError("no name", text, at)
    key, at = _decoded(text, at)
    at = _next(text, at)
    if text[at] != ":":
        raise json.JSONDecodeError("no colon", text, at)
    return key, _next(text, at + 1)


def _after(text: str, at: int, close: str) -> int:
    """Where the next value begins behind one that ended at a place, or where its container
    closes.
    """
    at = _next(text, at)
    if text[at] == close:
        return at
    if text[at] != ",":
        raise json.JSONDecodeError("no comma", text, at)
    at = _next(text, at + 1)
    if text[at] == close:
        raise json.JSONDecodeError("a comma too many", text, at)
    return at


def _next(text: str, at: int) -> int:
    """The first place from `at` on that is not blank; JSONDecodeError where there is none."""
    found = _BLANKS.match(text, at)
    end = at if found is None else found.end()
    if end >= len(text):
        raise json.JSONDecodeError("the text ends", text, end)
    return end
