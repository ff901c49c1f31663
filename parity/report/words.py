"""A verdict in words, the same on every surface: lead, measure, interval and next step, and the
strip of five facts below them.

Page, report, comment, terminal, JUnit, gate and Python's repr show these sentences as they are. A
minus sign is "-" here; what is read by people shows the true one (`parity.wording.minus`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

from parity.canonical_json import picked
from parity.effective_recipe import title
from parity.frozen import frozen
from parity.judging.codes import AS_OF, BY_CODE, IDENTICAL, NUMBERS_ALONE
from parity.judging.document_types import (
    ADDED,
    REUSED,
    GapDocument,
    MarginDocument,
    RunDocument,
    State,
    StripDocument,
    VerdictDocument,
)
from parity.judging.evaluations.document import EVALUATION_SCHEMA
from parity.judging.evaluations.document_types import EvaluationDocument, IntervalDocument
from parity.judging.gap.chances import chances_of
from parity.wording import (
    count,
    cut,
    first_few,
    interval_words,
    level_percent,
    likely,
    nats_decimals,
    short_percent,
    signed,
)

AnyDocument = VerdictDocument | EvaluationDocument

MARKS = {"pass": "●", "fail": "■", "inconclusive": "◇"}
BEST_FIRST: Sequence[State] = ("pass", "inconclusive", "fail")
LEAST_CHANCE = 0.03
MOST_OF_TITLE = 100  # characters of what an arm did, next to its name; the facts have all of it
# Their sentence is about the interval: there is no other reason to tell.
BY_INTERVAL = frozenset(code for code, entry in BY_CODE.items() if entry.says_its_interval)
# A gap is on record with these, and says nothing: the runs were not compared.
NO_GAP_TO_TELL = frozenset(code for code, entry in BY_CODE.items() if entry.gap_means_nothing)
FIRST_LINES: Mapping[str, frozenset[str]] = {
    "pass": frozenset(code for code, entry in BY_CODE.items() if entry.rests_on),
    "fail": frozenset(code for code, entry in BY_CODE.items() if entry.explains_a_fail),
}
"""What a pass rests on, and what else than the recipe a fail may be of, by verdict: told in its
first lines.
"""
_RATES = "at 1 : 2 : 4 for bf16 : fp8 : fp4"  # `training.gemm_time.GB200`
PROBABLE = 0.8  # from here on a forecast says what the verdict will be


class Fact(NamedTuple):
    """One part of the strip: what it is about, its value, and a line that says why."""

    name: str
    value: str
    why: str = ""

    def __str__(self) -> str:
        """Value and reason on one line."""
        if self.why:
            return f"{self.value}: {self.why}"
        return self.value


@frozen
class Words:
    """A verdict in words. `why` is why it is undecided in a few words, or why it fails apart from
    its gap; "" where the gap decides.
    """

    verdict: State
    lead: str
    measure: str
    interval: str
    next: str
    why: str
    strip: Sequence[Fact]

    @property
    def chip(self) -> str:
        """The verdict in capitals with its mark: "■ FAIL"."""
        return f"{MARKS[self.verdict]} {self.verdict.upper()}"

    @property
    def line(self) -> str:
        """All of it but the next step on one line: "FAIL: Do not switch to nvfp4. It ends …"."""
        return " ".join(
            part
            for part in (f"{self.verdict.upper()}: {self.lead}", self.measure, self.interval)
            if part
        )


def own_facts(strip: Sequence[Fact]) -> Sequence[Fact]:
    """The facts of a strip that are a candidate's own: all but the first, the cost, which is that
    of the whole comparison.
    """
    return strip[1:]


def words(document: AnyDocument, cost: Fact | None = None) -> Words:
    """A verdict, or a comparison of evaluations, in words; `cost` is what the check cost, where
    somebody counts it.
    """
    return Words(
        verdict=document["verdict"],
        lead=lead_of(document),
        measure=_measure(document),
        interval=_interval(document),
        next=next_step(document),
        why=why(document),
        strip=_strip(document, cost),
    )


def with_words(document: AnyDocument) -> Any:
    """A document with its words, for those that read it as JSON; they are no part of its digest."""
    told = words(document)
    strip = [StripDocument(name=fact.name, value=fact.value, why=fact.why) for fact in told.strip]
    return {
        **document,
        "words": {"strip": strip, **picked(told, "lead", "measure", "interval", "next", "why")},
    }


def is_evaluation(document: AnyDocument) -> TypeGuard[EvaluationDocument]:
    """Whether a document compares evaluations of several runs, and not two training curves."""
    return document["schema"] == EVALUATION_SCHEMA


def file_name(job: str, documents: Sequence[AnyDocument], what: str) -> str:
    """What a download is called, without its ending: the job, the lead of its verdicts, and what it
    holds with the unit.
    """
    lead = words(safest_first(documents)[0]).lead.rstrip(".") if documents else ""
    return re.sub(r"[^\w.+-]+", "-", " ".join(part for part in (job, lead, what) if part))


def candidate_name(document: AnyDocument) -> str:
    """The candidate's name."""
    return str(document["candidate"]["name"])


