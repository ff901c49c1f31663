"""The details of the page: reasons, numbers, curves and evidence."""

import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from parity.canonical_json import canonical_json
from parity.inert import cell
from parity.report.details import Detail, details
from parity.report.html.code_words import with_code
from parity.report.html.downloads import file_name
from parity.report.html.screen import DetailsRow
from parity.report.picture.picture import picture
from parity.report.picture.scene import Scene
from parity.report.summary import SUMMARY, summary_row
from parity.report.view import TrainingView, View
from parity.version import VERSION
from parity.wording import minus

_CSV_DIGITS = 5
_COLUMNS = ("mean", "lo", "hi")


def reasons_row(views: Sequence[View], shown_above: str) -> DetailsRow:
    """Reasons, facts and advice of each candidate, without the next step that is shown above."""
    several = len(views) > 1
    codes = [
        f"{view.candidate.name} {view.code}" if several else ", ".join(view.codes) for view in views
    ]
    parts = []
    for view, lines in zip(views, details(views), strict=True):
        parts += [f"<p><b>{escape(view.candidate.title)}</b></p>"] if several else []
        parts.append(details_html(line for line in lines if minus(line.words) != shown_above))
    return DetailsRow("r", "Reasons", escape(" · ".join(codes)), "".join(parts), is_open=True)


def details_html(lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice as a list."""
    heads = (
        (f"<code>{escape(name)}</code>" if is_code else f"{escape(name)}:", text)
        for name, text, is_code in lines
    )
    items = "".join(f"<li>{head} {with_code(minus(text))}</li>" for head, text in heads)
    return f"<ul>{items}</ul>"


def numbers_row(views: Sequence[View], job: str) -> DetailsRow:
    """The judged numbers as a table, and the paths as a file whose name says of which job and
    verdict.
    """
    table = table_html([SUMMARY, *map(summary_row, views)])
    text = path_csv(views)
    name = escape(file_name(job, views, "gap nats")) + ".csv"
    link = (
        f'<p><a download="{name}" '
        f'href="data:text/csv;charset=utf-8,{urllib.parse.quote(text, safe=",.:+ ")}">{name}</a>: '
    )
    if text.count("\n") > 1:
        download = f"{link}gap and interval of each point of the picture, nats</p>"
    else:
        download = ""
    body = (
        '<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Numbers">{table}</div>{download}'
    )
    return DetailsRow("n", "Numbers", "gap, interval, margin in nats", body, is_open=True)


def path_csv(views: Sequence[View]) -> str:
    """The paths as CSV: a row for each point of a candidate, nats; of evaluations `over` says which
    interval it is.
    """
    lines = [f"candidate,over,step,{','.join(f'{column}_nats' for column in _COLUMNS)}"]
    for view in views:
        path: Any = view.document.get("path") or ()
        if isinstance(path, Mapping):
            paths = [(kind.removeprefix("over_"), points) for kind, points in path.items()]
        else:
            paths = [("", path)]
        name = _cell(view.candidate.title)
        for over, points in paths:
            lines += [
                f"{name},{over},{at['step']},{','.join(f'{at[key]:.{_CSV_DIGITS}g}' for key in _COLUMNS)}"  # noqa: E501
                for at in points
            ]
    return "\n".join(lines) + "\n"


def _cell(name: str) -> str:
    """A name as a cell, which no spreadsheet takes for a formula."""
    plain = cell(name)
    if plain.isascii() and not set(plain) & set(',"\n\r'):
        return plain
    return '"{}"'.format(plain.replace('"', '""'))


def table_html(rows: Sequence[tuple[str, ...]]) -> str:
    """A table, its first row the heading."""
    head, *body = rows
    cells = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    cells += ["".join(f"<td>{escape(minus(cell))}</td>" for cell in row) for row in body]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def curves_row(scene: Scene) -> list[DetailsRow]:
    """The losses of the arms as a picture of their own."""
    if not scene.losses or not scene.has_gap:
        return []
    alone = replace(
        scene,
        traces=[
            replace(trace, judged=(), path=(), outer=(), dots=(), line="") for trace in scene.traces
        ],
    )
    alone = replace(alone, legend="first run of each arm")
    names = [arm.name for arm in scene.losses]
    shown = ", ".join(names[:3])
    # no losses of last points: they are noise beside the gap of the window, and may contradict it
    answer = f"losses of {shown}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
    return [
        DetailsRow("c", "Curves", escape(answer), picture(alone, with_points=False), is_open=True)
    ]


def evidence_row(views: Sequence[View]) -> DetailsRow:
    """What the verdicts were computed from, and by whom."""
    judge = views[0].judge
    digests = [
        (view.candidate.name, view.document["inputs"]["sha256_aligned"])
        for view in views
        if isinstance(view, TrainingView)  # evaluations are not aligned step by step
    ]
    series = "".join(
        f"<li>{escape(name)}: <code>{escape(digest)}</code></li>" for name, digest in digests
    )
    listed = f"<p>SHA-256 of the aligned series:</p><ul>{series}</ul>" if digests else ""
    body = (
        f"{listed}<p><code>parity verify</code> recomputes a verdict from its evidence bundle, "
        "offline.</p>"
    )
    return DetailsRow(
        "e", "Evidence", f"judge {escape(judge)}, parity {VERSION}", body, is_open=True
    )


def code_row(key: str, title: str, answer: str, value: object) -> DetailsRow:
    """A value as JSON."""
    return DetailsRow(
        key, title, answer, f"<pre>{escape(canonical_json(value))}</pre>", is_open=True
    )
