"""The settings of a process, read from its environment; a wrong value ends the process with one
line, whichever command it is.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from server.settings import SECRET_SETTINGS, Settings
from server.wrong_values import reason, sentence, shown

USAGE = 2
# Whose sentence about a value stands alone, without the value.
_OWN = ("setting_list", "setting_url", "value_error", "webhooks", "webhook_url", "webhook_secret")

_ALIKE = 0.85  # of 1: two letters of twenty may differ
_TEST_PREFIX = "PARITY_TEST_"
# Without the prefix: variables of clients, launchers and containers, which are no settings.
_OTHER_NAMES = frozenset(
    {
        "api_database_url",
        "checkpoints",
        "fuzz_seconds",
        "gpu_capability",
        "gpu_slots",
        "launcher",
        "public_runs",
        "worker_database_url",
    }
)


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
        settings = read_settings()
    except SettingsError as error:
        print(f"refused: {error}", file=sys.stderr)
        sys.exit(USAGE)
    for warning in misspelt_variables(os.environ):
        print(f"warning: {warning}", file=sys.stderr)
    return settings


def misspelt_variables(names: Iterable[str]) -> list[str]:
    """A sentence for each variable whose name is almost that of a setting.

    They are no reason to stop: clients, launchers and containers have variables of their own in the
    same environment, and one that a newer version knows may be there after a return to this one.
    """
    settings = [f"PARITY_{field.upper()}" for field in Settings.model_fields]
    others = {f"PARITY_{name.upper()}" for name in _OTHER_NAMES}
    unknown = sorted(
        name
        for name in names
        if name.upper().startswith("PARITY_")
        and not name.upper().startswith(_TEST_PREFIX)
        and name.upper() not in {*settings, *others}
    )
    closest = {name: get_close_matches(name.upper(), settings, 1, _ALIKE) for name in unknown}
    return [
        f"{name} is no setting and changes nothing; did you mean {found[0]}?"
        for name, found in closest.items()
        if found
    ]


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