def baseline_name(document: AnyDocument) -> str:
    """The baseline's name."""
    return str(document["baseline"]["name"])


def candidate_title(document: AnyDocument) -> str:
    """The candidate's name with what it did, where the name does not say that
    (`parity.effective_recipe`).
    """
    return _title(document["candidate"])


def baseline_title(document: AnyDocument) -> str:
    """The baseline's name with what it did, where the name does not say that."""
    return _title(document["baseline"])


def _title(arm: Mapping[str, Any]) -> str:
    shown = title(str(arm["name"]), arm.get("recipe"))
    return cut(shown, len(str(arm["name"])) + MOST_OF_TITLE)


def pair_words(document: AnyDocument) -> str:
    """Which arm was judged against which."""
    return f"{candidate_title(document)} against {baseline_title(document)}"


# The four sentences.


def lead_of(document: AnyDocument) -> str:
    """The answer in one sentence: "Do not switch to nvfp4."."""
    verdict, code, name, base = (
        document["verdict"],
        document["codes"][0],
        candidate_title(document),
        baseline_title(document),
    )
    if NUMBERS_ALONE.code in document["codes"]:
        if verdict == "fail":
            return f"Do not switch to {name}, as these two numbers stand."
        return f"Two numbers cannot decide on {name}."
    alike = _one_recipe(document)
    if (
        verdict == "inconclusive"
        and code == AS_OF.code
        and (_is_below(document) or is_identical(document))
    ):
        early = f"say that {name} trains as {base} does" if "compares" in document else "switch"
        return f"No loss beyond the margin as of {point(document)}; too early to {early}."
    if code == "BETTER_THAN_BASELINE" and "compares" in document:
        return f"{name} trains better than {base} does: look for the reason first."
    if alike:
        does = {"pass": "trains", "fail": "does not train"}.get(verdict)
        as_of = (
            f", as of {point(document)}" if verdict == "pass" and not _finished(document) else ""
        )
        if does:
            return f"{name} {does} as {base} does{as_of}."
        return f"It is open whether {name} trains as {base} does."
    if verdict == "pass":
        if _finished(document):
            return f"You may switch to {name}."
        return f"You may switch to {name}, as of {point(document)}."
    if verdict == "fail":
        return f"Do not switch to {name}."
    return f"Do not decide on {name} yet."


def _is_below(document: AnyDocument) -> bool:
    gap, margin = told_gap(document), document["margin"]
    return gap is not None and margin is not None and against(gap, margin["nats"]) == "below"


def _one_recipe(document: AnyDocument) -> bool:
    """Whether both arms have one recipe, as two revisions of the code do, so that there is nothing
    to switch to.
    """
    if "compares" in document:
        return True
    recipes = document["baseline"]["recipe"], document["candidate"]["recipe"]
    return recipes[0] is not None and recipes[0] == recipes[1]


