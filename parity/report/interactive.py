"""Verdicts and their charts as one HTML file that works without a server and a network; and as one without scripts that can be mailed."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from parity.judging.curve import Curve, FloatArray, IntArray, usable
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case
from parity.judging.live.gap_chart import BinnedGap, Range, step_edges
from parity.judging.sign_offs import SignOffDocument, accepted
from parity.report.facts import NEXT, NOT_A_PASS, SUMMARY, Detail, accepted_words, details, summary_row
from parity.report.figures import interval_level, on_edges, reduced, spike_steps, verdict_gap
from parity.report.svg import NARROW, STYLE, WIDE, axis_of, estimate_of, gap_svg, head_svg, row_svg
from parity.report.words import MARKS, pair_words, words
from parity.structure import canonical_json
from parity.version import VERSION
from parity.wording import minus

# What the charts of a page draw: the gap in bins and the losses in buckets, in the forms of the server's `gap` and `overlay`.

BINS = {"whole": 150, "part": 1500}  # of the gap: for the whole run, and for a part that is zoomed into
RAW_STEPS, BUCKETS = 5000, 2500  # up to so many steps each is drawn, else so many buckets
_DIGITS = 8
_LISTED = 1000
SPACINGS = {"linear": False, "log": True}


def gaps_data(case: Case, documents: Sequence[VerdictDocument]) -> dict[str, Any]:
    """The gaps of all candidates on the same bins, linear and logarithmic in the step, for the whole run and finer for a part of it."""
    ends = _common_ends(case)
    bins = {}
    for name, log in SPACINGS.items():
        for extent, count in BINS.items():
            edges = step_edges(*ends, count, log=log) if ends else np.zeros(0, np.int64)
            bins[f"{name} {extent}"] = _on_bins(case, documents, edges, ends[1] if ends else 0)
    return {
        "baseline": documents[0]["baseline"]["name"],
        "planned_steps": last_step(case),
        "bins": bins,
        "candidates": [_facts(case, document) for document in documents],
    }


def _common_ends(case: Case) -> tuple[int, int] | None:
    """First and last step that the baseline and any candidate have; None without a common step."""
    sides = [case.baseline, [run for runs in case.candidates.values() for run in runs]]
    logged = [[(int(run.steps[0]), int(run.steps[-1])) for run in runs if len(run.steps)] for runs in sides]
    if not all(logged):
        return None
    first, last = max(min(first for first, _ in side) for side in logged), min(max(last for _, last in side) for side in logged)
    return (first, last) if first <= last else None


def _facts(case: Case, document: VerdictDocument) -> dict[str, Any]:
    """What a candidate's gap has that bins do not change."""
    gap = verdict_gap(document, case, Range(bins=1))
    spikes = spike_steps(document)
    return {
        "candidate": document["candidate"]["name"],
        "nonfinite_baseline": gap.nonfinite_baseline[:_LISTED].tolist(),
        "nonfinite_candidate": gap.nonfinite_candidate[:_LISTED].tolist(),
        "nonfinite_count": len(gap.nonfinite_baseline) + len(gap.nonfinite_candidate),
        "spikes_baseline": spikes[0],
        "spikes_candidate": spikes[1],
        "margin_nats": gap.margin_nats,
        "level_nats": gap.level,
        "window": list(gap.window),
        "confidence": interval_level(document) or case.criteria.confidence,
    }


def _on_bins(case: Case, documents: Sequence[VerdictDocument], edges: IntArray, last: int) -> dict[str, Any]:
    """The bins that any candidate has: their ends, and mean, half width (nats) and common steps of each candidate."""
    made = [on_edges(verdict_gap(document, case, Range(edges=edges)), edges) for document in documents]
    held = np.any([n > 0 for _, _, n in made], axis=0)
    return {
        "first_step": edges[held].tolist(),
        "last_step": np.append(edges[1:] - 1, last)[: len(edges)][held].tolist(),
        "candidates": [
            {"mean": _numbers(mean[held]), "half_width": _numbers(half_width[held]), "n": n[held].tolist()} for mean, half_width, n in made
        ],
    }


