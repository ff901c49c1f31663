"""What one run recorded, over REST: every step (JSON in pages, CSV and Arrow as streams), and
metrics in buckets.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Header, Query, Request, Response

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from server.curves import step_streams as formats
from server.curves.buckets import Series, series
from server.database.lookups import find_run
from server.database.metrics import chunk_tables, store
from server.database.metrics.chunk_tables import Columns as Table
from server.errors import InvalidError
from server.json_numbers import kind_of
from server.logs import cut
from server.web.context import Context, InContext
from server.web.limits import MOST_VALUES, check_values
from server.web.requests.entity_tags import UNCHANGED, Tags
from server.web.requests.query import FirstStep, LastStep
from server.web.streams import EXPORTS, Stream

router = APIRouter(prefix="/api/v1", tags=["curves"])

Kind = Literal["train", "validation", "profile"]
Format = Literal["json", "csv", "arrow"]
_FORMS = {"csv": (formats.csv, formats.CSV), "arrow": (formats.arrow, formats.ARROW)}
_STEPS_A_PAGE, _NONFINITE_A_PAGE = 20_000, 100_000
_Names = Annotated[
    str | None, Query(max_length=20_000, description="columns, comma-separated; default: all")
]


@frozen
class NonFiniteValue:
    """A non-finite value, which JSON cannot represent; it is null in its column."""

    column: str
    step: int
    kind: Literal["nan", "inf", "-inf"]


@frozen
class StepsDocument:
    """Steps in columns of equal length. `next_from` is the first step of the next page, null on the
    last page.
    """

    run: str
    kind: Kind
    steps: list[int]
    columns: dict[str, list[float | None]]
    nonfinite: list[NonFiniteValue]
    next_from: int | None


@frozen
class MetricsDocument:
    """Metrics of one run; all columns have the same bucket edges."""

    run: str
    kind: str
    series: list[Series]


@router.get(
    "/runs/{run_id}/steps",
    response_model=StepsDocument,
    responses={
        200: {"content": {media_type: {} for _, media_type in _FORMS.values()}},
        **UNCHANGED,
    },
)
def steps(
    run_id: str,
    request: Request,
    context: InContext,
    tags: Tags,
    names: _Names = None,
    kind: Annotated[Kind, Query(description="which records")] = "train",
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    limit: Annotated[
        int,
        Query(
            ge=1,
            le=_STEPS_A_PAGE,
            description="steps per page of JSON; fewer where they would be more than 2 million "
            "values",
        ),
    ] = _STEPS_A_PAGE,
    form: Annotated[
        Format | None, Query(alias="format", description="default: the type in Accept, else json")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response | StepsDocument:
    """The recorded curve of a run; the newest attempt wins. CSV and Arrow contain every step of the
    range, JSON one page.
    """
    chosen = form or _accepted(accept)
    last = math.inf if last_step is None else last_step
    with context.database.read() as session:
        run = find_run(session, run_id)
        question = ("steps", chosen, kind, names, first_step, last_step, limit)
        headers = tags.check(run, *question, vary="Accept, Accept-Encoding")
        columns = _chosen_columns(store.names(session, run_id, kind), names)
        if chosen == "json":
            most = max(1, min(limit, MOST_VALUES // max(1, len(columns))))
            return _page(
                run_id,
                kind,
                columns,
                store.tables(session, run_id, kind, first_step, last, columns),
                most,
            )
        outline = store.outline(session, run_id, kind, first_step, last)
    content, media_type = _FORMS[chosen]
    parts = content(_parts(context, run_id, kind, outline, columns), columns)
    headers["Content-Disposition"] = f'attachment; filename="{run_id}-{kind}.{chosen}"'
    if "zstd" in accept_encoding:
        parts, headers["Content-Encoding"] = formats.zstd(parts), "zstd"
    return Stream(request, EXPORTS, parts, media_type=media_type, headers=headers)


@router.get("/runs/{run_id}/metrics", responses=UNCHANGED)
def metrics(
    run_id: str,
    context: InContext,
    tags: Tags,
    names: Annotated[
        str, Query(max_length=20_000, description="columns, comma-separated")
    ] = JUDGED_LOSS,
    kind: Annotated[
        str, Query(pattern="^(train|validation)$", description="which records")
    ] = "train",
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    points: Annotated[int, Query(ge=1, le=100_000, description="largest number of buckets")] = 2000,
) -> MetricsDocument:
    """Metrics of a run as min, mean and max of buckets; every step if they fit into `points`.

    422 for more than 2 million buckets of all columns together.
    """
    with context.database.read() as session:
        run = find_run(session, run_id)
        tags.check(run, "metrics", names, kind, first_step, last_step, points)
        chosen = _chosen_columns(store.names(session, run_id, kind), names)
        last = math.inf if last_step is None else last_step
        most = store.most_steps(session, run_id, kind, first_step, last)
        check_values(len(chosen), min(points, most))
        reduced = []
        # A curve may be longer than an answer.
        columns_per_read = max(1, MOST_VALUES // max(1, most))
        for first in range(0, len(chosen), columns_per_read):
            some = chosen[first : first + columns_per_read]
            steps, columns = store.read_range(session, run_id, kind, first_step, last, some)
            reduced += [series(name, steps, columns[name], points) for name in some]
    return MetricsDocument(run=run_id, kind=kind, series=reduced)


def _parts(
    context: Context, run_id: str, kind: Kind, outline: store.Outline, names: Sequence[str]
) -> Iterator[Table]:
    """The curve in pieces. No connection is held while the client reads: each range is read in a
    transaction of its own.
    """
    for first, last in outline.ranges:
        with context.database.read() as session:
            parts = [
                *store.tables(session, run_id, kind, first, last, names, outline.newest_attempt)
            ]
        yield from parts


def _page(
    run_id: str, kind: Kind, names: Sequence[str], parts: Iterator[Table], limit: int
) -> StepsDocument:
    read: list[Table] = []
    count = 0
    for part in parts:
        read.append(part)
        count += len(part["step"])
        if count > limit:
            break
    at, table = chunk_tables.joined(read, names)
    # Each of them is listed by itself, which takes more than a number does.
    nonfinite = np.cumsum(
        sum(
            (~np.isfinite(column[:limit]) for column in table.values()),
            np.zeros(min(limit, len(at)), np.int64),
        )
    )
    if len(nonfinite):
        limit = max(1, min(limit, int(np.searchsorted(nonfinite, _NONFINITE_A_PAGE, side="right"))))
    return StepsDocument(
        run=run_id,
        kind=kind,
        steps=at[:limit].tolist(),
        columns={
            name: [value if math.isfinite(value) else None for value in column[:limit].tolist()]
            for name, column in table.items()
        },
        nonfinite=[
            NonFiniteValue(column=name, step=int(at[row]), kind=kind_of(column[row]))
            for name, column in table.items()
            for row in np.flatnonzero(~np.isfinite(column[:limit]))
        ],
        next_from=int(at[limit]) if len(at) > limit else None,
    )


def _accepted(accept: str) -> Format:
    forms: tuple[Format, ...] = ("arrow", "csv")
    return next((form for form in forms if _FORMS[form][1] in accept), "json")


def _chosen_columns(there: Sequence[str], names: str | None) -> list[str]:
    """The columns in a comma-separated list (default: all), each once; InvalidError for one that is
    not recorded (not in `there`).
    """
    chosen = list(there) if names is None else list(dict.fromkeys(names.split(",")))
    recorded = set(there)
    unknown = next((name for name in chosen if name not in recorded), None)
    if there and unknown is not None:
        raise InvalidError(f"names has {unknown!r:.80}, expected some of {cut(', '.join(there))}")
    return chosen
