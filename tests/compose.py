"""docker-compose.yml as compose reads it: variables of `.env` filled in, anchors merged."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from server.settings import CHECKOUT

PASSWORD = "0123456789abcdef" * 4
PASSWORDS = {"POSTGRES_PASSWORD": PASSWORD, "REDIS_PASSWORD": PASSWORD}


def services(variables: Mapping[str, str], file: str = "docker-compose.yml") -> dict:
    """The services of this file with these variables in `.env`. A variable that a container gets
    without a value is taken from `.env`, or unset there.
    """

    text = (CHECKOUT / file).read_text(encoding="utf-8")
    found = _filled(yaml.safe_load(text)["services"], variables)
    for service in found.values():
        passed = service.get("environment", {})
        service["environment"] = {
            name: variables.get(name) if value is None else str(value)
            for name, value in passed.items()
            if value is not None or name in variables
        }
    return found


def _filled(part: Any, variables: Mapping[str, str]) -> Any:
    """This part of the file with the values of its variables."""
    if isinstance(part, dict):
        return {name: _filled(value, variables) for name, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, variables) for value in part]
    return _text(part, variables) if isinstance(part, str) else part


def _text(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match) -> str:
        name, operator, rest = match["name"], match["operator"], match["rest"]
        if variables.get(name):
            return variables[name]
        assert operator == ":-", f"{name}: {rest}"
        return rest

    while "${" in text:  # the innermost first
        text = re.sub(r"\$\{(?P<name>\w+)(?P<operator>:[-?])(?P<rest>[^{}]*)\}", value, text)
    return text.replace("$$", "$")
