"""The settings of a process, read from its environment; a wrong value ends the process with one
line, whichever command it is.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from server.settings import SECRET_SETTINGS, Settings
from server.wrong_values import reason, sentence, shown

USAGE = 2
# Whose sentence about a value stands alone, without the value.
_OWN = ("setting_list", "setting_url", "value_error", "webhooks", "webhook_url", "webhook_secret")


class SettingsError(Exception):
    """Variables with wrong values; the message has a line for each."""


def read_settings() -> Settings:
    """The settings in the environment (`PARITY_…`); raises SettingsError for a wrong value."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("\n".join(setting_problems(error))) from None


def settings_or_exit() -> Settings:
    """The settings in the environment, for a command: a wrong value is printed to stderr and ends
    it with status 2.
    """
    try:
        return read_settings()
    except SettingsError as error:
        print(f"refused: {error}", file=sys.stderr)
        sys.exit(USAGE)


def setting_problems(error: ValidationError) -> Sequence[str]:
    """One line for each wrong setting: its variable, its value unless that may be a secret, and
    what was expected.
    """
    lines: dict[object, str] = {}
    for finding in error.errors():
        lines.setdefault(finding["loc"][0], _line(finding))
    return [*lines.values()]


def _line(finding: Mapping[str, Any]) -> str:
    field, *places = finding["loc"]
    variable = f"PARITY_{str(field).upper()}"
    entry = "".join(
        f", entry {place + 1}" if isinstance(place, int) else f", {place}" for place in places
    )
    if finding["type"] == "missing":
        return f"{variable}{entry} is missing"
    if field in SECRET_SETTINGS:
        return f"{variable}{entry}: {reason(finding)}"
    if finding["type"] in _OWN:
        return f"{variable}{entry} is {shown(finding['input'])}; {reason(finding)}"
    return sentence(finding, [f"{variable}{entry}"])
