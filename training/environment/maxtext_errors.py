"""Errors of a MaxText process, each with its code and a sentence.

`transient` says whether another attempt may succeed: the supervisor then tries the run again from
its newest checkpoint, up to its limit; every other error ends the run at once.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar


class MaxTextError(Exception):
    """A MaxText run that cannot start or continue."""

    code: ClassVar[str] = "MAXTEXT_FAILED"

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


class NotInstalledError(MaxTextError):
    """PARITY_MAXTEXT_PYTHON is not set, or its Python has no MaxText."""

    code = "MAXTEXT_NOT_INSTALLED"


class WrongVersionError(MaxTextError):
    """The MaxText that is installed is not one whose output is known."""

    code = "MAXTEXT_VERSION"


class DataMissingError(MaxTextError):
    """A local file or folder that MaxText should read does not exist."""

    code = "DATA_NOT_FOUND"


class CrashedError(MaxTextError):
    """The process ended with an error."""

    code = "MAXTEXT_CRASHED"


class AbortedError(CrashedError):
    """The process aborted (SIGABRT), as MaxText does where another of its processes is gone."""


class TooLittleMemoryError(MaxTextError):
    """The device or the machine did not have enough memory."""

    code = "OUT_OF_MEMORY"


class EndedEarlyError(MaxTextError):
    """The process ended without an error before its last step."""

    code = "MAXTEXT_ENDED_EARLY"


class HungError(MaxTextError):
    """The process is running but writes nothing."""

    code = "MAXTEXT_HUNG"


class MetricsError(MaxTextError):
    """metrics_file contains something that MaxText does not write."""

    code = "METRICS_GARBAGE"


class MetricsStoppedError(MaxTextError):
    """The log continues but metrics_file does not."""

    code = "METRICS_STOPPED"


class MetricsGapError(MaxTextError):
    """The run trained to its end, but metrics_file lost some steps. The recorded steps are right;
    the judge sees the gap.
    """

    code = "METRICS_GAP"


class EvaluationFailedError(MaxTextError):
    """The evaluation of a checkpoint gave no loss. The training steps are recorded."""

    code = "MAXTEXT_EVALUATION"


def steps_in_words(steps: Iterable[range]) -> str:
    """Ranges of steps as text, the first five of them: "3, 7-9 and 2 more places"."""
    parts: Sequence[range] = list(steps)
    shown = ", ".join(
        f"{part.start}" if len(part) == 1 else f"{part.start}-{part.stop - 1}" for part in parts[:5]
    )
    return shown + (f" and {len(parts) - 5} more places" if len(parts) > 5 else "")