def _measure(document: AnyDocument) -> str:
    """Where the candidate ends, in nats and in margins; without a gap to tell, the reason."""
    gap, margin = told_gap(document), document["margin"]
    if gap is None or _fails_apart(document):
        return str(document["reasons"][0]["sentence"])
    if is_identical(document):
        return _equal_runs(cast("VerdictDocument", document))
    size = abs(number(gap["mean"]))
    digits = f"{size:.{decimals(document)}f}"
    side = "above" if number(gap["mean"]) > 0.0 else "below"
    at = f"{digits} nats {side}" if float(digits) else "level with"
    where = f"It ends {at}" if _finished(document) else f"As of {point(document)} it is {at}"
    return (
        f"{where} {baseline_title(document)}{_in_margins(size, margin) if float(digits) else ''}."
    )


def is_identical(document: AnyDocument) -> bool:
    """Whether all runs are equal, one for one, in arms of one recipe."""
    return IDENTICAL.code in document["codes"]


def _equal_runs(document: VerdictDocument) -> str:
    runs = document["candidate"]["runs"]
    steps = min(run["completeness"]["count"] for run in document["inputs"]["candidate"])
    are = "run is" if runs == 1 else f"{runs:,} runs are"
    return f"Its {are} equal to {baseline_name(document)}'s at every one of {count(steps, 'step')}."


def _fails_apart(document: AnyDocument) -> bool:
    """Whether a verdict is a fail although its interval is not above the margin: then the reason
    comes first.
    """
    gap, margin = told_gap(document), document["margin"]
    if document["verdict"] != "fail" or document["codes"][0] in BY_INTERVAL:
        return False
    return not (gap and margin and against(gap, margin["nats"]) == "above")


def _in_margins(size: float, margin: MarginDocument | None) -> str:
    """A size in margins: ", 3.1 times the margin", ", 22 % of the margin"; never across the
    margin.
    """
    if margin is None or not margin["nats"] > 0.0 or not math.isfinite(size):
        return ""
    times = size / margin["nats"]
    if times < 1.0:
        share = min(99, round(100.0 * times))
        if not share:
            return ", less than 1 % of the margin"
        return f", {share} % of the margin"
    if times < 100.0:
        return f", {times:.{2 if times < 1.05 else 1}f} times the margin"
    return f", {times:,.0f} times the margin"


def _interval(document: AnyDocument) -> str:
    """The interval, on which side of the margin it lies, and what else keeps the verdict open."""
    if is_evaluation(document):
        told = [_over_clusters(document)]
    elif is_identical(document):
        told = [_zero_gap(cast("VerdictDocument", document))]
    else:
        told = [_ends_and_side(document, told_gap(document))]
    is_told = (
        document["codes"][0] in BY_INTERVAL | NO_GAP_TO_TELL
        or document["verdict"] == "pass"
        or _fails_apart(document)
    )
    if told_gap(document) and not is_told:
        told.append(document["reasons"][0]["sentence"])
    if is_identical(document):
        return " ".join(part for part in told if part)
    told += [
        reason["sentence"]
        for reason in document["reasons"][1:]
        if reason["code"] in FIRST_LINES.get(document["verdict"], ())
    ]
    return " ".join(part for part in told if part)


def _zero_gap(document: VerdictDocument) -> str:
    """The interval of equal runs: zero, but for what the printed digits hide."""
    printed = number(document["gap"]["hi"]) if document["gap"] else 0.0
    digits = f", within the {printed:.2g} nats to which losses are printed" if printed else ""
    return f"The gap is zero{digits}: no run-to-run noise is in it."


def _ends_and_side(
    document: AnyDocument, gap: GapDocument | IntervalDocument | None, over: str = ""
) -> str:
    if gap is None:
        return ""
    confidence = document["gap"]["confidence"] if document["gap"] else 0.95
    return (
        f"{level_percent(confidence)} interval{over} {ends_words(document, gap)}: "
        f"{_side(document, gap)}."
    )


