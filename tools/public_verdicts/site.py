"""The public verdicts as files that any file server shows: a page for the list, one for each set,
and of each answer its picture and its verification card.

All addresses are relative, so the folder may lie under any path. The only script filters the list,
and asks no server for anything.
"""

import shlex
import shutil
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader

from parity.frozen import frozen
from server.pages import rendering
from server.pages.public_verdicts import (
    Links,
    PublicPlaces,
    gallery,
    index_values,
    public_rows,
    set_values,
)
from tools.public_verdicts.ladders import ladders
from tools.public_verdicts.pictures import ladder_plot
from tools.public_verdicts.server_page import arguments
from tools.public_verdicts.sets import SETS, SetAnswer, answers
from tools.tables.generated import ROOT
from tools.tables.printed import run

_HERE = Path(__file__).parent
_STATIC = (
    *(ROOT / "parity" / "report" / "static" / name for name in ("parity.css", "verdict.css")),
    *(ROOT / "server" / "pages" / "static" / name for name in ("public.css", "icon.svg")),
    _HERE / "filters.js",
)


@frozen
class SitePlaces(PublicPlaces):
    """The places in the folder, where all pages lie side by side, and the numbers of a set in a
    folder of its own.
    """

    static: str = ""
    listing: str = "index.html"
    docs: str = ""
    filtered_by_script: bool = True

    def set_at(self, name: str) -> str:
        """The page of a set."""
        return f"{name}.html"

    def yaml_of(self, name: str) -> str:
        """The file that judges a set, once its folder is downloaded."""
        return f"{name}/parity.yaml"

    def files(self, answer: Any) -> Links:
        """The picture and the card of an answer."""
        stem = _stem(answer["set"], answer["question"])
        return (
            ("picture", f"{stem}.svg"),
            ("verification card", f"{stem}.card.md"),
            ("the same as YAML", f"{stem}.card.yaml"),
        )

    def numbers(self, name: str) -> Links:
        """The files of a set: its runs, and how they are judged."""
        return [
            (path.name, f"{name}/{path.name}")
            for path in sorted((SETS / name).iterdir())
            if path.is_file()
        ]


def write_site(folder: Path) -> int:
    """Write the site into a folder, and return how many files it has. The folder must be new or
    empty: FileExistsError.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder} is not empty; expected a new folder, in which no file of an earlier site is"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in _STATIC:
        shutil.copy(path, folder)
    (folder / "ladders.svg").write_text(ladder_plot(), encoding="utf-8")
    _write_pages(folder)
    shown = {(row.answer["set"], row.answer["question"]) for row in public_rows()}
    for name in gallery()["sets"]:
        shutil.copytree(SETS / name, folder / name)
    for answer in answers():
        if (answer.of.name, answer.question) in shown and _is_on_its_page(answer):
            _write_picture_and_card(answer, folder)
    return sum(path.is_file() for path in folder.rglob("*"))


def _write_pages(folder: Path) -> None:
    environment = rendering.templates.env.overlay(
        loader=ChoiceLoader(
            [FileSystemLoader(rendering.HERE / "templates"), FileSystemLoader(_HERE)]
        )
    )
    places = SitePlaces()
    values = {"layout": "site_base.html", "recipe": "", "scale": ""}
    page = environment.get_template("site_index.html").render(
        **index_values(public_rows(), places), **values, ladders=[one.name for one in ladders()]
    )
    (folder / places.listing).write_text(page, encoding="utf-8")
    for name in gallery()["sets"]:
        page = environment.get_template("public_set.html").render(
            **set_values(name, places), **values
        )
        # the commands of next steps name files of the checkout, which are next to this page
        page = page.replace(f"{SETS.relative_to(ROOT)}/", "")
        (folder / places.set_at(name)).write_text(page, encoding="utf-8")


def _is_on_its_page(answer: SetAnswer) -> bool:
    """Whether the page of its set has its first screen: of several sizes the largest has."""
    return any(
        row.answer["screen"]
        for row in public_rows()
        if (row.answer["set"], row.answer["question"]) == (answer.of.name, answer.question)
        and (not answer.size or row.answer["label"].startswith(answer.size))
    )


def _write_picture_and_card(answer: SetAnswer, folder: Path) -> None:
    """Both are made by the command line, as a reader would; RuntimeError where it wrote none."""
    stem = _stem(answer.of.name, answer.question)
    picture, card, text = (folder / f"{stem}.{kind}" for kind in ("svg", "card.yaml", "card.md"))
    run(f"parity compare {arguments(answer)} --figure {shlex.quote(str(picture))}")
    run(f"parity card {arguments(answer)} --to {shlex.quote(str(card))}")
    for path in (picture, card, text):
        if not path.is_file():
            raise RuntimeError(f"{path} was not written for {arguments(answer)}")


def _stem(name: str, question: str) -> str:
    return f"{name}-{question}" if question else name
