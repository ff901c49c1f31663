"""Goldens over REST: list, read, check a run, take one as the next version, remove a version."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Response
from numpy.typing import NDArray
from pydantic import FailFast, Field
from sqlalchemy import select

from parity.frozen import frozen
from parity.golden.check import RunFacts
from parity.golden.formats import document
from parity.golden.quantities import QUANTITIES
from parity.golden.reruns import MOST
from parity.golden.sent_run import CONTEXT
from parity.golden.update import MOST_REASON, Request
from parity.judging.curves.curve import Curve, CurveError, curve_from_arrays
from parity.recipes import RecipeError, check_recipe
from server.database.tables import Golden
from server.documents.goldens import (
    GoldenDocument,
    GoldenSummary,
    golden_document,
    golden_summaries,
)
from server.errors import InvalidError
from server.jobs import goldens
from server.jobs.goldens import Asked
from server.json_numbers import Number
from server.records import Body
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.limits import LARGEST, MOST_NUMBERS
from server.web.requests.bodies import BodyRoute, StrictBody
from server.web.requests.cursors import cursor_of, row_id_of

router = APIRouter(prefix="/api/v1", tags=["goldens"], route_class=BodyRoute)

_Name = Annotated[str, Path(max_length=64, description="name of the golden")]
_Version = Annotated[int, Path(ge=1, le=2**31, description="its version")]
_Reason = Annotated[str, Field(min_length=1, max_length=MOST_REASON)]
_Steps = Annotated[list[int], Field(max_length=MOST_NUMBERS), FailFast()]
_Column = Annotated[list[Number | None], Field(max_length=MOST_NUMBERS), FailFast()]
_Word = Annotated[str, Field(min_length=1, max_length=200)]
_GOLDEN = goldens.NAME.removesuffix("$") + r"(@[1-9][0-9]{0,8})?$"


@frozen
class GoldenRun(Body):
    """A run: `steps` and `loss` of equal length (nats a token), `columns` of grad_norm,
    clipped_grad_norm and learning_rate, and what its source recorded. Non-finite values: nan, inf
    and -inf; null is nan. Rows that a restart repeated come before those that replaced them.
    """

    steps: _Steps
    loss: _Column
    columns: Annotated[dict[str, _Column], Field(max_length=len(QUANTITIES))] = field(
        default_factory=dict
    )
    label: Annotated[str, Field(max_length=1000)] = "run"
    recipe: Annotated[str, Field(max_length=100)] | None = None
    context: Annotated[dict[str, str], Field(max_length=len(CONTEXT))] = field(default_factory=dict)


@frozen
class _StatedRun(Body):
    """A run, and what is stated of it: see `parity golden check --help`."""

    run: GoldenRun
    recipe: Annotated[str, Field(max_length=100)] | None = None
    random: Annotated[list[_Word], Field(max_length=20)] = field(default_factory=list)
    container: _Word | None = None
    hardware: _Word | None = None
    data: _Word | None = None
    changed: Annotated[str, Field(max_length=20)] | None = None
    fork: Annotated[int, Field(ge=0, le=LARGEST)] | None = None

    def asked(self) -> Asked:
        """What is stated, for the rule."""
        facts = RunFacts(
            recipe=self.recipe,
            random=tuple(self.random),
            container=self.container,
            hardware=self.hardware,
            data=self.data,
        )
        return Asked(facts=facts, changed=self.changed, fork=self.fork)


@frozen
class GoldenCheckRequest(_StatedRun):
    """A run, and the goldens that it is judged by: `NAME` or `NAME@VERSION`, several only if they
    are reruns of one.
    """

    goldens: Annotated[
        list[Annotated[str, Field(pattern=_GOLDEN)]], Field(min_length=1, max_length=MOST)
    ]


@frozen
class GoldenTakeRequest(_StatedRun):
    """A run that becomes the next version of a golden, and the reason. `accept` is the answer that
    a person accepts, `every` keeps every N-th step.
    """

    reason: _Reason
    accept: Annotated[str, Field(max_length=20)] | None = None
    every: Annotated[int, Field(ge=1, le=LARGEST)] = 1
    commit: Annotated[str, Field(max_length=100)] | None = None


@frozen
class GoldenRemoveRequest(Body):
    """The reason for removing a version."""

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


@frozen
class GoldenPage:
    """A page of versions, taken last first; `next_cursor` is null on the last page."""

    items: list[GoldenSummary]
    next_cursor: str | None


@frozen
class GoldenCheckDocument:
    """The answer about a run, as `parity golden check --json` prints it, and the versions that
    counted.
    """

    check: Mapping[str, Any]
    goldens: list[GoldenSummary]


@frozen
class GoldenTakenDocument:
    """What became of a run that was to be the next version: whether it is, why it was refused, its
    check by the version before (null for a first one), and the version that holds now.
    """

    written: bool
    refused: str | None
    check: Mapping[str, Any] | None
    golden: GoldenDocument | None


@router.get("/goldens")
def index(
    context: InContext,
    name: Annotated[
        str | None, Query(max_length=64, description="only versions of this name")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="versions per page")] = 50,
) -> GoldenPage:
    """Versions of goldens, taken last first, including removed ones."""
    statement = select(Golden).order_by(Golden.id.desc()).limit(limit + 1)
    if name:
        statement = statement.where(Golden.name == name)
    if cursor:
        statement = statement.where(Golden.id < row_id_of(cursor, "g"))
    with context.database.read() as session:
        rows = session.scalars(statement).all()
        more = cursor_of(rows[limit - 1].id) if len(rows) > limit else None
        return GoldenPage(items=golden_summaries(session, rows[:limit]), next_cursor=more)


@router.post("/goldens:check")
def check(request: StrictBody[GoldenCheckRequest], context: InContext) -> GoldenCheckDocument:
    """Judge a run by goldens of its own recipe; nothing is stored. 422 for another recipe, 409 for
    a version that was removed.

    The answer says nothing about another precision, and is no verdict.
    """
    run = _curve(request.run)
    with context.database.read() as session:
        rows = [goldens.find(session, *_name_and_version(golden)) for golden in request.goldens]
        answer = goldens.checked(session, rows, run, request.asked())
        return GoldenCheckDocument(check=document(answer), goldens=golden_summaries(session, rows))


@router.get("/goldens/{golden}")
def newest(golden: _Name, context: InContext) -> GoldenDocument:
    """The newest version of a golden, and its history."""
    with context.database.read() as session:
        return golden_document(session, goldens.find(session, golden))


# an int here, or it would also match VERSION:remove
@router.get("/goldens/{golden}/versions/{version:int}")
def show(golden: _Name, version: _Version, context: InContext) -> GoldenDocument:
    """One version of a golden."""
    with context.database.read() as session:
        return golden_document(session, goldens.find(session, golden, version))


@router.post(
    "/goldens/{golden}/versions",
    status_code=201,
    responses={200: {"model": GoldenTakenDocument, "description": "nothing was written"}},
)
def take(
    golden: _Name,
    request: StrictBody[GoldenTakeRequest],
    response: Response,
    context: InContext,
    who: Sender,
) -> GoldenTakenDocument:
    """Take a run as the next version, judged here by the newest that is kept: 201 if it is
    identical or differs by numerics only, or its answer is accepted; else 200 with the answer.

    The next version of a name takes the owner of its newest one, or scope approve; so does the
    removal of a version.
    """
    run = _curve(request.run)
    asked_for = Request(
        reason=request.reason,
        date=goldens.date_of(time.time()),
        commit=request.commit,
        accept=request.accept,
        every=request.every,
    )
    with context.database.write() as session:
        taken = goldens.take(
            session,
            golden,
            run,
            request.asked(),
            asked_for,
            who.id,
            overrules=who.may("approve"),
        )
        kept = None if taken.golden is None else golden_document(session, taken.golden)
    if taken.is_written and kept is not None:
        response.headers["Location"] = f"/api/v1/goldens/{golden}/versions/{kept.version}"
    else:
        response.status_code = 200
    return GoldenTakenDocument(
        written=taken.is_written,
        refused=taken.refused,
        check=None if taken.check is None else document(taken.check),
        golden=kept,
    )


@router.post("/goldens/{golden}/versions/{version}:remove")
def remove(
    golden: _Name,
    version: _Version,
    request: StrictBody[GoldenRemoveRequest],
    context: InContext,
    who: Sender,
) -> GoldenDocument:
    """Remove a version: nothing is judged by it any more. Its text and history stay on record;
    removing twice changes nothing.
    """
    with context.database.write() as session:
        row = goldens.find(session, golden, version)
        goldens.remove(session, row, request.reason, who.id, overrules=who.may("approve"))
        session.flush()
        return golden_document(session, row)


def _name_and_version(golden: str) -> tuple[str, int | None]:
    name, mark, number = golden.partition("@")
    return name, int(number) if mark else None


def _curve(run: GoldenRun) -> Curve:
    unknown = sorted({*run.columns} - {*QUANTITIES}) + sorted({*run.context} - CONTEXT)
    if unknown:
        raise InvalidError.at(
            "/run",
            f"run has {unknown[0]}, expected columns {', '.join(QUANTITIES)} and context "
            f"{', '.join(sorted(CONTEXT))}",
        )
    try:
        check_recipe(run.recipe)
        return curve_from_arrays(
            np.array(run.steps, np.int64),
            _values(run.loss),
            columns={name: _values(values) for name, values in run.columns.items()},
            label=run.label,
            recipe=run.recipe,
            context=run.context,
        )
    except (CurveError, RecipeError) as error:
        raise InvalidError.at("/run", str(error), f"run: {error}") from error


def _values(column: Sequence[Number | None]) -> NDArray[np.float64]:
    return np.array(column, np.float64)