def _side(document: AnyDocument, gap: GapDocument | IntervalDocument) -> str:
    """ "above the margin 0.0133 (1 % of the loss)"; the lower margin where the interval crosses
    that one alone.
    """
    margin = document["margin"]
    if margin is None:
        return "no margin is known"
    where = against(gap, margin["nats"])
    if (
        document["codes"][0] == "GAP_EXCEEDS_MARGIN"
        and where == "across"
        and not is_evaluation(document)
    ):
        nominal = level_percent(cast("VerdictDocument", document)["params"]["policy"]["confidence"])
        return (
            f"across the margin {margin['nats']:.{decimals(document)}f}; the {nominal} interval, "
            "which a fail takes, is above it"
        )
    nats = f"{margin['nats']:.{decimals(document)}f}"
    worth = margin["source"]
    if margin["rel"] and "nats" not in worth and "tokens" not in worth:
        share = f" ({short_percent(margin['rel'])} of the loss)"
    else:
        share = ""
    return f"{where} the margin {nats}{share}"


def against(gap: GapDocument | IntervalDocument, margin: float) -> str:
    """Where an interval lies: above, below or across the margin (nats)."""
    if number(gap["hi"]) < margin:
        return "below"
    if number(gap["lo"]) > margin:
        return "above"
    return "across"


def _over_clusters(document: EvaluationDocument) -> str:
    """The judged interval; of two that differ the one over clusters first, which decides."""
    gap = document["gap"]
    intervals = evaluation_intervals(document)
    if not intervals:
        return ""
    judged, unit = intervals[-1]
    sentence = _ends_and_side(
        document, judged, f" over {unit}" if len(intervals) > 1 or gap["judged"] is None else ""
    )
    if len(intervals) > 1:
        other, counted = intervals[0]
        margin = document["margin"]
        where = f": {against(other, margin['nats'])} it" if margin else ""
        sentence += f" Over {counted} {ends_words(document, other)}{where}."
    return sentence


def evaluation_intervals(document: EvaluationDocument) -> list[tuple[IntervalDocument, str]]:
    """The gap over runs and over clusters, each with what it counts; the judged one last."""
    gap, intervals = document["gap"], list[tuple[IntervalDocument, str]]()
    if gap["over_runs"]:
        runs, pairs = (
            sum(len(document[side]["runs"]) for side in ("baseline", "candidate")),
            gap["pairs"],
        )
        intervals.append(
            (
                gap["over_runs"],
                count(runs, "run")
                if pairs is None
                else count(pairs, "pair of runs", "pairs of runs"),
            )
        )
    if over := gap["over_clusters"]:
        number_of = over["baseline"] if over["crossed"] else over["baseline"] + over["candidate"]
        intervals.append((over, count(number_of, over["key"])))
    return intervals


def next_step(document: AnyDocument) -> str:
    """What to do next; "" where nothing needs doing."""
    return next(iter(document["advice"]["sentences"]), "")


def why(document: AnyDocument) -> str:
    """Why a verdict is undecided, or why it fails apart from its gap, in a few words; "" where the
    interval says it.
    """
    in_brief = code_in_brief(document["codes"][0])
    if in_brief is None:
        return str(document["reasons"][0]["sentence"]).rstrip(".")
    return in_brief


def code_in_brief(code: str) -> str | None:
    """What the code that decided means, "" where the interval says it; None for a code that this
    version does not know.
    """
    if code in (IDENTICAL.code, "WITHIN_MARGIN", "GAP_EXCEEDS_MARGIN"):
        return ""
    entry = BY_CODE.get(code)
    return entry.means if entry else None


# The numbers in the sentences.


def number(value: object) -> float:
    """A number of a document, in which one that is not finite is text."""
    if isinstance(value, (int, float, str)):
        return float(value)
    return math.nan


def told_gap(document: AnyDocument) -> GapDocument | IntervalDocument | None:
    """The gap that the sentences tell: the judged one; None where there is none, or where it
    compares nothing.
    """
    if document["codes"][0] in NO_GAP_TO_TELL:
        return None
    if is_evaluation(document):
        intervals = evaluation_intervals(document)
        return document["gap"]["judged"] or (intervals[-1][0] if intervals else None)
    return cast("VerdictDocument", document)["gap"]


