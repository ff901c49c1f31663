"""Several jobs side by side over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from server.documents.matrix import MOST_JOBS, Columns, Matrix, matrix
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["jobs"])


@router.get("/jobs:compare")
def compare(
    context: InContext,
    job: Annotated[
        list[str],
        Query(min_length=1, max_length=MOST_JOBS, description="id of a job; repeat it for several"),
    ],
    by: Annotated[
        Columns, Query(description="what makes two candidates one column: the recipe, or the name")
    ] = "recipe",
) -> Matrix:
    """Jobs side by side: a row per job, a column per recipe, and what keeps rows from being
    compared.
    """
    with context.database.read() as session:
        return matrix(session, job, by)