def last_step(case: Case) -> int:
    """The end of the charts: the plan's, or the last step that was logged."""
    logged = [int(run.steps[-1]) for _, _, runs in case.arms() for run in runs if len(run.steps)]
    return max([case.planned_steps or 1, *logged])


def loss_data(case: Case) -> dict[str, Any]:
    """The losses of the first run of each arm on common steps or buckets, linear and logarithmic in the step."""
    arms = [(case.baseline_name or "baseline", case.baseline[0]), *((name, runs[0]) for name, runs in case.candidates.items())]
    grid = np.unique(np.concatenate([run.steps for _, run in arms])) if arms else np.zeros(0, np.int64)
    is_raw = len(grid) <= RAW_STEPS
    return {
        "aggregation": "none" if is_raw else "minmaxmean",
        **{name: _on_edges(arms, grid, grid if is_raw else _edges(grid, log=log), is_raw=is_raw) for name, log in SPACINGS.items()},
    }


def _edges(grid: IntArray, *, log: bool) -> IntArray:
    """First steps of the buckets, each with a step of the grid in it."""
    at = np.searchsorted(grid, step_edges(int(grid[0]), int(grid[-1]), BUCKETS, log=log))
    return grid[np.unique(at[at < len(grid)])]


def _on_edges(arms: Sequence[tuple[str, Curve]], grid: IntArray, first: IntArray, *, is_raw: bool) -> dict[str, Any]:
    starts = np.searchsorted(grid, first)
    ends = np.append(starts, len(grid))[1:]
    return {
        "first_step": first.tolist(),
        "last_step": grid[ends - 1].tolist(),
        "n": (ends - starts).tolist(),
        "arms": [{"arm": name, "line": _line(run, first, is_raw=is_raw)} for name, run in arms],
    }


def _line(run: Curve, first: IntArray, *, is_raw: bool) -> dict[str, Any]:
    finite = usable(run.loss)
    steps, loss = run.steps[finite], run.loss[finite]
    bad = [{"step": int(step), "kind": _kind(value)} for step, value in zip(run.steps[~finite], run.loss[~finite], strict=True)]
    mean, low, high = (np.full(len(first), np.nan) for _ in range(3))
    if len(steps):
        bucket = np.searchsorted(first, steps, side="right") - 1
        starts = np.unique(bucket, return_index=True)[1]
        there = bucket[starts]
        mean[there], low[there], high[there] = reduced(loss, starts)
    return {
        "mean": _numbers(mean),
        "minimum": None if is_raw else _numbers(low),
        "maximum": None if is_raw else _numbers(high),
        "nonfinite": bad[:_LISTED],
    }


def _kind(value: float) -> str:
    if np.isnan(value):
        return "nan"
    return "+inf" if value > 0 else "-inf"


