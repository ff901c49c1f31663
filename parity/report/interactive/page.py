"""`parity compare --open`: verdicts and their charts as one HTML file that works without a server and without a network.

The page's policy lets only its own scripts run, by their digest, and loads nothing.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape

from parity.canonical_json import canonical_json
from parity.judging.document_types import VerdictDocument
from parity.judging.evidence import Case
from parity.report.facts import details, summary_row
from parity.report.forest import axis_of, estimate_of, head_svg, row_svg
from parity.report.gap_bins import verdict_gap
from parity.report.gap_svg import NARROW, STYLE, WIDE, gap_svg
from parity.report.headline import MARKS
from parity.report.html import answer_html, details_html
from parity.report.interactive.data import gaps_data, last_step, loss_data
from parity.report.interactive.modules import ENTRY, import_map, library_folder, library_script, style
from parity.version import VERSION

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
