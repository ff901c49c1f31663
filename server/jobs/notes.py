"""Notes on a job: plain text with author and time.

They are only added, never changed.
"""

from sqlalchemy.orm import Session

from server.database import clock
from server.database.lookups import find_job
from server.database.tables import Job, JobNote, new_id
from server.errors import ConflictError, InvalidError

MOST_CHARACTERS, MOST_NOTES = 4000, 500


def plain_text(what: str, text: str, most: int, least: int = 1) -> str:
    """A text of a person without spaces around it; InvalidError if it is empty, too long, or has
    control characters.
    """
    stripped = text.replace("\r\n", "\n").strip()
    if not least <= len(stripped) <= most:
        raise InvalidError(
            f"{what} has {len(stripped):,} characters; expected {least:,} to {most:,}"
        )
    odd = next(
        (letter for letter in stripped if not letter.isprintable() and letter not in "\n\t"), None
    )
    if odd is not None:
        raise InvalidError(f"{what} has the character {odd!r}; expected plain text")
    return stripped


def add_note(session: Session, job_id: str, who: str, text: str) -> Job:
    """Add a note of a principal to a job. ConflictError if the job has too many notes."""
    job = find_job(session, job_id)
    if len(job.notes) >= MOST_NOTES:
        raise ConflictError(
            f"job {job_id} has {MOST_NOTES} notes, the most that are kept; write elsewhere, and "
            "tag the job"
        )
    stripped = plain_text("the note", text, MOST_CHARACTERS)
    job.notes.append(
        JobNote(
            id=new_id("n"), job_id=job_id, who=who, text=stripped, created_at=clock.now(session)
        )
    )
    session.flush()
    return job
