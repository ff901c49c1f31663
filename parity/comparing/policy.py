"""The policy of a comparison: the `criteria:` part of a file or what a person states, the latter over the former."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parity.comparing.stated import InputError
from parity.judging.criteria import LOSS, NVFP4, Criteria, criteria_from_mapping
from parity.readers.source import os_words

_MOST_BYTES, _MOST_VALUES, _LONGEST_NUMBER = 262_144, 50_000, 1000


def policy(
    stated: Mapping[str, Any],
    *,
    margin: object = None,
    profile: str | None = None,
    gates: Sequence[str] = (),
    accuracy_margin: float | None = None,
    **others: object,
) -> Criteria:
    """The policy in `stated`, the keys of a `criteria:` part, with the other arguments over it; `others` are keys such as `looks`.

    A margin or a profile replaces both. Without either in any place the profile is nvfp4. Raises CriteriaError.
    """
    mapping = dict(stated)
    if gates:
        mapping["gates"] = list(dict.fromkeys([LOSS, *gates]))
    others["accuracy_margin_points"] = accuracy_margin
    mapping |= {key: value for key, value in others.items() if value is not None}
    if margin is not None or profile is not None:
        mapping["margin"], mapping["profile"] = margin, profile
    if not mapping.get("margin") and not mapping.get("profile"):
        mapping["profile"] = NVFP4
    return criteria_from_mapping(mapping)


def read_policy(path: str) -> Mapping[str, Any]:
    """The `criteria:` part of a file; InputError where it has none."""
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("criteria"), dict):
        raise InputError(f"{path}: no `criteria:` with keys below it; expected such as criteria: {{margin: 1.0%}}")
    criteria: dict[str, Any] = document["criteria"]
    return criteria


def read_yaml(path: str) -> object:
    """The content of a YAML file; InputError names the file and what is wrong with it.

    In CI the file is a stranger's: a few lines of nested aliases can stand for more values than fit into memory, so what the file stands
    for is counted before it is built.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(f"{path}: has more than {_MOST_BYTES:,} bytes; expected a job file or a policy")
        loader = yaml.SafeLoader(content.decode())
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > _MOST_VALUES:
                raise InputError(f"{path}: its aliases (*name) stand for more than {_MOST_VALUES:,} values; write out what they stand for")
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except InputError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(f"{path}: cannot be read ({words}); expected a YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{place}: not valid YAML; check brackets, quotes and indentation there") from None


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values that a part of a file stands for, each alias counted as what it names; ValueError for one inside itself."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _MOST_VALUES + 1  # while it is counted: an alias of a part inside that part has no end
    if isinstance(node, yaml.ScalarNode):
        if not node.tag.endswith(":str") and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number or date of {len(node.value):,} characters")
        size = 1
    else:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        size = 1 + sum(_size(part, known) for part in parts)
    known[id(node)] = size
    return size
