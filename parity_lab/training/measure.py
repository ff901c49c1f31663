"""What the training process of a run of the lab measures: what its request asks for, an analysis or
the forks of a plan.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from parity_lab.analysis_plan import MeasureRequest
from parity_lab.forks import ForkRequest
from parity_lab.training.forks import train_forks
from parity_lab.training.program import analyse
from parity_lab.training.replays import Read
from training.spec import RunSpec
from workers.protocol import Message, TrainRequest


def measure(
    request: TrainRequest, candidate: RunSpec, read: Read, send: Callable[[Message], None]
) -> None:
    """Measure everything that the results on record lack. `read` makes a specification of its
    document.
    """
    folders = Path(request["checkpoints"]["folder"]).parent
    measured = request["measure"] or {}
    # mypy does not tell a TypedDict from another by a key
    if "plan" in measured:
        train_forks(cast("ForkRequest", measured), folders, read, send)
    else:
        analyse(cast("MeasureRequest", measured), candidate, folders, read, send)
