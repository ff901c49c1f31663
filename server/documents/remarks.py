"""What people added to a job, as the API and the pages show it."""

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.verdict.sign_offs import Validity
from server.database import clock
from server.database.tables import Fact, Job
from server.documents.principals import principal_names
from server.jobs.sign_offs import validity
from server.records import from_attributes


@frozen
class NoteDocument:
    """A note on a job: plain text, its author and its time."""

    id: str
    who: str
    text: str
    created_at: str


@frozen
class SignOffEntry:
    """A person's acceptance of one inconclusive verdict: who, why, until when. It never makes the
    verdict a pass.

    `state` by the server's clock: only `valid` counts; `void` where the verdict or the policy is
    another one than what was accepted.
    """

    id: str
    candidate: str
    state: Validity
    who: str
    reason: str
    created_at: str
    expires_at: str
    revoked_at: str | None
    revoked_by: str | None
    revoke_reason: str | None
    verdict_sha256: str
    policy_sha256: str


@frozen
class StatementEntry:
    """A fact of external runs that their owner stated where the record held nothing; `arm` is empty
    for one of the whole job.

    `is_late`: the job had ended, so its recorded verdict is without it, and `:rejudge` has it.
    """

    fact: Fact
    arm: str
    value: str | int | list[int]
    who: str
    is_late: bool
    created_at: str


@frozen
class Remarks:
    """The tags, notes, sign-offs and statements of a job, oldest first."""

    job: str
    tags: list[str]
    notes: list[NoteDocument]
    sign_offs: list[SignOffEntry]
    statements: list[StatementEntry]


def remarks_of(session: Session, job: Job) -> Remarks:
    """What people added to a job; the state of each sign-off is by the database's clock."""
    people = {who for sign_off in job.sign_offs for who in (sign_off.who, sign_off.revoked_by)}
    people |= {note.who for note in job.notes} | {statement.who for statement in job.statements}
    names = principal_names(session, people) if people else {}
    now = clock.now(session) if job.sign_offs else 0.0
    return Remarks(
        job=job.id,
        tags=[row.tag for row in job.tags],
        notes=[
            from_attributes(NoteDocument, note, who=names.get(note.who, note.who))
            for note in job.notes
        ],
        sign_offs=[
            from_attributes(
                SignOffEntry,
                row,
                state=validity(row, job, now),
                who=names.get(row.who, row.who),
                revoked_by=row.revoked_by and names.get(row.revoked_by, row.revoked_by),
            )
            for row in job.sign_offs
        ],
        statements=[
            from_attributes(StatementEntry, row, who=names.get(row.who, row.who))
            for row in job.statements
        ],
    )
