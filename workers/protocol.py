"""The messages between a supervisor and its training process: one request in, then one line of JSON
for each message out.

The supervisor starts the process from its own checkout, so both sides always have the same version
of these types.
"""

import os
import sys
from collections.abc import Mapping
from typing import IO, Any, Literal, TypedDict

from training.switches import Rounding


class CheckpointRequest(TypedDict):
    """Where and how often to write checkpoints; `resume_at_most` is the first step that is not
    recorded.

    `keep`: the numbers of steps after which one is kept for good.
    """

    folder: str
    seconds: float
    resume_at_most: int
    keep: list[int]


class ForkStartRequest(TypedDict):
    """A run that goes on from the checkpoint that another one, `parent`, kept of `step`; `spec` is
    that of the parent.
    """

    parent: str
    spec: dict[str, Any]
    step: int


class TrainRequest(TypedDict):
    """One run to train. `spec` has the fields of a `RunSpec`, `core` is the processor to use; 0
    `profile_steps` means no trace.

    The run ends after `steps` steps, which may be fewer than those of its schedule. With `measure`
    it trains nothing from step 0: the lab's module reads it. With `fork` its first step is the one
    after the checkpoint. `slices` has the number of devices on
    each node of the worker, as it registered them.
    """

    core: int | None
    spec: dict[str, Any]
    steps: int
    checkpoints: CheckpointRequest
    measure: Mapping[str, Any] | None
    fork: ForkStartRequest | None
    silence_seconds: float
    artifacts: str
    profile_steps: int
    slices: list[int]


class CommandRequest(TypedDict):
    """A run for a launcher (`workers.commands`). `folder` is the attempt's; all slots of the worker
    share `mirrors` and `proofs`.
    """

    spec: dict[str, Any]
    launchers: str
    folder: str
    checkpoints: str
    mirrors: str
    proofs: str


class ManifestMessage(TypedDict):
    """The run's manifest and how it rounds gradients, None where nobody knows; sent once, before
    the first step.
    """

    kind: Literal["manifest"]
    manifest: dict[str, str]
    rounding: Rounding | None


class LayersMessage(TypedDict):
    """The layers of every later step, and the names (operand/statistic) of what each has on a
    watched step; sent once.
    """

    kind: Literal["layers"]
    layers: list[str]
    columns: list[str]


class StepMessage(TypedDict):
    """One trained step: the fields of a `training.step_values.StepStats`. The first is the one at
    which the run starts or resumes.
    """

    kind: Literal["step"]
    values: dict[str, Any]


class ReportMessage(TypedDict):
    """Steps that a trainer of somebody else's has reported, ascending, with the columns that it
    has; `lm_loss` is always one.
    """

    kind: Literal["report"]
    steps: list[float]
    columns: dict[str, list[float]]


class LayerTableMessage(TypedDict):
    """Statistics by layer that a trainer of somebody else's left, ascending steps with all their
    columns `layer/operand/statistic`; sent in pieces, before its end.
    """

    kind: Literal["layer_table"]
    steps: list[int]
    columns: dict[str, list[float]]


class RowMessage(TypedDict):
    """A record of another name that came after its step was sent: `profile`
    (`training.trainer.profiling`) or `validation` (nats).
    """

    kind: Literal["row"]
    name: Literal["profile", "validation"]
    step: int
    columns: dict[str, float]


class KeptMessage(TypedDict):
    """The numbers of steps after which a checkpoint of the run is kept; sent once, before its
    end.
    """

    kind: Literal["kept"]
    steps: list[int]


class ResultMessage(TypedDict):
    """A result of a run of the lab, with its key and its cost in steps of training."""

    kind: Literal["result"]
    key: str
    value: Any
    steps: float


class NoteMessage(TypedDict):
    """A sentence for readers of the attempt."""

    kind: Literal["note"]
    message: str


class SignMessage(TypedDict):
    """A sign of life without data, or that the run was trained to its last step."""

    kind: Literal["alive", "end"]


class ErrorMessage(TypedDict):
    """The run ended with an error that would also occur in another attempt; or the attempt broke
    off, and another one may succeed.
    """

    kind: Literal["error", "broke_off"]
    code: str
    message: str


Message = (
    ManifestMessage
    | LayersMessage
    | StepMessage
    | ReportMessage
    | LayerTableMessage
    | RowMessage
    | KeptMessage
    | ResultMessage
    | NoteMessage
    | SignMessage
    | ErrorMessage
)

CRASHED = 70  # the exit status of a process whose supervisor is gone


def claim_stdout() -> IO[str]:
    """The stream for our lines; all other output goes to the log, so that it cannot corrupt
    them.
    """
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out
