"""What several verbs read from the command line: the policy with flags over a file, and NAME=VALUE pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parity.cli.output import UsageError
from parity.judging.criteria import LOSS, NVFP4, Criteria, criteria_from_mapping


def load_criteria(
    path: str | None,
    *,
    margin: str | None = None,
    profile: str | None = None,
    gates: Sequence[str] | None = None,
    accuracy_margin: float | None = None,
) -> Criteria:
    """The policy from a file's `criteria:` part, flags over it; the nvfp4 profile where nothing states a margin."""
    mapping = dict(_read_policy(path)) if path else {}
    if gates:
        mapping["gates"] = list(dict.fromkeys([LOSS, *gates]))
    if accuracy_margin is not None:
        mapping["accuracy_margin_points"] = accuracy_margin
    if margin is not None or profile is not None:
        mapping["margin"], mapping["profile"] = margin, profile
    if not mapping.get("margin") and not mapping.get("profile"):
        mapping["profile"] = NVFP4
    return criteria_from_mapping(mapping)


def read_yaml(path: str) -> object:
    """What a YAML file holds; UsageError names the file and what is wrong with it."""
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read ({error})") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no YAML ({error})") from None


def _read_policy(path: str) -> Mapping[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("criteria"), dict):
        raise UsageError(f"{path}: no `criteria:` mapping; expected one such as criteria: {{margin: 1.0%}}")
    found: dict[str, Any] = document["criteria"]
    return found


def pairs(items: Sequence[str] | None, flag: str) -> dict[str, str]:
    """NAME=VALUE items as a dict."""
    found = {}
    for item in items or []:
        key, mark, value = item.partition("=")
        if not mark or not key or not value:
            raise UsageError(f"{flag} {item!r}; expected NAME=VALUE")
        found[key] = value
    return found
