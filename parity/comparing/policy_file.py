"""The policy of a comparison: the `policy:` part of a file or what a person states, the latter over
the former.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parity.comparing.statements import InputError
from parity.judging.policy import LOSS as LOSS_METRIC
from parity.judging.policy import NVFP4, Policy, policy_from_mapping
from parity.readers.files.text import os_words

_NULL = "tag:yaml.org,2002:null"
_NULLS = ("~", "null", "Null", "NULL", "")
_MOST_BYTES, _MOST_VALUES, _LONGEST_NUMBER = 262_144, 50_000, 1000


class _TextLoader(yaml.BaseLoader):
    """Reads every value as text but a null without quotes."""


_TextLoader.add_implicit_resolver(
    _NULL, re.compile(rf"(?:{'|'.join(_NULLS)})\Z"), ["~", "n", "N", ""]
)
_TextLoader.add_constructor(_NULL, lambda _, node: None if node.value in _NULLS else node.value)


def stated_policy(
    stated: Mapping[str, Any],
    *,
    margin: object = None,
    profile: str | None = None,
    checks: Sequence[str] = (),
    accuracy_margin: float | None = None,
    **others: object,
) -> Policy:
    """The policy in `stated`, the keys of a `policy:` part, with the other arguments over it;
    `others` are keys such as `looks`.

    A margin or a profile replaces both. Without either in any place the profile is nvfp4. Raises
    PolicyError.
    """
    mapping = dict(stated)
    if checks:
        mapping["checks"] = list(dict.fromkeys([LOSS_METRIC, *checks]))
    others["accuracy_margin_points"] = accuracy_margin
    mapping |= {key: value for key, value in others.items() if value is not None}
    if margin is not None or profile is not None:
        mapping["margin"], mapping["profile"] = margin, profile
    if not mapping.get("margin") and not mapping.get("profile"):
        mapping["profile"] = NVFP4
    return policy_from_mapping(mapping)


def read_policy(path: str) -> Mapping[str, Any]:
    """The `policy:` part of a file; InputError where it has none."""
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("policy"), dict):
        raise InputError(
            f"{path}: no `policy:` with keys below it; expected such as policy: {{margin: 1.0%}}"
        )
    policy: dict[str, Any] = document["policy"]
    return policy


def read_yaml(path: str) -> object:
    """The content of a YAML file; InputError names the file and what is wrong with it."""
    return yaml_value(read_yaml_text(path), path)


def read_yaml_text(path: str) -> str:
    """The text of a YAML file, at most 256 KiB; InputError names the file and what is wrong."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(
                f"{path}: has more than {_MOST_BYTES:,} bytes; expected a job file, a policy or a "
                "card"
            )
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(f"{path}: cannot be read ({words}); expected a YAML file") from None


def yaml_value(text: str, path: str, *, as_text: bool = False) -> object:
    """The value of the YAML text in a file; `as_text`: every number and date as it is written,
    and None for a null without quotes. InputError names the file and what is wrong with it.

    In CI the file is a stranger's: a few lines of nested aliases can stand for more values than fit
    into memory, so what the file stands for is counted before it is built.
    """
    try:
        loader = _TextLoader(text) if as_text else yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _checked_size(node, {}, path) > _MOST_VALUES:
                raise InputError(
                    f"{path}: its aliases (*name) stand for more than {_MOST_VALUES:,} values; "
                    "write out what they stand for"
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise InputError(
            f"{path}{place}: not valid YAML; check brackets, quotes and indentation there"
        ) from None


def place_in(path: str, keys: Sequence[str], *otherwise: Sequence[str]) -> str:
    """Where a value stands in a file that `read_yaml` took: "parity.yaml, line 3"; the file alone
    where it has none of them.

    `keys` are keys and positions from the top, such as ("job", "candidates", "0", "recipe"): the
    line is that of the last one that is there. Where not even the first is, one of the other ways
    counts that is there to its end.
    """
    try:
        loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))
        try:
            top = loader.get_single_node()
        finally:
            loader.dispose()
    except (OSError, ValueError, yaml.YAMLError):  # it has changed since
        return path
    lines = _lines_of(top, keys) or next(
        (found for way in otherwise if len(found := _lines_of(top, way)) == len(way)), []
    )
    return f"{path}, line {lines[-1]}" if lines else path


def _lines_of(node: yaml.Node | None, keys: Sequence[str]) -> Sequence[int]:
    """The line of each key, as far as the file has them."""
    lines: list[int] = []
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pair = next((item for item in node.value if item[0].value == key), None)
            if pair is None:
                break
            node = pair[1]
            lines.append(pair[0].start_mark.line + 1)
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            node = node.value[int(key)]
            lines.append(node.start_mark.line + 1)
        else:
            break
    return lines


def _checked_size(node: yaml.Node, sizes: dict[int, int], path: str) -> int:
    """The number of values that a part of a file stands for, each alias counted as what it names;
    ValueError for one inside itself.

    InputError, which names the file, for a key that stands twice.
    """
    if id(node) in sizes:
        return sizes[id(node)]
    # while it is counted: an alias of a part inside that part has no end
    sizes[id(node)] = _MOST_VALUES + 1
    if isinstance(node, yaml.ScalarNode):
        if not node.tag.endswith(":str") and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number or date of {len(node.value):,} characters")
        size = 1
    else:
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, path)
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        else:
            parts = [part for pair in node.value for part in pair]
        size = 1 + sum(_checked_size(part, sizes, path) for part in parts)
    sizes[id(node)] = size
    return size


def _check_keys(node: yaml.MappingNode, path: str) -> None:
    """InputError for a key that stands twice in one mapping: YAML would keep the last, and drop a
    question or a margin unseen.
    """
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            place = f"{path}, line {key.start_mark.line + 1}"
            raise InputError(
                f"{place}: key {key.value!r:.60} stands twice; expected each key once, so rename "
                "or remove one"
            )
        seen.add(str(key.value))