def decimals(document: AnyDocument) -> int:
    """Decimals of every nat that is told of this verdict."""
    gap, margin = told_gap(document), document["margin"]
    told = [gap] if gap else []
    if gap and is_evaluation(document):
        told = [interval for interval, _ in evaluation_intervals(document)]
    ends = [end for own in told for end in (number(own["lo"]), number(own["hi"]))]
    return nats_decimals(margin["nats"] if margin else None, *ends)


def ends_words(document: AnyDocument, gap: GapDocument | IntervalDocument) -> str:
    """The ends of an interval: "+0.0258 to +0.0568"."""
    return interval_words(number(gap["lo"]), number(gap["hi"]), decimals(document))


def mean_words(document: AnyDocument) -> str:
    """The gap: "+0.0413"; "none" without one."""
    gap = told_gap(document)
    if not gap:
        return "none"
    return signed(number(gap["mean"]), decimals(document))


def _finished(document: AnyDocument) -> bool:
    schedule = document.get("schedule")
    return schedule is None or bool(schedule["finished"])


def point(document: AnyDocument) -> str:
    """The point of training that the verdict speaks of: "step 760", "1.3 B tokens"."""
    if is_evaluation(document):
        as_of = document["as_of"]
        several = len(as_of["points"]) if as_of else 0
        if not as_of:
            return "this point"
        return f"{as_of['words']}{f' (mean of {several} points)' if several > 1 else ''}"
    schedule = cast("VerdictDocument", document).get("schedule")
    if not schedule:
        return "this point"
    return f"step {schedule['step']:,}"


def chance_words(document: AnyDocument) -> str:
    """The chance of parity, "62 %", "<3 %" or ">97 %"; "" where a verdict has none."""
    chance = document.get("chance_of_parity")
    if chance is None:
        return ""
    if chance < LEAST_CHANCE:
        return "<3 %"
    if chance > 1.0 - LEAST_CHANCE:
        return ">97 %"
    return f"{100.0 * chance:.0f} %"


# The strip: what the check cost, what the candidate gains, what the verdict rests on, and what
# would change it.


def _strip(document: AnyDocument, cost: Fact | None) -> tuple[Fact, ...]:
    return (
        cost or _cost(document),
        _speed(document),
        _evidence(document),
        _run_noise(document),
        _what_changes_it(document),
    )


def _cost(document: AnyDocument) -> Fact:
    """The hours of training on record in the runs themselves."""
    hours, missing = None, "no step times in these runs"
    if is_evaluation(document):
        times = [
            run["times"] for side in ("baseline", "candidate") for run in document[side]["runs"]
        ]
        seconds = [
            own["seconds_to_target"]
            for own in times
            if own and own["seconds_to_target"] is not None
        ]
        hours = sum(seconds) / 3600.0 if seconds and len(seconds) == len(times) else None
    elif speed := cast("VerdictDocument", document).get("throughput"):
        hours = speed["run_hours"]
    else:  # step times are on record, but are no speed
        missing = cast("VerdictDocument", document).get("speed_reason") or missing
    if hours is None:
        return Fact("Cost", "Not recorded", missing)
    return Fact(
        "Cost",
        f"{hours:.3g} hours of training",
        "all runs together" if not is_evaluation(document) else "all runs, to the target",
    )


