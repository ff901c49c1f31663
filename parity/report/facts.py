"""The numbers of a verdict in words: the row of a table, and the facts that the row has no room for."""

from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

from parity.judging.document_types import (
    REUSED,
    EstimateDocument,
    FloorDocument,
    GradNormDocument,
    RunDocument,
    RunSpikesDocument,
    VerdictDocument,
)
from parity.judging.spikes import ONE_SIDED_ALPHA
from parity.report.headline import baseline_name, candidate_name, chance_words, verdict_word
from parity.version import JUDGE_VERSION
from parity.wording import TABLE_DECIMALS, count, interval_words, level_percent, percent, signed

DECIDED_BY_GAP = ("WITHIN_MARGIN", "GAP_EXCEEDS_MARGIN", "CI_STRADDLES_MARGIN")  # another margin alone would change these
NEXT = "next"  # the name of a detail that advises
SUMMARY = ("candidate", "gap, nats", "interval", "gap", "margin", "verdict")


def summary_row(document: VerdictDocument) -> tuple[str, ...]:
    """The cells of one candidate, in the order of `SUMMARY`."""
    gap, margin = document["gap"], document["margin"]
    return (
        candidate_name(document),
        signed(gap["mean"], TABLE_DECIMALS) if gap else "none",
        interval_words(gap["lo"], gap["hi"], TABLE_DECIMALS) if gap else "none",
        f"{signed(100 * gap['rel'], 2)} %" if gap and gap["rel"] is not None else "none",
        f"{margin['nats']:.{TABLE_DECIMALS}f}" if margin else "none",
        verdict_word(document).lower(),
    )


class Detail(NamedTuple):
    """A line of a report's details: the code of a reason with its sentence, or the name of a fact with its words."""

    name: str
    words: str
    is_code: bool = False


def details(documents: Sequence[VerdictDocument]) -> list[list[Detail]]:
    """Reasons, facts and advice of each candidate; a sentence of an earlier candidate's reasons or advice is "as for NAME"."""
    first: dict[str, str] = {}

    def once(sentence: str, name: str) -> str:
        owner = first.setdefault(sentence, name)
        return sentence if owner == name else f"as for {owner}"

    listed = []
    for document in documents:
        name = candidate_name(document)
        reasons = [Detail(reason["code"], once(reason["sentence"], name), is_code=True) for reason in document["reasons"]]
        advice = dict.fromkeys(once(sentence, name) for sentence in document["advice"]["sentences"])
        listed.append([*reasons, *starmap(Detail, facts(document)), *(Detail(NEXT, sentence) for sentence in advice)])
    return listed


def facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """What the table has no room for: window, noises, run floors, convergence."""
    window = document["window"]
    facts = [("window", f"steps {window['first']:,} to {window['last']:,}, {count(window['n'], 'common step')}, {window['rule']}")]
    inputs = document["inputs"]
    series = _series_words(baseline_name(document), inputs["baseline"]), _series_words(candidate_name(document), inputs["candidate"])
    facts.append(("series", "; ".join(series)))
    facts += [("input", note) for note in read_notes(document)]
    facts += [("reused", note) for note in reused_notes(document)]
    if document["gap"]:
        facts += [("noise", _noise_words(document)), ("run floor", _floor_words(document))]
        facts += _early_stops(document)
        facts.append(("margin", _margin_fact(document)))
        if chance := chance_words(document):
            basis = "if every gap is equally likely beforehand and the run noise is as above"
            facts.append(("chance of parity", f"{chance} that the true gap is within the margin, {basis}"))
        if looks := looks_words(document):
            facts.append(("looks", looks))
    return facts + _advisory_facts(document)


def looks_words(document: VerdictDocument) -> str:
    """Which look at the question this is, how many candidates share the error, and who counts the looks; "" for older verdicts."""
    shared = document.get("multiplicity")
    if shared is None:
        return ""
    nominal = level_percent(document["params"]["criteria"]["confidence"])
    number = f"look {shared['look']} of {shared['looks']}"
    level = ""
    if shared["looks"] > 1 or shared["candidates"] > 1:
        among = f", {shared['candidates']} candidates" if shared["candidates"] > 1 else ""
        level = f"{among}: each interval has {level_percent(shared['confidence'])}, so that all together keep {nominal}"
    counted = "registered" if shared["registered"] else "not registered: nobody counts further comparisons of this question"
    return f"{number}{level}; {counted}"


def read_notes(document: VerdictDocument) -> list[str]:
    """What a reader noted of the files, such as the columns it took; each note once, with its runs where it is not of all of them."""
    inputs = document["inputs"]
    early = inputs.get("noise_runs", {}).values()
    runs = [run for arm in (inputs["baseline"], inputs["candidate"], inputs["controls"], *early) for run in arm]
    labels: dict[str, list[str]] = {}
    for run in runs:
        for note in run["notes"]:
            if not note.startswith(REUSED):
                labels.setdefault(note, []).append(run["label"] or "a run")
    return [note if len(own) == len(runs) else f"{', '.join(dict.fromkeys(own))}: {note}" for note, own in labels.items()]


