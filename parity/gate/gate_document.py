"""The JSON form of a gate's outcome, field by field."""

from typing import Any, TypedDict

from parity.gate.outcome import Result
from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.sign_offs import SignOffDocument


class GateReportDocument(TypedDict):
    """What `gate --json` writes, schema parity.gate/1.

    `result` is the worst verdict, or why there is none (`trouble`); `exit_code` is the gate's, and
    `note` says why it is another than that of the result. `cached`: an earlier job's verdict, of
    age `age_seconds`, which holds until `expires_at`. `accepted`: every verdict is a pass or signed
    off. `earlier` names other answers to the same question.
    """

    schema: str
    engine_version: str
    result: Result
    exit_code: int
    note: str | None
    headline: str
    trouble: str | None
    cached: bool
    origin: str
    age_seconds: float | None
    expires_at: str | None
    reused: str | None
    confirms: str | None
    unconfirmed: str | None
    job: str | None
    url: str | None
    config_hash: str | None
    revision: str
    trained: list[str]
    accepted: bool
    sign_offs: list[SignOffDocument]
    earlier: list[str]
    numerics: dict[str, dict[str, Any]]
    verdicts: list[VerdictDocument]