def _speed(document: AnyDocument) -> Fact:
    if is_evaluation(document):
        return _evaluation_speed(document)
    verdict = cast("VerdictDocument", document)
    tax = verdict.get("token_tax")
    taxed = f"token tax {_taxed(tax)}" if tax else ""
    speed, reason = verdict.get("throughput"), verdict.get("speed_reason")
    modelled = verdict.get("gemm_time")
    if modelled and (reason is not None or speed is None):
        if modelled == 1.0:
            value = "GEMMs as fast, modelled"
        else:
            value = f"GEMMs {1.0 / modelled:.2f} x, modelled"
        return Fact("Speed", value, f"{_RATES}; {taxed}" if taxed else _RATES)
    if reason is not None:
        return Fact("Speed", "Not compared", "; ".join(part for part in (reason, taxed) if part))
    if speed is None or "speed_reason" not in verdict:
        return Fact("Speed", "Unknown", taxed or "no step times in these runs")
    step = f"{speed['ratio']['value']:.3f} x"
    if net := verdict.get("net_speedup"):
        share = f"token tax {signed(100.0 * number(tax['estimate']), 1)} %" if tax else ""
        return Fact("Speed", f"{net['value']:.3f} x net of the tax", f"step {step}, {share}")
    return Fact("Speed", f"{step} a step", taxed or "the token tax is not known")


def _taxed(tax: Mapping[str, Any]) -> str:
    estimate, lo, hi = (signed(100.0 * number(tax[key]), 1) for key in ("estimate", "lo", "hi"))
    return f"{estimate} % ({lo} to {hi})"


def _evaluation_speed(document: EvaluationDocument) -> Fact:
    target = document["target"]
    tax = target["tax"] if target else None
    taxed = f"tokens {_taxed(tax)}" if tax else ""
    if len(document["speed"]) != 1:
        return Fact(
            "Speed",
            "Not compared" if document["speed"] else "Unknown",
            taxed or "no times of both arms on equal hardware",
        )
    (speed,) = document["speed"]
    step = f"step {speed['step']['value']:.3f} x" if speed["step"] else ""
    if speed["net"]:
        share = f"tokens {signed(100.0 * number(tax['estimate']), 1)} %" if tax else ""
        return Fact(
            "Speed",
            f"{speed['net']['value']:.3f} x net of the tax",
            ", ".join(part for part in (step, share) if part),
        )
    return Fact(
        "Speed", f"{speed['step']['value']:.3f} x a step" if speed["step"] else "Unknown", taxed
    )


def _evidence(document: AnyDocument) -> Fact:
    """How many runs and seeds, how they are paired, and how far candidates and looks share the
    error.
    """
    base, cand = (_count_of(document[side]["runs"]) for side in ("baseline", "candidate"))
    runs = f"{count(base, 'run')} per arm" if base == cand else f"{base} + {cand} runs"
    why_so = [_pairing(document)]
    if is_evaluation(document):
        clusters = document["gap"]["over_clusters"]
        if clusters:
            why_so.append(
                evaluation_intervals(document)[-1][1]
                + (", each with both arms" if clusters["crossed"] else "")
            )
        return Fact("Evidence", runs, "; ".join(why_so))
    verdict = cast("VerdictDocument", document)
    seeds = {run["seed"] for side in ("baseline", "candidate") for run in _runs_of(verdict, side)}
    if any(
        note.startswith(REUSED) for run in verdict["inputs"]["baseline"] for note in run["notes"]
    ):
        why_so.append("baseline reused")
    added = sum(
        note.startswith(ADDED) for run in _runs_of(verdict, "candidate") for note in run["notes"]
    )
    if added:
        why_so.append(f"{count(added, 'run')} per arm added later")
    if shared := _shared_error(verdict):
        why_so.append(shared)
    if verdict.get("layer_policy"):
        why_so.append(f"layer policy {verdict['layer_policy']}")
    return Fact("Evidence", f"{runs}, {count(len(seeds), 'seed')}", "; ".join(why_so))


def _count_of(runs: object) -> int:
    if isinstance(runs, int):
        return runs
    return len(cast("Sequence[object]", runs))


def _runs_of(document: VerdictDocument, side: str) -> Sequence[RunDocument]:
    inputs = document["inputs"]
    if side == "baseline":
        return inputs["baseline"]
    return inputs["candidate"]


def _pairing(document: AnyDocument) -> str:
    if is_evaluation(document):
        if document["gap"]["pairs"] is None:
            return "unpaired"
        return "paired by seed"
    verdict = cast("VerdictDocument", document)
    if verdict["params"]["policy"].get("pairing") == "unpaired":
        return "unpaired"
    r_pair = verdict["noise"]["r_pair"]
    if not isinstance(r_pair, float):
        return "paired"
    return f"paired, r {r_pair:.3f}"