def _numbers(values: FloatArray) -> list[float | None]:
    """Values with eight digits, None where one is not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


# The scripts of the charts as text for one file: our modules in an import map, and the chart library.
#
# The library (uPlot, MIT) is not in the repository. `npm ci` puts it into node_modules, and a wheel that is built after that contains it.

_STATIC = Path(__file__).parent / "static"
ENTRY = "offline"
_VENDOR = _STATIC / "vendor" / "uplot"  # in a wheel
_INSTALLED = Path(__file__).parents[2] / "node_modules" / "uplot"  # in a checkout
_LIBRARY_ADDRESS = "/static/vendor/uplot/uPlot.esm.js"  # the server's
_IMPORT = re.compile(r'(from|import) "\./(\w+)\.js"')


def library_folder() -> Path | None:
    """The folder of the chart library, or None where this installation lacks it."""
    return next((folder for folder in (_VENDOR, _INSTALLED) if (folder / "dist" / "uPlot.iife.min.js").is_file()), None)


@cache
def library_script(folder: Path) -> str:
    """The chart library as a classic script, its licence before it."""
    licence = (folder / "LICENSE").read_text(encoding="utf-8").replace("*/", "")
    return f"/* {licence} */\n{(folder / 'dist' / 'uPlot.iife.min.js').read_text(encoding='utf-8')}"


def style(folder: Path | None) -> str:
    """The style of the pages, and of the chart library where there is one."""
    own = (_STATIC / "parity.css").read_text(encoding="utf-8")
    return own if folder is None else own + (folder / "dist" / "uPlot.min.css").read_text(encoding="utf-8")


@cache
def import_map() -> str:
    """The import map (JSON) of the modules that the entry needs, each as a data: URL, under bare names."""
    modules = {"uplot": "export default globalThis.uPlot;"}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name in modules:
            continue
        text = (_STATIC / f"{name}.js").read_text(encoding="utf-8")
        waiting += [match[2] for match in _IMPORT.finditer(text)]
        modules[name] = _IMPORT.sub(r'\1 "\2"', text).replace(_LIBRARY_ADDRESS, "uplot")
    addresses = {name: f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}" for name, text in modules.items()}
    return json.dumps({"imports": addresses}, sort_keys=True)


# A job's verdicts as one HTML file that can be mailed: figures inline, no script, nothing loaded from elsewhere.

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
    told = words(document)
    sentences = minus(" ".join(part for part in (told.lead, told.measure, told.interval) if part))
    return f'<strong class="{told.verdict}">{told.chip}</strong>: {escape(sentences)}'


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


# `parity compare --open`: verdicts and their charts as one HTML file that works without a server and without a network.
#
# The page's policy lets only its own scripts run, by their digest, and loads nothing.

_KEYS = "Arrow keys move the cursor, plus and minus zoom, Shift with an arrow key pans, 0 resets."
_STYLED = 8  # candidates that have a colour and line of their own (view.js)
_HEADS = ("Gap, nats", "Interval", "% of L", "Margin")
_OWN_STYLE = """
main { padding-bottom: 48px; }
.parity-gap.narrow { display: none; }
@media (max-width: 600px) { .parity-gap.narrow { display: block; } .parity-gap.wide { display: none; } }
pre { overflow-x: auto; font-size: 13px; }
li { overflow-wrap: anywhere; }
"""


def comparison_page(case: Case, documents: Sequence[VerdictDocument]) -> str:
    """The page: answers first, then the charts, then reasons, numbers and policy.

    Without the chart library in this installation the charts are drawings: the gap only, and without zoom.
    """
    folder = library_folder()
    names = [document["candidate"]["name"] for document in documents]
    title = f"{', '.join(names)} against {case.baseline_name}"
    parts = [f"<h1>{escape(title)}</h1>", *(_verdict(document) for document in documents)]
    parts.append(_table(documents))
    scripts = ""
    if folder is None:
        parts += [_drawing(case, document) for document in documents]
        parts.append('<p class="note">These charts are drawings, because this installation of parity lacks the chart library.</p>')
    else:
        data = {"gaps": gaps_data(case, documents), "loss": loss_data(case)}
        entry = f'import "{ENTRY}";'
        digests = " ".join(_digest(text) for text in (library_script(folder), import_map(), entry))
        parts += [_controls(case), _gap_figure(names), _curves(case)]
        parts.append(f"<noscript>{''.join(_drawing(case, document) for document in documents)}</noscript>")
        scripts = (
            f'<script type="application/json" id="data">{_json(data)}</script>\n<script>{library_script(folder)}</script>\n'
            f'<script type="importmap">{import_map()}</script>\n<script type="module">{entry}</script>\n'
        )
    for name, lines in zip(names, details(documents), strict=True):
        parts.append(f"<h2>{escape(name)}: reasons and numbers</h2>{details_html(lines)}")
    parts.append(f"<details><summary>Policy</summary><pre>{escape(canonical_json(case.criteria.document()))}</pre></details>")
    parts.append(
        f'<p class="note">parity {VERSION}, judge {escape(documents[0]["engine_version"])}. Aligned series: '
        f"{', '.join(document['inputs']['sha256_aligned'][:16] for document in documents)} (sha256).</p>"
    )
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src data: {digests if folder else ''}"
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}: parity</title><style>{style(folder)}{STYLE}{_OWN_STYLE}</style></head>\n"
        f'<body><main id="main" {_arms(case)}>\n{body}\n</main>\n{scripts}</body></html>\n'
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    """JSON that no name in it can end."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _verdict(document: VerdictDocument) -> str:
    advice = "".join(f"<p>{escape(sentence)}</p>" for sentence in document["advice"]["sentences"][:1])
    codes = " ".join(f"<code>{escape(code)}</code>" for code in document["codes"])
    answer = f'<p class="headline">{answer_html(document)}</p>'
    return f'<div class="verdict {document["verdict"]}">{answer}{advice}<p class="quiet">{codes}</p></div>'


