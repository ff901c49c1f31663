"""What all figures share: the file they are written to, fixed metadata, colours and letter sizes.

Needs matplotlib (extra `figures`), which no other module imports. Colours are Okabe and Ito's,
and differ in lightness; line style, marker shape and labels repeat what colour says, so that
nothing is lost in grey.
"""

import importlib
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parity.extras import installation

FORMATS = (".png", ".svg", ".pdf")
SMALL, TINY = 8, 7
LABEL_BOX = {"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1.0}


class FigureError(ValueError):
    """A figure that can't be drawn here; the message says what is missing or was expected."""


@contextmanager
def figure_file(path: str, inches: tuple[float, float], title: str | None = None) -> Iterator[Any]:
    """A figure of the given size to draw on, written to `path` afterwards; equal drawings give
    equal files.

    The path's ending chooses the format, `title` goes into the file's metadata. Raises FigureError.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise FigureError(f"{path}: expected a name ending in {', '.join(FORMATS)}")
    with new_figure(inches, path) as figure:
        yield figure
        try:
            figure.savefig(path, dpi=150, metadata=_metadata(path, title))
        except OSError as error:
            raise FigureError(f"{path}: can't be written ({error.strerror})") from None


@contextmanager
def new_figure(inches: tuple[float, float], name: str) -> Iterator[Any]:
    """A figure of the given size to draw on; FigureError, which calls it `name`, where matplotlib
    is missing.
    """
    try:
        matplotlib, figure_module = (
            importlib.import_module("matplotlib"),
            importlib.import_module("matplotlib.figure"),
        )
    except ImportError:
        raise FigureError(
            f"{name}: figures need matplotlib; install it: {installation('figures')}"
        ) from None
    with matplotlib.rc_context(
        {"svg.hashsalt": "parity", "axes.spines.top": False, "font.size": SMALL}
    ):
        yield figure_module.Figure(figsize=inches)


def wrapped(text: str, width: int) -> str:
    """Text in lines of at most `width` characters; a longer word has a line of its own."""
    return textwrap.fill(
        " ".join(text.split()), width, break_long_words=False, break_on_hyphens=False
    )


def _metadata(path: str, title: str | None) -> dict[str, str | None]:
    """Metadata without the time of drawing, so that equal verdicts give equal files."""
    undated: dict[str, dict[str, str | None]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None},
    }
    return {**undated.get(Path(path).suffix.lower(), {}), **({"Title": title} if title else {})}
