"""The verdict in one line: `answer` for reports, which go on with reasons and advice; `headline` where nothing follows (JUnit, gate)."""

from collections.abc import Sequence

from parity.judging.decision import GATE
from parity.judging.document_types import GapDocument, MarginDocument, VerdictDocument
from parity.judging.evaluations.case import EvaluationDocument
from parity.judging.reasons import BY_CODE, MISFITS
from parity.wording import count, interval_words, level_percent, percent, sentence_decimals, signed

MARKS = {"pass": "●", "fail": "■", "inconclusive": "◇"}
LEAST_CHANCE = 0.03
NOISE_BASES = {"RUN_NOISE_ASSUMED": "assumed", "RUN_NOISE_BORROWED": "borrowed"}


def headline(document: VerdictDocument) -> str:
    """The verdict in one or two sentences with numbers and units."""
    word = verdict_word(document)
    body = {"pass": _pass, "fail": _fail, "inconclusive": _inconclusive}[document["verdict"]](document)
    return f"{word}: {body}{_noise_sentence(document)}"


def answer(document: VerdictDocument) -> str:
    """The verdict in one line: gap with interval, margin, runs, what the run noise rests on, and what decided; no advice."""
    gap = document["gap"]
    gap_words = f"gap {signed(gap['mean'], _decimals(document))} nats ({_interval(document)})" if gap else "no gap measured"
    runs = [f"{_runs(document)}{_layers(document)}"]
    if (basis := _noise_basis(document)) and document["codes"][0] != "RUN_NOISE_ASSUMED":
        runs.append(f"run noise {basis}")
    return f"{verdict_word(document)}: {pair_words(document)}: {what_decided(document, gap_words, _decimals(document), runs)}."


def what_decided(document: VerdictDocument | EvaluationDocument, gap: str, decimals: int, runs: Sequence[str] = ()) -> str:
    """The gap in words, the margin with so many decimals, the runs, the chance of parity, and the code that decided with its meaning."""
    parts = [gap]
    if margin := document["margin"]:
        share = f" ({percent(margin['rel'])})" if margin["rel"] and "nats" not in margin["source"] else ""
        parts.append(f"margin {margin['nats']:.{decimals}f}{share}")
    parts += runs
    if chance := chance_words(document):
        parts.append(f"chance of parity {chance}")
    code = document["codes"][0]
    entry = BY_CODE.get(code)
    return f"{', '.join(parts)}; decided by {code}" + (f": {entry.means}" if entry else "")


def pair_words(document: VerdictDocument | EvaluationDocument) -> str:
    """Which arm was judged against which."""
    return f"{document['candidate']['name']} against {document['baseline']['name']}"


def verdict_word(document: VerdictDocument) -> str:
    """The verdict in capitals, with the point of training that it speaks of where that is not the end: "PASS AS OF STEP 760".

    A gap that would pass as of a point is no pass; its verdict is inconclusive, and so is its exit code.
    """
    word = str(document["verdict"]).upper()
    schedule = document.get("schedule")
    if schedule is None or schedule["finished"] or (word == "INCONCLUSIVE" and document["codes"][0] != "AS_OF"):
        return word
    return f"{'PASS' if word == 'INCONCLUSIVE' else word} AS OF STEP {schedule['step']:,}"


def chance_words(document: VerdictDocument | EvaluationDocument) -> str:
    """The chance of parity, "62 %", "<3 %" or ">97 %"; "" where a verdict has none."""
    chance = document.get("chance_of_parity")
    if chance is None:
        return ""
    if chance < LEAST_CHANCE:
        return "<3 %"
    return ">97 %" if chance > 1.0 - LEAST_CHANCE else f"{100.0 * chance:.0f} %"


def decided_by(document: VerdictDocument) -> str:
    """What decided, in words: what the first reason's code means."""
    entry = BY_CODE.get(document["codes"][0])
    return entry.means if entry else _reason(document)


