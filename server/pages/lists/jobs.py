"""The list of jobs with its filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from parity.frozen import frozen
from server.documents.job_lists.answers import ANSWERS, AnswerState, answer_condition, answer_counts
from server.documents.job_lists.filters import SORTS, STATUSES, JobFilters, Sort
from server.documents.job_lists.page import MOST_COUNTED, job_list, known_tags
from server.documents.job_lists.parent_jobs import parentless
from server.pages.lists.rows import rows_of
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()
JOBS_A_PAGE = 50
_CHIPS: Mapping[AnswerState | Literal[""], str] = {
    "": "All",
    "fail": "Fail",
    "inconclusive": "Inconclusive",
    "pass": "Pass",
    "running": "Running",
    "unfinished": "Did not finish",
}
_FIELDS = ("recipe", "model", "branch", "revision", "baseline", "since", "until")
_DAYS = ("since", "until")


@frozen
class Chip:
    """A filter by answer: its word, its mark, how many jobs it shows, and where it leads."""

    word: str
    state: str
    jobs: int
    address: str
    current: bool


@frozen
class Head:
    """A column that sorts: where its head leads, and how it is sorted now."""

    address: str
    now: Literal["", "ascending", "descending"] = ""


@router.get("/jobs")
def index(
    request: Request,
    context: InContext,
    filters: Annotated[JobFilters, Depends()],
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """Jobs, one answer a row. `state` is an answer or a status; everything that the page shows is
    in its address.

    Jobs that belong to another are shown where somebody searches, or asks for those of that job;
    else that job's row counts them.
    """
    answer = next((value for value in ANSWERS if value == state), None)
    if answer is None and state in STATUSES:
        filters = replace(filters, status=state)
    order: Sort = next((value for value in SORTS if value == sort), "newest")
    also = [] if filters.find or filters.parent_job else parentless()
    with context.database.read() as session:
        answered = [*also, answer_condition(answer)] if answer else also
        page = job_list(session, filters, order, cursor, JOBS_A_PAGE, counted=False, also=answered)
        counts = answer_counts(session, filters, also)
        rows = rows_of(session, page.items)
        tags = known_tags(session)
    shown_sort, filter_query = "" if order == "newest" else order, filters.query()
    query = [*filter_query, ("state", answer)] if answer else filter_query
    hidden = [(name, value) for name, value in query if name not in ("find", "tag", *_FIELDS)]
    values = {
        "rows": rows,
        "chips": _chips(filter_query, counts, answer or "", shown_sort),
        "many": sum(counts.values()) > MOST_COUNTED,
        "most": MOST_COUNTED,
        "heads": _heads(query, order),
        "following": _address(query, sort=shown_sort, cursor=page.next_cursor)
        if page.next_cursor
        else None,
        "filters": filters,
        "fields": [(name, getattr(filters, name)) for name in _FIELDS],
        "days": _DAYS,
        "unfolded": any(getattr(filters, name) for name in _FIELDS) or bool(filters.tags),
        "hidden": [*hidden, ("sort", shown_sort)] if shown_sort else hidden,
        "tags": tags,
        "filtered": bool(query),
        "first": _address(query, sort=shown_sort),
        "paged": cursor is not None,
    }
    return templates.TemplateResponse(request, "jobs.html", values)


def _address(query: Sequence[tuple[str, str]], **more: str) -> str:
    pairs = [*query, *((name, value) for name, value in more.items() if value)]
    if not pairs:
        return "/jobs"
    return f"/jobs?{urlencode(pairs)}"


def _chips(
    query: Sequence[tuple[str, str]], counts: Mapping[str, int], state: str, sort: str
) -> list[Chip]:
    numbers = {answer: counts.get(answer, 0) for answer in _CHIPS} | {"": sum(counts.values())}
    return [
        Chip(
            word=word,
            state=answer,
            jobs=numbers[answer],
            address=_address(query, state=answer, sort=sort),
            current=answer == state,
        )
        for answer, word in _CHIPS.items()
    ]


def _heads(query: Sequence[tuple[str, str]], order: Sort) -> Mapping[str, Head]:
    """The columns that sort. A column that sorts already leads to the other direction where there
    is one, else back to the newest first.
    """

    def to(sort: Sort, now: Literal["", "ascending", "descending"] = "") -> Head:
        return Head(address=_address(query, sort="" if sort == "newest" else sort), now=now)

    when: Mapping[Sort, Head] = {
        "newest": to("oldest", "descending"),
        "oldest": to("newest", "ascending"),
    }
    return {
        "name": to("newest", "ascending") if order == "name" else to("name"),
        "gap": to("newest", "descending") if order == "gap" else to("gap"),
        "when": when.get(order, to("newest")),
    }
