"""Runs in the body of a request, as columns, and the curves that they are."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, FailFast, Field

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, CurveError, Rounding, curve_from_arrays
from parity.recipes import RecipeError, check_recipe
from server.errors import InvalidError
from server.json_numbers import Number
from server.records import Body
from server.web.limits import LARGEST, MOST_ITEMS, MOST_KEYS, MOST_NUMBERS
from server.web.requests.texts import escaped

# Judging reads each value, so one wrong value is enough to refuse a column.
_Column = Annotated[list[Number | None], Field(max_length=MOST_NUMBERS), FailFast()]
_Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


@frozen
class RunBody(Body):
    """One finished run: `steps`, `loss` and other `columns` of equal length. Non-finite values:
    nan, inf and -inf; null is nan.

    `recipe` is a known one or `other:NAME`; `rounding` states how the gradients were rounded, and
    without it and a recipe that always rounds to nearest the run-to-run noise of stochastic
    rounding is assumed. `context` has the facts that must agree between the arms (engine, device
    class, data digest); a difference is `CONFOUNDED`. Without `replicate`, the runs of an arm with
    the same seed are numbered in their order. `notes` are what the reader of its file noted, for
    the report.
    """

    steps: Annotated[list[int], Field(max_length=MOST_NUMBERS), FailFast()]
    loss: _Column
    columns: Annotated[dict[str, _Column], Field(max_length=MOST_KEYS)] = field(
        default_factory=dict
    )
    label: str | None = None
    seed: _Whole | None = None
    replicate: _Whole | None = None
    recipe: str | None = None
    rounding: Rounding | None = None
    context: Annotated[dict[str, str], Field(max_length=MOST_KEYS)] = field(default_factory=dict)
    notes: Annotated[list[str], Field(max_length=MOST_ITEMS), FailFast()] = field(
        default_factory=list
    )


def _refuse_file(sent: object) -> object:
    """Reject the field `file` of earlier versions, and name its replacement."""
    if isinstance(sent, Mapping) and "file" in sent:
        raise ValueError(
            "file is no longer accepted; read the file on the client and send its steps and loss"
        )
    return sent


Runs = Annotated[
    list[Annotated[RunBody, BeforeValidator(_refuse_file)]],
    Field(max_length=MOST_ITEMS),
    FailFast(),
]


def candidate_pointer(name: str) -> str:
    """The JSON Pointer to a candidate's runs."""
    return f"/candidates/{escaped(name)}"


def dotted_place(pointer: str) -> str:
    """A place of the body for people: "candidates.nvfp4.0"."""
    return pointer.removeprefix("/").replace("/", ".")


def curve_of(runs: Sequence[RunBody], number: int, arm: str) -> Curve:
    """The curve of one run of an arm; without `replicate`, runs with the same seed are numbered."""
    run, pointer = runs[number], f"{arm}/{number}"
    # A control is not paired with a run of another arm.
    counted = 0 if arm == "/controls" else sum(other.seed == run.seed for other in runs[:number])
    try:
        check_recipe(run.recipe)
        return curve_from_arrays(
            np.array(run.steps, np.int64),
            np.array(run.loss, np.float64),
            columns={name: np.array(values, np.float64) for name, values in run.columns.items()},
            label=run.label or pointer,
            seed=run.seed,
            replicate=counted if run.replicate is None else run.replicate,
            recipe=run.recipe,
            rounding=run.rounding,
            context=run.context,
            notes=run.notes,
        )
    except (CurveError, RecipeError) as error:
        raise InvalidError.at(pointer, str(error), f"{dotted_place(pointer)}: {error}") from error
