"""A job's verdicts as one HTML file that can be mailed: figures inline, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NotRequired, TypedDict

from parity.canonical_json import canonical_json
from parity.judging.document_types import VerdictDocument
from parity.judging.sign_offs import SignOffDocument, accepted
from parity.report.facts import SUMMARY, Detail, details, summary_row
from parity.report.headline import MARKS, answer, pair_words
from parity.report.sign_offs import NOT_A_PASS, accepted_words
from parity.version import VERSION

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid #ddd; }
svg { width: 100%; height: auto; }
pre { overflow-x: auto; }
.pass { color: #0b6e4f; } .fail { color: #b3261e; } .inconclusive { color: #7a5c00; }
"""
# Whatever a name or a figure holds, a browser runs and fetches nothing for this page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class ConcludedJob(TypedDict):
    """What the page needs of a job's document (`GET /api/v1/jobs/JOB`)."""

    id: str
    name: str
    finished_at: str
    verdicts: Sequence[VerdictDocument]
    sign_offs: NotRequired[Sequence[SignOffDocument]]
    criteria: Mapping[str, Any]
    spec: Mapping[str, Any]


def render_page(job: ConcludedJob, figures: Mapping[str, str], url: str) -> str:
    """The page of a concluded job: answers, a table, then per candidate a figure, reasons and advice; policy and specification last.

    `figures`: candidate -> SVG text; `url`: where the job's own page is.
    """
    holding = accepted(job["verdicts"], job["criteria"], job.get("sign_offs", ()))
    parts = [f"<h1>{escape(job['name'])}</h1>", *(f"<p>{answer_html(document)}</p>" for document in job["verdicts"])]
    parts += [f"<p><strong>{NOT_A_PASS}</strong>: {escape(accepted_words(each))}</p>" for each in holding.values()]
    parts.append(table_html([SUMMARY, *map(summary_row, job["verdicts"])]))
    for document, lines in zip(job["verdicts"], details(job["verdicts"]), strict=True):
        parts += [f"<h2>{escape(pair_words(document))}</h2>", _inline(figures[document["candidate"]["name"]]), details_html(lines)]
    for title, value in (("Policy", job["criteria"]), ("Specification", job["spec"])):
        parts.append(f"<details><summary>{title}</summary><pre>{escape(canonical_json(value))}</pre></details>")
    parts.append(f'<p>parity {VERSION}, job {job["id"]}, concluded {job["finished_at"]}: <a href="{escape(url)}">{escape(url)}</a></p>')
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(job["name"])}: parity</title><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def answer_html(document: VerdictDocument) -> str:
    """The verdict in one line."""
    word, _, body = answer(document).partition(":")
    state = document["verdict"]
    return f'<strong class="{state}">{MARKS[state]} {word}</strong>:{escape(body)}'


def table_html(rows: list[tuple[str, ...]]) -> str:
    """A table, its first row the heading."""
    head, *body = rows
    cells = ["".join(f"<th>{escape(cell)}</th>" for cell in head), *("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body)]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def details_html(lines: Iterable[Detail]) -> str:
    """Reasons, facts and advice as a list."""
    heads = ((f"<code>{escape(name)}</code>" if is_code else f"{escape(name)}:", words) for name, words, is_code in lines)
    return "<ul>" + "".join(f"<li>{head} {escape(words)}</li>" for head, words in heads) + "</ul>"


def _inline(svg: str) -> str:
    """The SVG element alone: what stands before it (XML declaration, document type) has no place within HTML."""
    element = re.search(r"<svg\b.*</svg>", svg, re.DOTALL)
    return element[0] if element else ""
