"""The table in docs/gate.md of what a contributor may choose under pinned rules."""

from server.jobs.pinned_fields import FREE, PINNED_NAMES
from tools.tables.generated import DOCS, GeneratedTable

_ALLOWED = {
    "free": "any value",
    "at least": "as many or more",
    "at most": "the same or less",
    "these or more": "the same or more",
    "base and head": "in the same roles",
}


def pinned_table() -> str:
    """What a contributor may choose, with the reasons; then every field that has to be as in the
    operator's file.
    """
    rows = [
        f"| `{part}.{name}` | {_ALLOWED[field.kind]} | {field.reason} |"
        for part, names in FREE.items()
        for name, field in names.items()
    ]
    pinned = [
        f"| `{part}` | {', '.join(f'`{name}`' for name in sorted(names))} |"
        for part, names in PINNED_NAMES.items()
        if names
    ]
    free = [
        "| a contributor may choose | values | why it can't help a worse candidate |",
        "| --- | --- | --- |",
        *rows,
    ]
    return "\n".join(
        [*free, "", "| part | a contributor cannot change |", "| --- | --- |", *pinned]
    )


TABLE = GeneratedTable(name="pinned", parts={DOCS / "gate.md": {"pinned": pinned_table}})
