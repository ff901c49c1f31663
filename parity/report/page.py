"""The report: verdicts as one HTML file that works without a server, without a network and, as CI
attaches it, without scripts.

It is the page of a verdict with its details open. What a browser may run and load is in the file's
own policy: at most the one script in it, by its digest.
"""

import base64
import hashlib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from parity.canonical_json import canonical_json
from parity.inert import cell
from parity.judging.bundles.evidence import Case
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.verdict.path import evaluation_path_of
from parity.judging.verdict.sign_offs import SignOffDocument, accepted
from parity.report.candidates import safest_first
from parity.report.details import Detail, details
from parity.report.downloads import file_name
from parity.report.html.screen import Row
from parity.report.picture import picture
from parity.report.scene import Scene, case_scene, scene_of
from parity.report.screen import Screen, answer_of, candidates_table, screen_html
from parity.report.sign_off_words import NOT_A_PASS, accepted_words
from parity.report.summary import SUMMARY, summary_row
from parity.report.view import AnyDocument, TrainingView, View, view_of, views_of
from parity.report.words import words
from parity.version import VERSION
from parity.wording import minus

_STATIC = Path(__file__).parent / "static"
_CSV_DIGITS = 5
_COLUMNS = ("mean", "lo", "hi")


@cache
def verdict_style() -> str:
    """The style of the page and of its picture."""
    return (_STATIC / "verdict.css").read_text(encoding="utf-8")


@cache
def verdict_script() -> str:
    """The script of the page: keys, cursor and the choice of a candidate."""
    return f"{{{(_STATIC / 'verdict.js').read_text(encoding='utf-8')}}}"


class ConcludedJob(TypedDict):
    """What the report needs of a job's document (`GET /api/v1/jobs/JOB`)."""

    id: str
    name: str
    finished_at: str
    verdicts: Sequence[VerdictDocument]
    sign_offs: NotRequired[Sequence[SignOffDocument]]
    policy: Mapping[str, Any]
    spec: Mapping[str, Any]


def case_report(case: Case, documents: Sequence[VerdictDocument]) -> str:
    """The report of a judged case, its documents with paths, with the script: `parity compare
    --html` and `--open`.
    """
    rows = [
        _code_row(
            "p",
            "Policy",
            "margin, confidence and checks of this comparison",
            case.policy.document(),
        )
    ]
    context = [
        *_context(documents),
        *([f"{case.planned_steps:,} steps planned"] if case.planned_steps else []),
    ]
    return report_page(
        documents, case_scene(case, documents), ["parity compare", *context], rows, with_script=True
    )


def evaluation_report(case: EvaluationCase, documents: Sequence[EvaluationDocument]) -> str:
    """The report of a comparison of evaluations, with the script."""
    drawn: list[EvaluationDocument] = [
        {**document, "path": evaluation_path_of(case, document["candidate"]["name"])}
        for document in documents
    ]
    rows = [
        _code_row(
            "p",
            "Policy",
            "margin, confidence and checks of this comparison",
            case.policy.document(),
        )
    ]
    return report_page(
        drawn, scene_of(drawn), ["parity compare", *_context(drawn)], rows, with_script=True
    )


def job_report(job: ConcludedJob, url: str) -> str:
    """The report of a concluded job, without a script; `url` is where the job's own page is."""
    documents = job["verdicts"]
    holding = accepted(documents, job["policy"], job.get("sign_offs", ()))
    signed = "; ".join(f"{NOT_A_PASS}: {accepted_words(sign_off)}" for sign_off in holding.values())
    rows = [
        _code_row("p", "Policy", "margin, confidence and checks of this job", job["policy"]),
        _code_row("s", "Specification", "what was trained", job["spec"]),
        Row(
            "j",
            "Job",
            escape(job["id"]),
            f'<p>The job’s page: <a href="{escape(url)}">{escape(url)}</a></p>',
            is_open=True,
        ),
    ]
    when = job["finished_at"][:16].replace("T", ", ")
    context = [job["name"], *_context(documents), f"{when} UTC", job["id"]]
    return report_page(documents, scene_of(documents), context, rows, signed)


def _context(documents: Sequence[AnyDocument]) -> list[str]:
    if len(documents) == 1:
        return [view_of(documents[0]).pair]
    bases = {document["baseline"]["name"] for document in documents}
    return [
        (
            f"{len(documents)} candidates against "
            f"{bases.pop() if len(bases) == 1 else 'their own baselines'}"
        )
    ]


