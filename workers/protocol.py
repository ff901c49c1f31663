"""The messages between a supervisor and its training process: one request in, then one line of JSON for each message out.

The supervisor starts the process from its own checkout, so both sides always have the same version of these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from training.switches import Rounding


class CheckpointRequest(TypedDict):
    """Where and how often to write checkpoints; `resume_at_most` is the first step that is not recorded.

    `keep`: the numbers of steps after which one is kept for good.
    """

    folder: str
    seconds: float
    resume_at_most: int
    keep: list[int]


class TrainRequest(TypedDict):
    """One run to train. `spec` has the fields of a `RunSpec`, `core` is the processor to use; 0 `profile_steps` means no trace.

    The run ends after `steps` steps, which may be fewer than those of its schedule. With `measure` it trains nothing from step 0:
    the lab's module reads it.
    """

    core: int | None
    spec: dict[str, Any]
    steps: int
    checkpoints: CheckpointRequest
    measure: Mapping[str, Any] | None
    silence_seconds: float
    artifacts: str
    profile_steps: int


class StepValues(TypedDict):
    """The fields of `training.statistics.StepStats`."""

    step: int
    loss: float
    lm_loss: float
    learning_rate: float
    grad_norm: float
    clipped_grad_norm: float
    param_norm: float
    update_norm: float
    tokens: int
    step_seconds: float
    data_wait_seconds: float
    nonfinite_inputs: float
    layer_grad_norms: list[float]
    layers: list[list[list[float]]] | None
    validation_loss: float | None
    tflops_per_device: float


class ManifestMessage(TypedDict):
    """The run's manifest and how it rounds gradients; sent once, before the first step."""

    kind: Literal["manifest"]
    manifest: dict[str, str]
    rounding: Rounding


class LayersMessage(TypedDict):
    """The layers of every later step, and the names (operand/statistic) of what each has on a watched step; sent once."""

    kind: Literal["layers"]
    layers: list[str]
    columns: list[str]


class StepMessage(TypedDict):
    """One trained step. The first one is the step at which the run starts or resumes."""

    kind: Literal["step"]
    values: StepValues


class ProfileMessage(TypedDict):
    """Speed and memory up to a step (`training.trainer.profiling`)."""

    kind: Literal["profile"]
    step: int
    columns: dict[str, float]


class ValidationMessage(TypedDict):
    """A validation loss in nats that came after its step was sent."""

    kind: Literal["validation"]
    step: int
    loss: float


class KeptMessage(TypedDict):
    """The numbers of steps after which a checkpoint of the run is kept; sent once, before its end."""

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


class AliveMessage(TypedDict):
    """A sign of life without data."""

    kind: Literal["alive"]


class EndMessage(TypedDict):
    """The run was trained to its last step."""

    kind: Literal["end"]


class ErrorMessage(TypedDict):
    """The run ended with an error that would also occur in another attempt."""

    kind: Literal["error"]
    code: str
    message: str


class BrokeOffMessage(TypedDict):
    """The attempt ended with an error that may not occur in another attempt."""

    kind: Literal["broke_off"]
    code: str
    message: str


Message = (
    ManifestMessage
    | LayersMessage
    | StepMessage
    | ProfileMessage
    | ValidationMessage
    | KeptMessage
    | ResultMessage
    | NoteMessage
    | AliveMessage
    | EndMessage
    | ErrorMessage
    | BrokeOffMessage
)