def reused_notes(document: VerdictDocument) -> list[str]:
    """What the server noted of baseline runs that were not trained, because equal ones had been: whose curve, and how old it is."""
    noted = [(run["label"], note) for run in document["inputs"]["baseline"] for note in run["notes"] if note.startswith(REUSED)]
    return [f"{label}: {note.removeprefix(REUSED)}" for label, note in noted]


def _advisory_facts(document: VerdictDocument) -> list[tuple[str, str]]:
    """The measures in addition to the loss: gates first, then token tax, speed, net speed-up, gradient norms and the rest that advises."""
    gates = [check for check in document.get("checks", ()) if check["role"] == "gate"]
    facts = [(f"gate {check['name']}", f"{check['state'] or 'not measured'}: {check['sentence']}") for check in gates]
    if tax := document.get("token_tax"):
        ends = tax["estimate"], tax["lo"], tax["hi"]  # the string "inf" for an unbounded one
        estimate, lo, hi = (f"{signed(100 * share, 1)} %" if isinstance(share, float) else "unbounded" for share in ends)
        facts.append(("token tax", f"{estimate} ({lo} to {hi}), {tax['caveat']}"))
    facts += _speed(document)
    if (net := document.get("net_speedup")) and "speed_reason" in document:
        facts.append(("net speed-up", f"{_ratio_words(net['value'], net)} in time to the same loss, token tax included"))
    if validation := document.get("validation"):
        words = f"{signed(validation['mean'], TABLE_DECIMALS)} nats ({interval_words(validation['lo'], validation['hi'], TABLE_DECIMALS)})"
        facts.append(("validation loss", f"gap {words}, {count(validation['n'], 'point')}"))
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


def _speed(document: VerdictDocument) -> list[tuple[str, str]]:
    """The speed ratio, or why there is none; the ratio of a judge that did not check the conditions of both arms is not shown."""
    speed, reason = document.get("throughput"), document.get("speed_reason")
    if speed is not None and "speed_reason" not in document:
        reason = "this verdict is from before the conditions of both arms were checked"
    if reason is not None:
        return [("speed", f"not compared: {reason}")]
    if not speed:
        return []
    ratio = _ratio_words(speed["ratio"]["value"], speed["ratio"])
    facts = [("speed", f"step speed {ratio} of the baseline's, {speed['candidate_step_seconds']:.3g} s per step")]
    for (baseline, candidate), unit in ((speed["tokens_per_second"], "tokens/s/device"), (speed["tflops"], "TFLOP/s/device")):
        if baseline is not None and candidate is not None:
            facts.append((unit, f"{baseline_name(document)} {_rate(baseline)}, {candidate_name(document)} {_rate(candidate)}"))
    return facts


def _spike_words(document: VerdictDocument, spikes: RunSpikesDocument) -> str:
    more = f", more than chance gives (p {spikes['p_candidate_more']:.2g})" if spikes["p_candidate_more"] < ONE_SIDED_ALPHA else ""
    sides = f"{spikes['candidate']:,} of {candidate_name(document)} and {spikes['baseline']:,} of {baseline_name(document)}"
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
    multiple = noise.get("r_step")
    gap = f" (the gap is {round(multiple, 2) + 0.0:.2f} x of it)" if isinstance(multiple, float) else ""
    return f"step noise {noise['sigma_step']:.4f} nats{gap}, {errors}{pairing}"


def _floor_words(document: VerdictDocument) -> str:
    floors = [f"{name} {tau['value']:.4f} nats ({tau['source']}, df {tau['df']:g})" for name, tau in _floors(document)]
    return ", ".join(floors) or "not measured"


def _floors(document: VerdictDocument) -> list[tuple[str, FloorDocument]]:
    floors = document["tau"]
    return [(baseline_name(document), floors["baseline"]), (candidate_name(document), floors["candidate"])] if floors else []


def _early_stops(document: VerdictDocument) -> list[tuple[str, str]]:
    """How many early-stopped reruns of which arm measured the run noise; nothing without any."""
    arms = [
        f"{count(early['runs'], 'rerun')} of {name} stopped at {percent(early['stop'])} (df {early['df']:.3g})"
        for name, floor in _floors(document)
        if (early := floor.get("early_stopped"))
    ]
    return [("run noise", f"from {' and '.join(arms)}")] if arms else []


def _margin_fact(document: VerdictDocument) -> str:
    margin, advice = document["margin"], document["advice"]
    detectable, to_pass = advice["minimum_detectable_gap"], advice["margin_to_pass"]
    if margin is None or detectable is None or to_pass is None:
        return "undetermined"
    words = f"{margin['nats']:.4f} nats from {margin['source']}"
    if (tokens := margin.get("tokens")) is not None:
        words += f", worth {percent(tokens)} more tokens"
    if document["codes"][0] in DECIDED_BY_GAP:
        words += f"; a margin of {to_pass:.4f} would pass"
    if detectable > 0.0:
        return f"{words}; with an interval of this width a gap up to {detectable:.4f} can pass"
    return f"{words}; this interval is too wide to pass"


def judge_of(documents: Sequence[VerdictDocument]) -> str:
    """The version of the judge that made these documents; this judge's where there are none."""
    return documents[0]["engine_version"] if documents else JUDGE_VERSION