def report_page(
    documents: Sequence[AnyDocument],
    scene: Scene,
    context: Sequence[str],
    rows: Sequence[Row] = (),
    accepted_by: str = "",
    *,
    with_script: bool = False,
) -> str:
    """The page of these verdicts: one file, details open. `rows` stand behind its own details."""
    ordered, answer = safest_first(views_of(documents)), answer_of(documents)
    screen = Screen(
        context=context,
        answer=answer,
        picture=picture(scene, with_points=with_script),
        table=candidates_table(documents),
        accepted=accepted_by,
        details=[
            _reasons(ordered, answer.next),
            _numbers(ordered, context[0]),
            *_curves(scene),
            *rows,
            _evidence(ordered),
        ],
        is_dense=scene.is_dense,
        has_keys=with_script,
    )
    said = words(ordered[0])
    allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    script = ""
    if with_script:
        digest = base64.b64encode(hashlib.sha256(verdict_script().encode()).digest()).decode()
        allowed += f"; script-src 'sha256-{digest}'"
        script = f"<script>{verdict_script()}</script>"
    plain = "" if with_script else " plain"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta '
        f'http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
        'name="color-scheme" content="light dark">'
        '<link rel="icon" '
        f'href="data:,"><title>{escape(f"{said.verdict.upper()}: {said.lead}")}</title>'
        f"<style>{verdict_style()}body{{margin:0}}</style></head>\n"
        '<body class="v"><main class="v '
        f'wrap{plain}">{screen_html(screen)}</main>{script}</body></html>\n'
    )


# Its details.


def _reasons(views: Sequence[View], shown_above: str) -> Row:
    """Reasons, facts and advice of each candidate, without the next step that is shown above."""
    several = len(views) > 1
    codes = [
        f"{view.candidate.name} {view.code}" if several else ", ".join(view.codes) for view in views
    ]
    parts = []
    for view, lines in zip(views, details(views), strict=True):
        parts += [f"<p><b>{escape(view.candidate.title)}</b></p>"] if several else []
        parts.append(details_html(line for line in lines if minus(line.words) != shown_above))
    return Row("r", "Reasons", escape(" · ".join(codes)), "".join(parts), is_open=True)


def details_html(lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice as a list."""
    heads = (
        (f"<code>{escape(name)}</code>" if is_code else f"{escape(name)}:", text)
        for name, text, is_code in lines
    )
    return (
        "<ul>" + "".join(f"<li>{head} {escape(minus(text))}</li>" for head, text in heads) + "</ul>"
    )


def _numbers(views: Sequence[View], job: str) -> Row:
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
    return Row("n", "Numbers", "gap, interval, margin in nats", body, is_open=True)


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


def _curves(scene: Scene) -> list[Row]:
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
    last = ", ".join(f"{arm.name} {arm.points[-1][1]:.4f}" for arm in scene.losses[:3])
    answer = f"loss at the end: {last}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
    return [Row("c", "Curves", escape(answer), picture(alone, with_points=False), is_open=True)]


def _evidence(views: Sequence[View]) -> Row:
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
    return Row("e", "Evidence", f"judge {escape(judge)}, parity {VERSION}", body, is_open=True)


def _code_row(key: str, title: str, answer: str, value: object) -> Row:
    return Row(key, title, answer, f"<pre>{escape(canonical_json(value))}</pre>", is_open=True)


# A verdict as HTML for a notebook: the answer, the picture, and the reasons and numbers folded. No
# script, nothing from elsewhere.

_NOTEBOOK_STYLE = """
.parity-verdict { max-width: 860px; padding: 8px; }
.parity-verdict p { margin: 4px 0; }
.parity-verdict .pic { --h: 280px; }
.parity-verdict summary { cursor: pointer; }
.parity-verdict ul { margin: 4px 0; padding-left: 20px; }
"""


def notebook_html(document: AnyDocument, scene: Scene) -> str:
    """The HTML of one verdict, with light or dark paper of its own."""
    view = view_of(document)
    said = words(view)
    (lines,) = details([view])
    sentences = minus(" ".join(part for part in (said.lead, said.measure, said.interval) if part))
    step = f"<p>Next: {escape(minus(said.next))}</p>" if said.next else ""
    return (
        f'<div class="v parity-verdict"><style>{verdict_style()}{_NOTEBOOK_STYLE}</style>'
        f'<p><strong class="c-{said.verdict} tinted">{said.chip}</strong> '
        f"{escape(sentences)}</p>{picture(scene, with_points=False)}{step}"
        f"<details><summary>Reasons and numbers</summary>{details_html(lines)}</details></div>"
    )
