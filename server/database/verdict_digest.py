"""Digests of a stored verdict: one that was changed in the database is never served as a verdict.

There are two, because a list of jobs reads no document: that of the document, and that of the
columns that a list shows, of which the first digest is a part.
"""

import hashlib
from typing import Any

from parity.canonical_json import canonical_json
from server.errors import DamagedError

LISTED_COLUMNS = (
    "candidate",
    "outcome",
    "code",
    "gap",
    "ci_low",
    "ci_high",
    "gap_rel",
    "margin",
    "lead",
    "document_sha256",
)


def document_digest(document: str) -> str:
    """SHA-256 of a document as it is stored."""
    return hashlib.sha256(document.encode()).hexdigest()


def columns_digest(row: Any) -> str:
    """SHA-256 of the columns of a verdict that lists show, of a row of the table or a selection of
    its columns.
    """
    columns = [getattr(row, name) for name in LISTED_COLUMNS]
    return hashlib.sha256(canonical_json(columns).encode()).hexdigest()


def has_its_columns(row: Any) -> bool:
    """Whether the columns are as they were written; one that was stored without a digest has no
    answer but yes.
    """
    return row.columns_sha256 is None or row.columns_sha256 == columns_digest(row)


def is_intact(row: Any) -> bool:
    """Whether a verdict is as it was written."""
    is_written = row.document_sha256 in (None, document_digest(row.document))
    return is_written and has_its_columns(row)


def check_document(row: Any) -> None:
    """DamagedError unless a verdict is as it was written."""
    if not is_intact(row):
        raise DamagedError(
            f"RECORD_DAMAGED: the verdict on {row.candidate} of job {row.job_id} is not as the "
            "judge wrote it; on the server's machine `python -m server.check` lists the damage, "
            f"and with `--judge-again {row.job_id}` it has the job judged again from its curves"
        )
