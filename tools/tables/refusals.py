"""The types of refused requests in docs/codes.md, with what to do about each."""

from collections.abc import Mapping

from server.errors import kinds
from tools.tables.generated import DOCS, GeneratedTable

# What to do about each type of a refused request.
REFUSED: Mapping[str, str] = {
    "bad-request": "the request has two lengths (Content-Length and Transfer-Encoding): send one",
    "busy": "too many requests wait: retry after the seconds in `Retry-After`; if it lasts, start "
    "another API process",
    "conflict": "the record has changed: read the run or job again. For steps: the same step is "
    "recorded with other numbers",
    "database-away": "retry after the seconds in `Retry-After`",
    "database-busy": "all connections are in use: retry; if it lasts, raise "
    "`PARITY_DATABASE_CONNECTIONS` or start another API process",
    "disk-full": "an operator frees space on the disk of the database or the server, as the "
    "detail says; then retry",
    "damaged": "recorded steps, or a recorded verdict, have changed: run `python -m server.check` "
    "on the server's machine",
    "stored-form": "another version stored it: run that version, or `python -m server.check` on "
    "the server's machine",
    "forbidden": "use a token with the scope that the detail names, of the principal that "
    "submitted the job ([rights](rights.md))",
    "internal": "an error in parity: report it with the `request_id`",
    "invalid": "correct what `errors` lists; each entry points into the request",
    "look": "this analysis (look) is not registered: register more before the first one, or give "
    "the question a new name",
    "not-found": "check the id",
    "sign-off": "this verdict cannot be [signed off](gate.md), or is already: the detail says why",
    "stale-attempt": "another attempt has replaced this one: stop the old process, or attach again",
    "too-large": "send smaller batches; the limit is `PARITY_MAX_BODY_BYTES`, and 1 MiB for "
    "requests without curves or tables",
    "too-many": "wait for the seconds in `Retry-After`: requests, exports, followed jobs or "
    "queued runs are at their limit",
    "unauthorized": "send `Authorization: Bearer …` with a token that is not expired or revoked",
    "unavailable": "retry after the seconds in `Retry-After`; `/readyz` says what is away",
}


def refusals() -> str:
    """One row per type of a refused request."""
    rows = (f"| `{kind}` | {status} | {REFUSED[kind]} |" for kind, status in kinds().items())
    return "\n".join(["| type | status | what to do |", "| --- | --- | --- |", *rows])


TABLE = GeneratedTable(name="refusals", parts={DOCS / "codes.md": {"refusals": refusals}})
