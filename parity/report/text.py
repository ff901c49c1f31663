"""Verdict documents in words: a headline, a terminal report, Markdown for a pull request, canonical JSON.

Everything is made from the document (`Verdict.document()`), so that a verdict that came over the network reads the same.
"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.canonical_json import canonical_json
from parity.judging.decision import BESIDE_THE_LOSS
from parity.judging.document_types import (
    EstimateDocument,
    GapDocument,
    GradNormDocument,
    MarginDocument,
    RunDocument,
    RunSpikesDocument,
    ThroughputDocument,
    TokenTaxDocument,
    VerdictDocument,
)
from parity.judging.reasons import BY_CODE
from parity.judging.spikes import ONE_SIDED_ALPHA
from parity.version import JUDGE_VERSION, VERSION
from parity.wording import TABLE_DECIMALS, count, interval_words, percent, sentence_decimals, signed

REPORT_SCHEMA = "parity.report/1"
REUSED = "reused: "  # how the note of a run begins that has the curve of one that was trained before


MARKS = {"pass": "●", "fail": "■", "inconclusive": "◇"}
_STYLES = {"pass": "bold green", "fail": "bold red", "inconclusive": "bold yellow"}


def headline(document: VerdictDocument) -> str:
    """The verdict in one or two sentences with numbers and units."""
    word = str(document["verdict"]).upper()
    body = {"pass": _pass, "fail": _fail, "inconclusive": _inconclusive}[document["verdict"]](document)
    return f"{word}: {body}{_assumed(document)}"


def _pass(document: VerdictDocument) -> str:
    gap, margin, decimals = judged_gap(document), judged_margin(document), _decimals(document)
    return (
        f"{_candidate(document)} is within {_margin_words(document)} of {_baseline(document)}: "
        f"gap {signed(gap['mean'], decimals)} nats ({_interval(document)}{_step_noise(document)}), "
        f"margin {margin['nats']:.{decimals}f}. {_runs(document)}{_layers(document)}."
    )


def _fail(document: VerdictDocument) -> str:
    if document["codes"][0] != "GAP_EXCEEDS_MARGIN":
        gate = f"{_candidate(document)} against {_baseline(document)}: " if _decided_by_a_gate(document) else ""
        return f"{gate}{_reason(document)}{_gap_aside(document)}{_layers(document, sentence=True)}"
    gap, margin, decimals = judged_gap(document), judged_margin(document), _decimals(document)
    share = f" ({percent(margin['rel'])} of {document['baseline']['level']:.3f})" if margin["rel"] else ""
    return (
        f"{_candidate(document)} ends {gap['mean']:.{decimals}f} nats above {_baseline(document)} "
        f"({_interval(document)}{_step_noise(document)}), beyond the margin of {margin['nats']:.{decimals}f}{share}. "
        f"{_runs(document)}{_layers(document)}."
    )


def _decided_by_a_gate(document: VerdictDocument) -> bool:
    entry = BY_CODE.get(document["codes"][0])
    return entry is not None and entry.check == BESIDE_THE_LOSS


def _inconclusive(document: VerdictDocument) -> str:
    advice = document["advice"]["sentences"]
    next_step = f" {advice[0]}" if advice else ""
    pair = f"{_candidate(document)} against {_baseline(document)}: "
    return f"{pair}{_reason(document)}{_gap_aside(document)}{_layers(document, sentence=True)}{next_step}"


def _reason(document: VerdictDocument) -> str:
    return str(document["reasons"][0]["sentence"])


def _gap_aside(document: VerdictDocument) -> str:
    gap = document["gap"]
    if not gap:
        return ""
    decimals = _decimals(document)
    return f" Gap {signed(gap['mean'], decimals)} nats ({_interval(document)}{_step_noise(document)})."


def _assumed(document: VerdictDocument) -> str:
    if document["codes"][0] == "RUN_NOISE_ASSUMED":
        return ""
    return "".join(f" {reason['sentence']}" for reason in document["reasons"] if reason["code"] == "RUN_NOISE_ASSUMED")


def judged_gap(document: VerdictDocument) -> GapDocument:
    """The gap of a verdict that rests on one; KeyError for a document without."""
    if document["gap"] is None:
        raise KeyError("gap")
    return document["gap"]


def judged_margin(document: VerdictDocument) -> MarginDocument:
    """The margin of a verdict that rests on one; KeyError for a document without."""
    if document["margin"] is None:
        raise KeyError("margin")
    return document["margin"]


def _interval(document: VerdictDocument) -> str:
    gap = judged_gap(document)
    return f"{percent(gap['confidence'])} CI {interval_words(gap['lo'], gap['hi'], _decimals(document))}"


def _step_noise(document: VerdictDocument) -> str:
    multiple = document["noise"].get("r_step")
    return f"; {round(multiple, 2) + 0.0:.2f} x step noise" if isinstance(multiple, float) else ""


def _runs(document: VerdictDocument) -> str:
    base, cand = document["baseline"]["runs"], document["candidate"]["runs"]
    if base == cand:
        return f"{count(base, 'run')} per arm"
    return f"{count(cand, f'{_candidate(document)} run')}, {count(base, f'{_baseline(document)} run')}"


def _layers(document: VerdictDocument, *, sentence: bool = False) -> str:
    policy = document.get("layer_policy")
    if not policy:
        return ""
    return f" Layer policy {policy}." if sentence else f", layer policy {policy}"


def _margin_words(document: VerdictDocument) -> str:
    margin = judged_margin(document)
    if "nats" in margin["source"]:
        return f"{margin['nats']:.{_decimals(document)}f} nats"
    return percent(margin["rel"])


def _decimals(document: VerdictDocument) -> int:
    return sentence_decimals(document["margin"]["nats"] if document["margin"] else None)


def _candidate(document: VerdictDocument) -> str:
    return str(document["candidate"]["name"])


def _baseline(document: VerdictDocument) -> str:
    return str(document["baseline"]["name"])


def render_text(documents: Sequence[VerdictDocument], console_width: int = 80) -> RenderableType:
    """Headlines, one row a candidate, then reasons and advice; for a rich console of the given width."""
    parts: list[RenderableType] = []
    for document in documents:
        state = document["verdict"]
        word, _, body = headline(document).partition(":")
        parts += [Text.assemble((f"{MARKS[state]} {word}", _STYLES[state]), f":{body}"), Text("")]
    parts += [_summary_table(documents, console_width), Text("")]
    for document in documents:
        parts += _details(document)
    return Group(*parts)


SUMMARY = ("candidate", "gap, nats", "interval", "gap", "margin", "verdict")


def summary_row(document: VerdictDocument) -> tuple[str, ...]:
    """The cells of one candidate, in the order of `SUMMARY`."""
    gap, margin = document["gap"], document["margin"]
    return (
        _candidate(document),
        signed(gap["mean"], TABLE_DECIMALS) if gap else "none",
        interval_words(gap["lo"], gap["hi"], TABLE_DECIMALS) if gap else "none",
        f"{100 * gap['rel']:+.2f} %" if gap and gap["rel"] is not None else "none",
        f"{margin['nats']:.{TABLE_DECIMALS}f}" if margin else "none",
        str(document["verdict"]),
    )


def _summary_table(documents: Sequence[VerdictDocument], width: int) -> Table:
    table = Table(box=None, pad_edge=False, width=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in SUMMARY:
        table.add_column(name, justify="left" if name in ("candidate", "verdict") else "right", overflow="fold", no_wrap=width >= 80)
    for document in documents:
        table.add_row(*summary_row(document))
    return table


def _details(document: VerdictDocument) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"{_candidate(document)} against {_baseline(document)}", style="bold")]
    rows = [Text.assemble((reason["code"], "bold"), f"  {reason['sentence']}") for reason in document["reasons"]]
    rows += [Text.assemble((f"{name}: ", "dim"), value) for name, value in facts(document)]
    rows += [Text.assemble(("next: ", "dim"), sentence) for sentence in document["advice"]["sentences"]]
    return [*lines, *(Padding(text, (0, 0, 0, 2)) for text in rows), Text("")]


def facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """What the table has no room for: window, noises, run floors, convergence."""
    window = document["window"]
    facts = [("window", f"steps {window['first']:,} to {window['last']:,}, {count(window['n'], 'common step')}, {window['rule']}")]
    facts.append(("series", _both_series(document)))
    facts += [("reused", note) for note in reused_notes(document)]
    if document["gap"]:
        facts += [("noise", _noise_words(document)), ("run floor", _floor_words(document)), ("margin", _margin_fact(document))]
    return facts + _advisory_facts(document)


def _both_series(document: VerdictDocument) -> str:
    inputs = document["inputs"]
    return f"{_series_words(_baseline(document), inputs['baseline'])}; {_series_words(_candidate(document), inputs['candidate'])}"


def reused_notes(document: VerdictDocument) -> list[str]:
    """What the server noted of baseline runs that were not trained, because equal ones had been: whose curve, and how old it is."""
    noted = [(run["label"], note) for run in document["inputs"]["baseline"] for note in run["notes"] if note.startswith(REUSED)]
    return [f"{label}: {note.removeprefix(REUSED)}" for label, note in noted]


def _advisory_facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """What stands beside the loss: gates first, then token tax, speed, net speed-up, gradient norms and the rest that advises."""
    gates = [check for check in document.get("checks", ()) if check["role"] == "gate"]
    facts = [(f"gate {check['name']}", f"{check['state'] or 'not measured'}: {check['sentence']}") for check in gates]
    if tax := document.get("token_tax"):
        estimate, lo, hi = (f"{100 * share:+.1f} %" if isinstance(share, float) else "unbounded" for share in _estimate(tax))
        facts.append(("token tax", f"{estimate} ({lo} to {hi}), {tax['caveat']}"))
    if speed := document.get("throughput"):
        facts += _speed_facts(document, speed)
    if net := document.get("net_speedup"):
        facts.append(("net speed-up", f"{_ratio_words(net['value'], net)} in time to the same loss, token tax included"))
    if validation := document.get("validation"):
        ends = interval_words(validation["lo"], validation["hi"], TABLE_DECIMALS)
        facts.append(
            ("validation loss", f"gap {signed(validation['mean'], TABLE_DECIMALS)} nats ({ends}), {count(validation['n'], 'point')}")
        )
    if (spikes := document.get("run_spikes")) and spikes["baseline"] + spikes["candidate"]:
        facts.append(("spikes", _spike_words(document, spikes)))
    facts += [("candidates", peer["sentence"]) for peer in document.get("other_candidates", ())]
    facts += [("downstream", task["sentence"]) for task in document.get("downstream", ())]
    if gain := document.get("worth"):
        facts.append(("worth", gain["sentence"]))
    if norm := document.get("grad_norm"):
        base, cand = norm.get("clipped_share") or (None, None)
        clipped = "" if base is None or cand is None else f", clipped {percent(cand)} of the steps against {percent(base)}"
        ratio = _ratio_words(norm["ratio"], norm)
        facts.append(("gradient norm", f"{ratio}, 99th percentile {norm['p99_ratio']:.2f} x{clipped}; {norm['basis']}"))
    return facts


def _estimate(tax: TokenTaxDocument) -> tuple[float | str, ...]:
    """Estimate and interval ends; an unbounded one is the string "inf"."""
    return tax["estimate"], tax["lo"], tax["hi"]


def _speed_facts(document: VerdictDocument, speed: ThroughputDocument) -> list[tuple[str, str]]:
    step_speed = f"{_ratio_words(speed['ratio']['value'], speed['ratio'])} as fast a step ({speed['candidate_step_seconds']:.3g} s a step)"
    facts = [("speed", step_speed)]
    for (baseline, candidate), unit in ((speed["tokens_per_second"], "tokens/s/device"), (speed["tflops"], "TFLOP/s/device")):
        if baseline is not None and candidate is not None:
            facts.append((unit, f"{_baseline(document)} {_rate(baseline)}, {_candidate(document)} {_rate(candidate)}"))
    return facts


def _spike_words(document: VerdictDocument, spikes: RunSpikesDocument) -> str:
    more = f", more than chance gives (p {spikes['p_candidate_more']:.2g})" if spikes["p_candidate_more"] < ONE_SIDED_ALPHA else ""
    sides = f"{spikes['candidate']:,} of {_candidate(document)} and {spikes['baseline']:,} of {_baseline(document)}"
    return f"over the whole run {sides}{more}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio_words(ratio: float, ends: EstimateDocument | GradNormDocument) -> str:
    return f"{ratio:.3f} x ({ends['lo']:.3f} to {ends['hi']:.3f})"


def _series_words(name: str, runs: Sequence[RunDocument]) -> str:
    """What the first run of an arm covers: the proof of completeness in short."""
    series = runs[0]["completeness"]
    if not series["count"]:
        return f"{name} empty"
    stride = f" every {series['stride']:,}" if series["stride"] else ""
    flaws = [count(number, word) for number, word in ((series["duplicates"], "repeated step"), (series["gaps"], "gap")) if number]
    covered = f"{count(series['count'], 'step')} {series['first']:,} to {series['last']:,}{stride}"
    return f"{name} {', '.join([covered, *flaws])}"


def _noise_words(document: VerdictDocument) -> str:
    noise, parts = document["noise"], document["se_parts"]
    pairing = f", pairing correlation {noise['r_pair']:.3f}" if isinstance(noise["r_pair"], float) else ""
    errors = f"within-pair SE {parts['within']:.4f}, between-run SE {parts['run']:.4f}" if parts else ""
    return f"step noise {noise['sigma_step']:.4f} nats, {errors}{pairing}"


def _floor_words(document: VerdictDocument) -> str:
    floors = document["tau"]
    if floors is None:
        return "not measured"
    sides = ((_baseline(document), floors["baseline"]), (_candidate(document), floors["candidate"]))
    return ", ".join(f"{name} {tau['value']:.4f} nats ({tau['source']}, df {tau['df']:g})" for name, tau in sides)


def _margin_fact(document: VerdictDocument) -> str:
    margin, advice = document["margin"], document["advice"]
    detectable, to_pass = advice["minimum_detectable_gap"], advice["margin_to_pass"]
    if margin is None or detectable is None or to_pass is None:
        return "undetermined"
    reach = (
        f"; with an interval of this width a gap up to {detectable:.4f} can pass"
        if detectable > 0.0
        else "; this interval is too wide to pass"
    )
    return f"{margin['nats']:.4f} nats from {margin['source']}; a margin of {to_pass:.4f} would pass{reach}"


def render_markdown(documents: Sequence[VerdictDocument]) -> str:
    """Headlines, a table, and details folded away; fit for a pull-request comment."""
    return "\n\n".join([*markdown_sections(documents), f"parity {VERSION}\n"])


def markdown_sections(documents: Sequence[VerdictDocument]) -> list[str]:
    """What `render_markdown` puts together: headlines with their table, then the details of each candidate."""
    lines = []
    for document in documents:
        word, _, body = headline(document).partition(":")
        lines += [f"{MARKS[document['verdict']]} **{word}**:{escaped(body)}", ""]
    lines += ["| " + " | ".join(SUMMARY) + " |", "|" + "---|" * len(SUMMARY)]
    lines += ["| " + " | ".join(escaped(cell) for cell in summary_row(document)) + " |" for document in documents]
    return ["\n".join(lines), *map(_markdown_details, documents)]


def _markdown_details(document: VerdictDocument) -> str:
    lines = [f"<details><summary>{escaped(_candidate(document))}: reasons and numbers</summary>", ""]
    lines += [f"- `{reason['code']}` {escaped(reason['sentence'])}" for reason in document["reasons"]]
    lines += [f"- {name}: {escaped(value)}" for name, value in facts(document)]
    lines += [f"- next: {escaped(sentence)}" for sentence in document["advice"]["sentences"]]
    return "\n".join([*lines, "", "</details>"])


def escaped(text: str) -> str:
    """Text without what Markdown, or HTML in it, would take for its own."""
    for mark, code in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(mark, code)
    return text


def render_json(documents: Sequence[VerdictDocument]) -> str:
    """Canonical JSON: one object {schema, engine_version, verdicts}, sorted keys, the same bytes for the same verdicts."""
    return canonical_json({"schema": REPORT_SCHEMA, "engine_version": JUDGE_VERSION, "verdicts": list(documents)})
