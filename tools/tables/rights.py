"""The table in docs/rights.md, made from the OpenAPI description and its rules."""

import json
from collections.abc import Iterator

from server.web.access.rules import RULES, Rule, operations
from tools.tables.generated import DOCS, GeneratedTable


def rights_table() -> str:
    """One row per operation, by path: the scopes of which one is enough, and what is needed or
    enough in addition.
    """
    described = operations(json.loads((DOCS / "openapi.json").read_text(encoding="utf-8")))
    names = sorted(described, key=lambda operation: (operation.split(" ")[1], operation))
    rows = (
        f"| `{name}` | {_scopes(RULES[name])} | {'; '.join(_conditions(RULES[name]))} |"
        for name in names
    )
    return "\n".join(["| operation | scope | in addition |", "| --- | --- | --- |", *rows])


def _scopes(rule: Rule) -> str:
    return "no token" if rule.is_public else " or ".join(f"`{scope}`" for scope in rule.scopes)


def _conditions(rule: Rule) -> Iterator[str]:
    if rule.owner_only:
        yield "only the owner of the job"
    if rule.another_person:
        yield "never the owner of the job"
    if rule.gates_refused:
        yield "no token of a repository's gates"
    if rule.trainer != "no":
        yield "or the token of this run"


TABLE = GeneratedTable(name="rights", parts={DOCS / "rights.md": {"operations": rights_table}})