def _drawing(case: Case, document: VerdictDocument) -> str:
    gap = verdict_gap(document, case)
    sizes = (("wide", WIDE), ("narrow", NARROW))
    drawn = "".join(gap_svg(document, gap, width).replace('class="parity-gap"', f'class="parity-gap {word}"', 1) for word, width in sizes)
    return f"<h2>{escape(document['candidate']['name'])}</h2>{drawn}"


def _controls(case: Case) -> str:
    return f"""<form id="range" class="controls" aria-label="What the charts show">
<select name="x" hidden aria-hidden="true"><option value="step">step</option></select>
<label><input name="logx" type="checkbox"> log x</label>
<label>y axis <select name="y"><option value="tail">fits the second half</option>
<option value="whole">fits the whole run</option></select></label>
<label>from step <input name="from" type="number" min="0" inputmode="numeric"></label>
<label>to <input name="to" type="number" min="0" inputmode="numeric"></label>
<button>Show</button> <button type="button" data-do="window">The verdict's window</button>
<button type="button" data-do="reset" disabled>Reset</button>
<span class="quiet for-mouse">or drag in a chart; Ctrl and wheel zoom, Shift and drag move, a double click resets</span>
<span class="quiet for-fingers">or drag sideways in a chart; two fingers zoom and move</span>
</form><p id="exploratory" role="status"></p>
<h2>Gap against {escape(case.baseline_name or "the baseline")}, nats per token</h2>
<p class="quiet legend"><span><span class="key line"></span> mean gap of a bin; above zero, the candidate is worse</span>
<span><span class="key band"></span> interval, including run-to-run noise</span> <span><span class="key margin"></span> margin</span>
<span><span class="key window"></span> steps that the verdict reads</span></p>"""


def _table(documents: Sequence[VerdictDocument]) -> str:
    """A row per candidate, with its gap on an axis that all share; on a narrow screen a row is a card."""
    estimates = [estimate_of(document) for document in documents]
    axis = axis_of([each for each in estimates if each])
    heads = "".join(f"<th class=number>{word}</th>" for word in _HEADS)
    figure = f'<th class="axis">Gap, nats{head_svg(axis)}</th>' if axis else ""
    rows = []
    for document, estimate in zip(documents, estimates, strict=True):
        name, gap, interval, share, margin, verdict = map(escape, summary_row(document))
        word = f'<span class="chip {verdict}">{MARKS[document["verdict"]]} {verdict.upper()}</span>'
        drawn = f'<td class="axis" data-label="Gap">{row_svg(estimate, axis) if estimate else ""}</td>' if axis else ""
        numbers = "".join(
            f'<td class="number" data-label="{label}">{value}</td>'
            for label, value in zip(_HEADS, (gap, interval, share, margin), strict=True)
        )
        rows.append(f'<tr><th scope="row">{name}</th><td data-label="Verdict">{word}</td>{drawn}{numbers}</tr>')
    head = f"<tr><th>Candidate</th><th>Verdict</th>{figure}{heads}</tr>"
    return f'<table class="candidates cards"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _arms(case: Case) -> str:
    """What the charts need to know of the arms, as attributes."""
    names = list(case.candidates)
    arms, lit = json.dumps([case.baseline_name or "baseline", *names]), json.dumps(names[:_STYLED])
    return f'data-steps="{last_step(case)}" data-arms="{escape(arms)}" data-lit="{escape(lit)}"'