def _shared_error(document: VerdictDocument) -> str:
    """How candidates and looks share the error, and whether anybody counts them; "" of one
    candidate with one look.
    """
    shared = document.get("multiplicity")
    if shared is None or (shared["candidates"] == 1 and shared["looks"] == 1):
        return ""
    nominal = level_percent(document["params"]["policy"]["confidence"])
    number_of = shared["candidates"]
    all_of = f" for all {number_of}" if number_of > 1 else ""
    looks = f", look {shared['look']} of {shared['looks']}" if shared["looks"] > 1 else ""
    return f"{level_percent(shared['confidence'])} each keeps {nominal}{all_of}{looks}"


def noise_basis(document: AnyDocument) -> str:
    """What the weakest arm's run-to-run noise is: measured, borrowed or assumed; "" where no
    interval rests on it, and of logs that do not fit.
    """
    if told_gap(document) is None or is_identical(document):
        return ""
    entries = (BY_CODE[code] for code in sorted(document["codes"]) if code in BY_CODE)
    return next((entry.basis_of_noise for entry in entries if entry.basis_of_noise), "measured")


def _run_noise(document: AnyDocument) -> Fact:
    basis = noise_basis(document)
    if not basis:
        return Fact(
            "Run-to-run noise",
            "Not used",
            "equal runs have none" if is_identical(document) else "no gap is judged",
        )
    shares = _floor_shares(document)
    texts = [f"{short_percent(share)} {name}" for name, share in shares]
    alike = len({short_percent(share) for _, share in shares}) == 1
    if shares and alike:
        of_loss = f"{short_percent(shares[0][1])} of the loss per run"
    else:
        of_loss = ", ".join(texts)
    left = {"assumed": ", not measured", "borrowed": ", from a family of reruns"}.get(basis, "")
    return Fact("Run-to-run noise", basis.capitalize(), f"{of_loss}{left}".lstrip(", "))


def _floor_shares(document: AnyDocument) -> list[tuple[str, float]]:
    """The run-to-run noise of each arm as a share of the loss, where it is known."""
    names = baseline_name(document), candidate_name(document)
    if is_evaluation(document):
        spreads = document["baseline"]["spread"], document["candidate"]["spread"]
        return [
            (name, spread["rel"])
            for name, spread in zip(names, spreads, strict=True)
            if spread and "rel" in spread
        ]
    floors = cast("VerdictDocument", document)["tau"]
    both = (floors["baseline"], floors["candidate"]) if floors else ()
    return [
        (name, floor["rel"])
        for name, floor in zip(names, both, strict=False)
        if floor["rel"] is not None
    ]


def _what_changes_it(document: AnyDocument) -> Fact:
    """What would change the verdict: one more pair of runs, where that could; else what the reason
    asks for.
    """
    name, code, verdict = "What changes it", document["codes"][0], document["verdict"]
    if code == AS_OF.code:
        return Fact(name, "A planned end", "as of a point nothing can pass")
    if code == IDENTICAL.code:
        return Fact(name, "Nothing likely", "a further pair would have to differ")
    chances = None if is_evaluation(document) else chances_of(cast("VerdictDocument", document))
    if chances is None:
        if code in BY_INTERVAL and (chance := chance_words(document)):
            return Fact(name, "More runs", f"chance of parity {chance}")
        value = "Its reason" if verdict == "inconclusive" else "Nothing likely"
        return Fact(
            name,
            value,
            "more runs alone do not"
            if verdict == "inconclusive" or code not in BY_INTERVAL
            else "",
        )
    stays = chances["undecided"] if verdict == "inconclusive" else chances[verdict]
    if stays >= PROBABLE:
        as_it_is = "undecided" if verdict == "inconclusive" else f"a {verdict}"
        return Fact(name, "Nothing likely", f"one more pair leaves it {as_it_is} ({likely(stays)})")
    outcomes = ", ".join(f"{outcome} {likely(chances[outcome])}" for outcome in ("pass", "fail"))
    return Fact(name, f"One more pair, by {likely(1.0 - stays)}", outcomes)


