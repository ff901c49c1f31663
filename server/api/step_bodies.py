"""The two forms of a batch of steps that a trainer sends: JSON, and columns of float64."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, TypeAdapter, ValidationError

from parity.frozen import frozen
from server.errors import InvalidError
from server.jobs.external import MOST_LAYER_COLUMNS, NAME, Batch, LayerColumn, Name
from server.json_numbers import Number
from server.records import Body
from server.web.limits import LARGEST
from server.web.requests.bodies import once, refused

_MAX_STEPS, _MAX_COLUMNS = 100_000, 64
_Column = Annotated[list[float | None], Field(max_length=_MAX_STEPS), FailFast()]


@frozen
class StepsRequest(Body):
    """A batch in columns of equal length, steps in any order. Non-finite values are the strings
    nan, inf and -inf; null is nan.

    A batch of kind train has the judged loss in nats per token as `loss` (or as `lm_loss`, if
    `loss` includes auxiliary terms).
    """

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]],
        Field(min_length=1, max_length=_MAX_STEPS),
        FailFast(),
    ]
    columns: Annotated[dict[Name, _Column], Field(min_length=1, max_length=_MAX_COLUMNS)]


@frozen
class StepsSchema:
    """The JSON form of a batch; see `StepsRequest`."""

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=_MAX_STEPS)
    ]
    columns: Annotated[
        dict[str, Annotated[list[Number], Field(max_length=_MAX_STEPS)]],
        Field(min_length=1, max_length=_MAX_COLUMNS),
    ]


@frozen
class LayersRequest(Body):
    """A batch of statistics by layer. A column is `layer/operand/statistic`, such as
    `decoder.layers.3.mlp.fc1/gradient nvfp4/underflow_share`; the page shows any statistic.

    Advice after a fail names layers by `snr_db` (dB) and `underflow_share` (of 1), and says
    `scale_octaves` and `amax` of the same operand with the latter.
    """

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]],
        Field(min_length=1, max_length=_MAX_STEPS),
        FailFast(),
    ]
    columns: Annotated[
        dict[LayerColumn, _Column], Field(min_length=1, max_length=MOST_LAYER_COLUMNS)
    ]


@frozen
class LayersSchema:
    """The JSON form of statistics by layer; see `LayersRequest`."""

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=_MAX_STEPS)
    ]
    columns: Annotated[
        dict[str, Annotated[list[Number], Field(max_length=_MAX_STEPS)]],
        Field(min_length=1, max_length=MOST_LAYER_COLUMNS),
    ]


_STEPS, _LAYERS = TypeAdapter(StepsRequest), TypeAdapter(LayersRequest)
_NOT_FINITE = ("nan", "inf", "-inf", "infinity", "-infinity")


def json_batch(body: bytes) -> Batch:
    """A batch in JSON (`StepsRequest`)."""
    return _batch(_STEPS, body)


def layers_batch(body: bytes) -> Batch:
    """A batch of statistics by layer in JSON (`LayersRequest`)."""
    return _batch(_LAYERS, body)


def _batch(adapter: TypeAdapter[StepsRequest] | TypeAdapter[LayersRequest], body: bytes) -> Batch:
    try:
        request = adapter.validate_json(body)
    except ValidationError as error:
        raise refused(error) from error
    # Reading is strict only where there is anything but keys and numbers: looking at each value
    # takes longer than all else.
    if body.count(b'"') > 2 * (2 + len(request.columns)) or b"true" in body or b"false" in body:
        _check_numbers(json.loads(body, object_pairs_hook=once))
    return Batch(
        steps=np.array(request.steps, np.int64),
        columns={name: np.array(values, np.float64) for name, values in request.columns.items()},
    )


def _check_numbers(sent: Mapping[str, Any]) -> None:
    """InvalidError for a step or a value that was sent as a truth value or a text, other than
    `nan`, `inf` and `-inf`.
    """
    for pointer, values in {
        "/steps": sent["steps"],
        **{f"/columns/{name}": column for name, column in sent["columns"].items()},
    }.items():
        allowed_words = () if pointer == "/steps" else (*_NOT_FINITE, "none")
        wrong = next(
            (
                value
                for value in values
                if type(value) not in (int, float) and str(value).lower() not in allowed_words
            ),
            None,
        )
        if wrong is not None:
            raise InvalidError.at(
                pointer,
                f"{pointer.rpartition('/')[2]} has {wrong!r:.80}, expected "
                f"numbers{' or nan, inf, -inf' * bool(allowed_words)}",
            )


def binary_batch(body: bytes, names: str | None) -> Batch:
    """A batch of float64: all values of the first of these columns, then all of the second."""
    columns = (names or "").split(",")
    if columns[0] != "step" or len(columns) < 2 or len(set(columns)) < len(columns):
        raise InvalidError(
            f"names is {names!r}, expected `step` and then different columns, comma-separated"
        )
    for name in columns:
        if not re.fullmatch(NAME, name):
            raise InvalidError(
                f"names has {name!r:.80}, expected letters, digits and _ . / - only, at most 64"
            )
    if len(columns) > _MAX_COLUMNS + 1:
        raise InvalidError(f"names has {len(columns)} columns, expected at most {_MAX_COLUMNS}")
    row = 8 * len(columns)
    if not body or len(body) % row or len(body) // row > _MAX_STEPS:
        raise InvalidError(
            f"the body has {len(body)} bytes, expected 1 to {_MAX_STEPS:,} times {row}: "
            f"{len(columns)} columns of float64"
        )
    table: NDArray[np.float64] = (
        np.frombuffer(body, "<f8").astype(np.float64, copy=False).reshape(len(columns), -1)
    )
    steps = table[0]
    if not ((steps >= 0) & (steps <= 2**53) & (np.floor(steps) == steps)).all():
        raise InvalidError(
            f"the first column holds steps, expected whole numbers from 0 to {2**53}"
        )
    return Batch(
        steps=steps.astype(np.int64), columns=dict(zip(columns[1:], table[1:], strict=True))
    )
