"""Verdicts as canonical JSON."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from parity.canonical_json import canonical_json
from parity.judging.case import AnyDocument
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.sign_off_words import Accepted
from parity.report.words import with_words
from parity.version import JUDGE_VERSION

REPORT_SCHEMA = "parity.report/1"


class ReportDocument(TypedDict):
    """What `compare`, `report` and `watch` print with --json, schema parity.report/1: the verdicts,
    one per candidate, and the sign-offs that hold, where there are any.
    """

    schema: str
    engine_version: str
    verdicts: list[AnyDocument]
    sign_offs: NotRequired[list[SignOffDocument]]


def render_json(documents: Sequence[AnyDocument], accepted: Accepted | None = None) -> str:
    """Canonical JSON: one object {schema, engine_version, verdicts}, sorted keys, the same bytes
    for the same verdicts.

    With sign-offs that hold it has `sign_offs`, too.
    """
    signed_off = {"sign_offs": list(accepted.values())} if accepted else {}
    return canonical_json(
        {
            "schema": REPORT_SCHEMA,
            "engine_version": judge_of(documents),
            "verdicts": list(map(with_words, documents)),
            **signed_off,
        }
    )


def judge_of(documents: Sequence[AnyDocument]) -> str:
    """The version of the judge that made these documents; this judge's where there are none."""
    if documents:
        return documents[0]["engine_version"]
    return JUDGE_VERSION