def _legend(names: Sequence[str], label: str) -> str:
    """A button for each arm, which shows and hides it; nothing for one."""
    buttons = "".join(
        f'<button type="button" data-arm="{escape(name)}" aria-pressed="true"><span class="swatch"></span> {escape(name)}</button>'
        for name in names
    )
    return f'<div class="arms" role="group" aria-label="{label}"><span class="toggles">{buttons}</span></div>' if len(names) > 1 else ""


def _gap_figure(names: Sequence[str]) -> str:
    return f"""<figure class="chart" data-gaps data-name="comparison">
{_legend(names, "Candidates in the gap chart")}
<figcaption><span class="readout"></span></figcaption>
<div class="plot" tabindex="0" role="group" aria-label="Gaps of the candidates. {_KEYS}"><div class="tip" hidden></div></div>
<p class="note" role="status"></p>
<details><summary>Numbers and downloads</summary>
<p class="links"><button type="button" data-do="png">PNG</button> <button type="button" data-do="csv">CSV</button></p>
<div class="scroll" tabindex="0" role="region" aria-label="Gaps of the candidates"><table class="numbers"></table></div>
</details></figure>"""


def _curves(case: Case) -> str:
    names = [case.baseline_name or "baseline", *case.candidates]
    several = "; the first run of each arm" if any(len(runs) > 1 for _, _, runs in case.arms()) else ""
    return f"""<h2>Curves</h2><form id="curve-controls" class="controls" aria-label="How the curves are drawn">
<label><input name="log" type="checkbox"> log y</label>
<label>smoothing, half-life in steps <input name="half" type="number" min="0" step="1" value="0" inputmode="numeric"></label>
{_legend(names, "Arms")}</form>
<figure class="chart" data-column="loss" data-kind="train" data-title="Loss, nats" data-name="comparison">
<figcaption><strong>Loss, nats</strong> <span class="quiet">{escape(names[0])} solid, the others dashed{several}</span></figcaption>
<div class="plot" tabindex="0" role="group" aria-label="Loss. {_KEYS}"><div class="tip" hidden></div></div>
<p class="note" role="status"></p>
<details><summary>Numbers</summary><p class="links"><button type="button" data-do="png">PNG</button>
<button type="button" data-do="csv">CSV</button> <span class="downloads"></span></p>
<div class="scroll" tabindex="0" role="region" aria-label="Loss of each arm"><table class="numbers"></table></div></details></figure>"""


# A verdict as HTML for a notebook: the answer, the gap chart, and the reasons and numbers folded. No script, nothing from elsewhere.

_NOTEBOOK_STYLE = """
.parity-verdict { max-width: 760px; font: 14px/1.5 system-ui, sans-serif; }
.parity-verdict p { margin: 4px 0; }
.parity-verdict summary { cursor: pointer; }
.parity-verdict ul { margin: 4px 0; padding-left: 20px; }
"""


def notebook_html(document: VerdictDocument, gap: BinnedGap) -> str:
    """The HTML of one verdict. Text has the notebook's own colour, so that it is readable on light and on dark paper."""
    (lines,) = details([document])
    first = [line for line in lines if line.name == NEXT][:1]
    step = "".join(f"<p>next: {escape(line.words)}</p>" for line in first)
    folded = details_html(line for line in lines if line not in first)
    return (
        f'<div class="parity-verdict"><style>{_NOTEBOOK_STYLE}{STYLE}</style>'
        f"<p>{answer_html(document)}</p>{gap_svg(document, gap)}{step}"
        f"<details><summary>Reasons and numbers</summary>{folded}</details></div>"
    )
