"""What a download is called."""

import re
from collections.abc import Sequence

from parity.report.candidates import safest_first
from parity.report.view import View
from parity.report.words import words


def file_name(job: str, views: Sequence[View], what: str) -> str:
    """What a download is called, without its ending: the job, the lead of its verdicts, and what it
    holds with the unit.
    """
    lead = words(safest_first(views)[0]).lead.rstrip(".") if views else ""
    return re.sub(r"[^\w.+-]+", "-", " ".join(part for part in (job, lead, what) if part))
