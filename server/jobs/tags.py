"""Tags of a job: words that it is found by.

Set when it is submitted, changed by its owner.
"""

import re
from collections.abc import Sequence

from sqlalchemy.orm import Session

from server.database.lookups import find_job
from server.database.tables import Job, JobTag
from server.errors import InvalidError

MOST_TAGS = 20
TAG = r"^[A-Za-z0-9][A-Za-z0-9_.:/=+@-]{0,63}$"
_MOST_BRANCH = 200


def checked_tags(tags: Sequence[str]) -> list[str]:
    """These tags, sorted and each once; InvalidError for one that is not a word, or for too
    many.
    """
    for tag in tags:
        if not re.fullmatch(TAG, tag):
            raise InvalidError(
                f"tag is {tag!r:.80}; expected 1 to 64 letters, digits and _ . : / = + @ -, the "
                "first a letter or a digit"
            )
    once = sorted({*tags})
    if len(once) > MOST_TAGS:
        raise InvalidError(f"a job has at most {MOST_TAGS} tags, not {len(once)}; remove some")
    return once


def checked_branch(branch: str | None) -> str | None:
    """The name of a branch; None for an empty one. InvalidError if it cannot be shown in one
    line.
    """
    if not branch:
        return None
    if len(branch) > _MOST_BRANCH or not branch.isprintable():
        raise InvalidError(
            f"branch is {branch!r:.80}; expected at most {_MOST_BRANCH} printable characters"
        )
    return branch


def set_tags(session: Session, job_id: str, tags: Sequence[str]) -> Job:
    """Give a job these tags in place of its own. NotFoundError for an unknown job."""
    job = find_job(session, job_id)
    new_tags = checked_tags(tags)
    session.refresh(job, ["tags"])
    job.tags = [tag for tag in job.tags if tag.tag in new_tags] + [
        JobTag(job_id=job.id, tag=tag)
        for tag in new_tags
        if tag not in {old_tag.tag for old_tag in job.tags}
    ]
    session.flush()
    return job