def next_step(document: VerdictDocument) -> str:
    """The next step in a few words for a table; "" where none is needed. The advice has the whole of it."""
    advice = document["advice"]
    arms = (advice["add_baseline_runs"], baseline_name(document)), (advice["add_candidate_runs"], candidate_name(document))
    shared = document.get("multiplicity")
    if more := " and ".join(f"{count(added, 'more run', 'more runs')} of {name}" for added, name in arms if added):
        return f"add {more}" if shared is None or shared["look"] < shared["looks"] else f"ask a new question with {more}"
    sentences = advice["sentences"]
    if not sentences:
        return "" if document["verdict"] == "pass" else "see the reasons"
    return sentences[0].split(". ")[0].rstrip(".")


def _pass(document: VerdictDocument) -> str:
    gap, margin, decimals = judged_gap(document), judged_margin(document), _decimals(document)
    return (
        f"{candidate_name(document)} is within {_margin_words(document)} of {baseline_name(document)}: "
        f"gap {signed(gap['mean'], decimals)} nats ({_interval_and_noise(document)}), "
        f"margin {margin['nats']:.{decimals}f}. {_runs(document)}{_layers(document)}."
    )


def _fail(document: VerdictDocument) -> str:
    if document["codes"][0] != "GAP_EXCEEDS_MARGIN":
        entry = BY_CODE.get(document["codes"][0])
        pair = f"{pair_words(document)}: " if entry and entry.check == GATE else ""
        return f"{pair}{_reason(document)}{_gap_aside(document)}{_layers(document, sentence=True)}"
    gap, margin, decimals = judged_gap(document), judged_margin(document), _decimals(document)
    share = f" ({percent(margin['rel'])} of {document['baseline']['level']:.3f})" if margin["rel"] else ""
    return (
        f"{candidate_name(document)} ends {gap['mean']:.{decimals}f} nats above {baseline_name(document)} "
        f"({_interval_and_noise(document)}), beyond the margin of {margin['nats']:.{decimals}f}{share}. "
        f"{_runs(document)}{_layers(document)}."
    )


def _inconclusive(document: VerdictDocument) -> str:
    advice = document["advice"]["sentences"]
    next_step = f" {advice[0]}" if advice else ""
    chance = f" Chance of parity {words}." if (words := chance_words(document)) else ""
    return f"{pair_words(document)}: {_reason(document)}{_gap_aside(document)}{chance}{_layers(document, sentence=True)}{next_step}"


def _reason(document: VerdictDocument) -> str:
    return str(document["reasons"][0]["sentence"])


def _gap_aside(document: VerdictDocument) -> str:
    gap = document["gap"]
    if not gap:
        return ""
    decimals = _decimals(document)
    return f" Gap {signed(gap['mean'], decimals)} nats ({_interval_and_noise(document)})."


def _noise_basis(document: VerdictDocument) -> str:
    """What the weakest arm's run noise is: measured, borrowed or assumed; "" where no interval rests on it, and of logs that do not fit."""
    if not document["gap"] or document["codes"][0] in MISFITS:
        return ""
    return next((word for code, word in NOISE_BASES.items() if code in document["codes"]), "measured")


def _noise_sentence(document: VerdictDocument) -> str:
    basis = _noise_basis(document)
    if basis in ("", "measured"):
        return " Run noise measured." if basis else ""
    return "".join(f" {reason['sentence']}" for reason in document["reasons"][1:] if reason["code"] in NOISE_BASES)


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
    return f"{level_percent(gap['confidence'])} CI {interval_words(gap['lo'], gap['hi'], _decimals(document))}"


def _interval_and_noise(document: VerdictDocument) -> str:
    multiple = document["noise"].get("r_step")
    return _interval(document) + (f"; {round(multiple, 2) + 0.0:.2f} x step noise" if isinstance(multiple, float) else "")


def _runs(document: VerdictDocument) -> str:
    base, cand = document["baseline"]["runs"], document["candidate"]["runs"]
    if base == cand:
        return f"{count(base, 'run')} per arm"
    return f"{count(cand, f'{candidate_name(document)} run')}, {count(base, f'{baseline_name(document)} run')}"


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


def candidate_name(document: VerdictDocument) -> str:
    """The candidate's name."""
    return str(document["candidate"]["name"])


def baseline_name(document: VerdictDocument) -> str:
    """The baseline's name."""
    return str(document["baseline"]["name"])
