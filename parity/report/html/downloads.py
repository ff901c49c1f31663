"""What a download is called."""

import re
from collections.abc import Sequence

from parity.report.answer import answer_words
from parity.report.view import View


def file_name(job: str, views: Sequence[View], what: str) -> str:
    """What a download is called, without its ending: the job, the lead of its verdicts, and what it
    holds with the unit.
    """
    lead = answer_words(views).lead.rstrip(".") if views else ""
    return re.sub(r"[^\w.+-]+", "-", " ".join(part for part in (job, lead, what) if part))
