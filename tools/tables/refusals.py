"""The types of refused requests in docs/codes.md, made from the server's errors."""

from server.errors import kinds
from tools.tables.generated import DOCS, GeneratedTable


def refusals() -> str:
    """One row per type of a refused request."""
    rows = (f"| `{kind}` | {error.status} | {error.remedy} |" for kind, error in kinds().items())
    return "\n".join(["| type | status | what to do |", "| --- | --- | --- |", *rows])


TABLE = GeneratedTable(name="refusals", parts={DOCS / "codes.md": {"refusals": refusals}})
