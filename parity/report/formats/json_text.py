"""Verdicts as canonical JSON."""

from collections.abc import Sequence

from parity.canonical_json import canonical_json
from parity.report.sign_off_words import Accepted
from parity.report.view import AnyDocument
from parity.report.words import with_words
from parity.version import JUDGE_VERSION

REPORT_SCHEMA = "parity.report/1"


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
