"""The pages of public verdicts: published runs that were judged when this version was made.

They show `public.json`, which tools/tables/public_verdicts.py writes and a test compares with
today's judge; nothing is judged here. They need no token, since they show no data of this server.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from markupsafe import Markup

from parity.frozen import frozen
from parity.report.picture.forest import DrawnGap, row_svg
from parity.report.picture.forest import GapAxis as MarginAxis
from server.errors import NotFoundError
from server.pages.rendering import known_visitor, templates

public = APIRouter(include_in_schema=False, dependencies=[Depends(known_visitor)])
Links = Sequence[tuple[str, str]]  # words and address
PUBLIC_AXIS = MarginAxis(low=-4.0, high=8.0, margin=1.0)
PUBLIC_TICKS = [
    (PUBLIC_AXIS.place(margins), words)
    for margins, words in ((-4.0, "\u22124"), (0.0, "0"), (1.0, "1"), (4.0, "4"), (8.0, "8"))
]


@frozen
class PublicRow:
    """An answer in the list: its words as packaged, what is known of its set, and its figure on the
    axis of all.
    """

    answer: Any
    about: Any
    figure: Markup


@functools.cache
def gallery() -> Any:
    """All public verdicts: `sets` by name, `answers` in their order, `scales` and the `judge`."""
    return json.loads((Path(__file__).parent / "public.json").read_text(encoding="utf-8"))


@functools.cache
def public_rows() -> tuple[PublicRow, ...]:
    """Every answer with its figure, in margins."""
    drawn = []
    for answer in gallery()["answers"]:
        mean, lo, hi = answer["margins"]
        figure = row_svg(
            DrawnGap(mean=mean, lo=lo, hi=hi, margin=1.0, state=answer["verdict"]), PUBLIC_AXIS
        )
        words = figure.replace('aria-label="gap ', 'aria-label="in margins: gap ')
        drawn.append(
            PublicRow(answer=answer, about=gallery()["sets"][answer["set"]], figure=Markup(words))  # noqa: S704
        )
    return tuple(drawn)


@frozen
class PublicPlaces:
    """Where the pages of public verdicts lead on a server: `static` begins the address of a style,
    `docs` is "" where there is no documentation. `filtered_by_script`: the filters are no request.
    """

    static: str = "/static/"
    listing: str = "/public"
    docs: str = "/docs/public-verdicts/"
    filtered_by_script: bool = False

    def set_at(self, name: str) -> str:
        """The page of a set."""
        return f"/public/{name}"

    def yaml_of(self, name: str) -> str:
        """The file that judges a set, as it is typed in a checkout."""
        return f"examples/public/{name}/parity.yaml"

    def files(self, answer: Any) -> Links:  # noqa: ARG002
        """What can be downloaded of an answer: nothing, since a server keeps none."""
        return ()

    def numbers(self, name: str) -> Links:  # noqa: ARG002
        """The files of a set's runs: none likewise."""
        return ()


def index_values(rows: Sequence[PublicRow], places: PublicPlaces) -> dict[str, Any]:
    """What the template of the list shows."""
    return {
        "rows": rows,
        "of": len(public_rows()),
        "families": list(dict.fromkeys(row.answer["family"] for row in public_rows())),
        "scales": gallery()["scales"],
        "ticks": PUBLIC_TICKS,
        "width": PUBLIC_AXIS.width,
        "judge": gallery()["judge"],
        "places": places,
    }


def set_values(name: str, places: PublicPlaces) -> dict[str, Any]:
    """What the template of a set shows: what is known of it, and the first screen of each
    verdict.
    """
    rows = [row for row in public_rows() if row.answer["set"] == name]
    screens = [(row.answer, Markup(row.answer["screen"])) for row in rows if row.answer["screen"]]  # noqa: S704
    return {
        "name": name,
        "about": rows[0].about,
        "rows": rows,
        "screens": screens,
        "ticks": PUBLIC_TICKS,
        "width": PUBLIC_AXIS.width,
        "places": places,
    }


@public.get("/public")
def public_index(
    request: Request,
    recipe: Annotated[str, Query(max_length=40)] = "",
    scale: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """The list with one axis for all; `recipe` and `scale` choose answers."""
    shown = [
        row
        for row in public_rows()
        if recipe in ("", row.answer["family"]) and scale in ("", row.answer["scale"])
    ]
    values = {**index_values(shown, PublicPlaces()), "recipe": recipe, "scale": scale}
    return templates.TemplateResponse(request, "public.html", {**values, "layout": "base.html"})


@public.get("/public/{name}")
def public_set(name: str, request: Request) -> Response:
    """One set: what is known of it, and the first screen of each verdict."""
    if name not in gallery()["sets"]:
        raise NotFoundError(f"no public set is called {name!r}; /public lists them")
    values = {**set_values(name, PublicPlaces()), "layout": "base.html"}
    return templates.TemplateResponse(request, "public_set.html", values)
