"""The table in docs/authorization.md, made from the OpenAPI description and its rules: `python -m tools.authorization_table` writes it."""

import json

from server.web.auth import RULES, Rule, Scope, operations
from tools.reason_table import DOCS, rewritten

PAGE = DOCS / "authorization.md"
MARKS = ("<!-- operations: written by tools/authorization_table.py -->", "<!-- end of operations -->")
# In the order in which the test calls them: those that may change a job come last.
CALLERS = (
    "no token",
    "stranger: view",
    "stranger: worker",
    "stranger: approve",
    "stranger: submit",
    "other run's token",
    "run token",
    "owner: view",
    "owner: worker",
    "owner: approve",
    "owner: submit",
    "admin",
)
_INCLUDES: dict[str, frozenset[Scope]] = {
    "submit": frozenset({"view", "submit"}),
    "approve": frozenset({"view", "approve"}),
    "view": frozenset({"view"}),
    "worker": frozenset({"worker"}),
}


def allows(rule: Rule, caller: str) -> bool:
    """Whether a rule lets a caller through; the run's token is that of its live attempt."""
    if rule.is_public or caller == "admin":
        return True
    if caller in ("no token", "other run's token", "run token"):
        return caller == "run token" and rule.trainer != "no"
    who, _, scope = caller.partition(": ")
    return bool(_INCLUDES[scope].intersection(rule.scopes)) and not (rule.of_owner if who != "owner" else rule.by_another)


def authorization_table() -> str:
    """One row per operation, one column per caller: yes, or empty for refused."""
    described = operations(json.loads((DOCS / "openapi.json").read_text(encoding="utf-8")))
    rows = []
    for name in sorted(described, key=lambda each: (each.split(" ")[1], each)):
        cells = ("yes" if allows(RULES[name], caller) else "" for caller in CALLERS)
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([f"| operation | {' | '.join(CALLERS)} |", "| --- |" + " --- |" * len(CALLERS), *rows])


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), authorization_table(), MARKS), encoding="utf-8")
