"""The table of settings in docs/settings.md, made from `server.settings.Settings`."""

import re
from pathlib import Path

from server.settings import CHECKOUT, Settings
from tools.tables.generated import DOCS, GeneratedTable


def settings_table() -> str:
    """One row per setting: its environment variable with an anchor of its name, its default and its
    meaning.
    """
    rows = (
        f'| <a id="parity_{name}"></a>`PARITY_{name.upper()}` | {_value(field.default)} | '
        f"{_linked(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    )
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def _linked(description: str) -> str:
    """The description, in which a page of the documentation is a link."""
    return re.sub(r"\(docs/([\w-]+)\.md\)", r"([\1](\1.md))", description)


def _value(default: object) -> str:
    if default in (None, "", ()):
        return ""
    if isinstance(default, Path):
        return f"`{default.relative_to(CHECKOUT)}` in the checkout"
    return f"`{str(default).lower() if isinstance(default, bool) else format(default, 'g') if isinstance(default, float) else default}`"  # noqa: E501


TABLE = GeneratedTable(name="settings", parts={DOCS / "settings.md": {"settings": settings_table}})
