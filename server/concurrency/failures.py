"""What a failure that is tried again looks like in the log: an outage of the database is a line, an
error of ours a traceback; one that goes on is said once a minute, and its end once.
"""

import logging
import time

from server import full_disk, outages

_AGAIN_SECONDS = 60.0


def log_failure(log: logging.Logger, error: Exception, sentence: str) -> None:
    """Log one failure, with its traceback unless it is an outage of the database or a full disk."""
    if isinstance(error, outages.OUTAGES):
        log.error("%s: %s", sentence, outages.reason(error))
    elif isinstance(error, OSError) and full_disk.is_full(error):
        log.error("%s: %s", sentence, full_disk.sentence(error))
    else:
        log.error("%s", sentence, exc_info=error)


class RepeatedFailure:
    """The failures of one thing that is tried again and again; `sentence` says that it failed, in
    the log.
    """

    def __init__(self, log: logging.Logger, sentence: str) -> None:
        self._log, self._sentence = log, sentence
        self._kind: str | None = None
        self._began = self._logged_at = 0.0

    def failed(self, error: Exception) -> None:
        """Log the failure, unless the same kind was logged within the last minute."""
        now, kind = time.monotonic(), _kind_of(error)
        if kind != self._kind:
            self._began = now if self._kind is None else self._began
            log_failure(self._log, error, f"{self._sentence}; retrying")
        elif now >= self._logged_at + _AGAIN_SECONDS:
            self._log.error("%s, as before (%s); retrying", self._sentence, kind)
        else:
            return
        self._kind, self._logged_at = kind, now

    def worked(self) -> None:
        """Log that it works again, if it had failed."""
        if self._kind is not None:
            seconds = time.monotonic() - self._began
            self._log.warning("%s for %.0f s, and works again", self._sentence, seconds)
            self._kind = None


def _kind_of(error: Exception) -> str:
    """What distinguishes two failures: an outage changes its words with each try."""
    if isinstance(error, outages.OUTAGES):
        return outages.cause(error)
    return type(error).__name__
