"""The page of run-to-run noise: families of reruns, on record, imported, shipped and public, and
one family's groups as a plot.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.curve import ROUNDINGS
from parity.judging.noise.any_decoder import evidence_families
from parity.judging.noise.emulated_table import emulated_noise_table
from parity.judging.noise.listing import any_decoder_rows, family_rows, outliers_of
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable
from parity.judging.noise.public_table import public_noise_table
from server.database.clock import time_text
from server.documents.principals import principal_names
from server.errors import NotFoundError
from server.jobs.imported_noise import imported_groups, imported_noise_tables
from server.jobs.noise_tables import noise_table_on_record
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()
Where = Literal["record", "imported", "shipped", "public"]
PLOT_WIDTH = 400.0
_PLACES: Mapping[Where, str] = {
    "record": "on record here",
    "imported": "imported; used by jobs that name it",
    "shipped": "ships with engine emulated; used by jobs of small models",
    "public": "public reruns",
}
# shares of the loss
_TICKS = tuple(digit * 10.0**power for power in range(-6, 0) for digit in (1.0, 2.0, 5.0))


@frozen
class GroupRow:
    """A group (or, for `any-decoder`, a family) in the plot: its run-to-run noise as a share of the
    loss with its 95 % interval.

    `origin` is where an imported one is from: its importer, source and licence.
    """

    name: str
    runs: int
    rounding: str
    share: float
    low: float
    high: float
    outlier: bool
    origin: str = ""


@frozen
class NoiseAxis:
    """A logarithmic axis of shares of the loss, PLOT_WIDTH units wide."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """Where a share lies, from 0 to PLOT_WIDTH."""
        place = (math.log(share) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return PLOT_WIDTH * min(max(place, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        """The round shares on it."""
        return [tick for tick in _TICKS if self.low <= tick <= self.high]


@router.get("/noise-tables")
def page(
    request: Request,
    context: InContext,
    family: Annotated[str, Query(max_length=200)] = "",
    where: Annotated[Where | None, Query()] = None,
) -> Response:
    """The list of families, or one of them with its groups: that on record, else the imported, the
    shipped or the public one.
    """
    with context.database.read() as session:
        record, imported = noise_table_on_record(session), imported_noise_tables(session)
        origins = _origins(session, family) if family in imported.families else {}
    tables: Mapping[Where, NoiseTable] = {
        "record": record,
        "imported": imported,
        "shipped": emulated_noise_table(),
        "public": public_noise_table(),
    }
    if not family:
        listed = [
            (row, place)
            for place in ("record", "imported", "shipped")
            for row in family_rows(tables[place])
        ]
        listed += [
            (row, "public")
            for row in (*any_decoder_rows(public_noise_table()), *family_rows(public_noise_table()))
        ]
        return templates.TemplateResponse(
            request, "noise_tables.html", {"rows": listed, "places": _PLACES}
        )
    having: list[Where] = [name for name in tables if family in tables[name].families]
    place: Where = where or (having or ["public"])[0]
    noise_table = tables[place]
    if family == ANY_DECODER:
        rows = _rows_between(noise_table)
    else:
        rows = _rows(noise_table, family, origins if place == "imported" else {})
    recorded = {row.rounding for row in rows}
    noise_sources = [
        (rounding, find_noise_source(noise_table, family, rounding)) for rounding in ROUNDINGS
    ]
    pooled = [
        (rounding, noise_source.noise)
        for rounding, noise_source in noise_sources
        if noise_source.noise and (family == ANY_DECODER or rounding in recorded)
    ]
    shares = [share for row in rows for share in (row.low, row.high)] + [
        noise.share for _, noise in pooled
    ]
    axis = NoiseAxis(low=min(shares, default=1e-4) / 1.3, high=max(shares, default=1e-2) * 1.3)
    problems = noise_table.families[family].problems if family in noise_table.families else ()
    values = {
        "family": family,
        "rows": rows,
        "pooled": pooled,
        "axis": axis,
        "width": PLOT_WIDTH,
        "problems": problems,
        "noise_sources": noise_sources,
    }
    return templates.TemplateResponse(request, "noise_tables.html", {**values, "place": place})


def _origins(session: Session, family: str) -> dict[str, str]:
    """Who imported each group of a family, and the source and licence that its table states."""
    groups = imported_groups(session, family)
    names = principal_names(session, {group.imported_by for group in groups.values()})
    return {
        name: f"imported {time_text(group.imported_at)[:10]} by "
        f"{names.get(group.imported_by, group.imported_by)}; "
        f"source: {group.cells['source'] or 'not stated'}; licence: "
        f"{group.cells['licence'] or 'not stated'}"
        for name, group in groups.items()
    }


def _rows(noise_table: NoiseTable, name: str, origins: Mapping[str, str]) -> list[GroupRow]:
    if name not in noise_table.families:
        raise NotFoundError(
            f"no family {name!r} on record, imported, shipped or public; the page without `family` "
            "lists them"
        )
    outliers = outliers_of(noise_table, name)
    rows = []
    for group in sorted(
        noise_table.families[name].groups, key=lambda group: (group.rounding or "", group.share)
    ):
        low, high = group.interval
        rows.append(
            GroupRow(
                name=group.group,
                runs=group.runs,
                rounding=group.rounding or "not stated",
                share=group.share,
                low=low,
                high=high,
                outlier=group.group in outliers,
                origin=origins.get(group.group, ""),
            )
        )
    return rows


def _rows_between(noise_table: NoiseTable) -> list[GroupRow]:
    rows = []
    for family in sorted(evidence_families(noise_table), key=lambda family: family.share):
        low, high = family.interval
        runs = sum(group.runs for group in family.groups)
        rows.append(
            GroupRow(
                name=family.name,
                runs=runs,
                rounding="nearest",
                share=family.share,
                low=low,
                high=high,
                outlier=False,
            )
        )
    return rows