# Several candidates, and forecasts.


def safest_first(documents: Sequence[AnyDocument]) -> list[AnyDocument]:
    """Passes first, then undecided ones, then fails; of each those with the smallest upper end
    first.
    """

    def risk(document: AnyDocument) -> tuple[int, float]:
        gap = told_gap(document)
        return BEST_FIRST.index(document["verdict"]), number(gap["hi"]) if gap else math.inf

    return sorted(documents, key=risk)


def advising(documents: Sequence[AnyDocument]) -> AnyDocument | None:
    """The verdict whose next step is told of several: the safest one that has one."""
    return next((document for document in safest_first(documents) if next_step(document)), None)


def others_words(documents: Sequence[AnyDocument]) -> str:
    """What became of the candidates after the safest one: "nvfp4 fails; nvfp4-wgrad16 is
    undecided."; "" for one.
    """
    first, *others = safest_first(documents)
    if not others:
        return ""

    def name(document: AnyDocument) -> str:
        if baseline_name(document) == baseline_name(first):
            return candidate_title(document)
        return pair_words(document)

    by_verdict = {
        state: [name(each) for each in others if each["verdict"] == state] for state in BEST_FIRST
    }
    parts = []
    if passing := by_verdict["pass"]:
        parts.append(f"{first_few(passing, 3)} {'passes' if len(passing) == 1 else 'pass'}, too")
    if failing := by_verdict["fail"]:
        parts.append(f"{first_few(failing, 3)} {'fails' if len(failing) == 1 else 'fail'}")
    if undecided := by_verdict["inconclusive"]:
        parts.append(
            f"{first_few(undecided, 3)} {'is' if len(undecided) == 1 else 'are'} undecided"
        )
    return f"{'; '.join(parts)}."


def tally(documents: Sequence[AnyDocument]) -> list[tuple[State, int]]:
    """How many candidates have each verdict, those that nobody has left out."""
    counted = [(state, sum(each["verdict"] == state for each in documents)) for state in BEST_FIRST]
    return [(state, number_of) for state, number_of in counted if number_of]


class Outlook(Protocol):
    """A forecast of a candidate's final gap (nats; `low` to `high` covers 90 %) with the chance of
    each verdict.
    """

    @property
    def step(self) -> int: ...
    @property
    def passes(self) -> float: ...
    @property
    def fails(self) -> float: ...
    @property
    def inconclusive(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def margin(self) -> float: ...


def live_lead(name: str, live: Outlook) -> str:
    """What a forecast says of the verdict to come."""
    if live.passes >= PROBABLE:
        return f"{name} is on course to pass."
    if live.fails >= PROBABLE:
        return f"{name} is on course to fail."
    if live.inconclusive >= PROBABLE:
        return f"{name} will probably stay undecided."
    return f"{name} is still open."


def live_measure(base: str, live: Outlook) -> str:
    """Where the gap is forecast to end."""
    middle = (live.low + live.high) / 2.0
    digits = f"{abs(middle):.{nats_decimals(live.margin, live.low, live.high)}f}"
    side = "above" if middle > 0.0 else "below"
    if not float(digits):
        return "Its final gap is forecast at zero."
    return f"Its final gap is forecast at {digits} nats {side} {base}."


def live_interval(live: Outlook, planned_steps: int | None) -> str:
    """The forecast's interval, the margin, and the gap so far."""
    places = nats_decimals(live.margin, live.low, live.high)
    ends = interval_words(live.low, live.high, places)
    so_far = (
        f"After {live.step:,}{f' of {planned_steps:,}' if planned_steps else ''} steps the gap is "
        f"{signed(live.gap, places)}."
    )
    return f"90 % forecast {ends}; margin {live.margin:.{places}f}. {so_far}"
