"""A verdict in words, the same on every surface: lead, measure, interval and next step, and the
strip of five facts below them.

Page, report, comment, terminal, JUnit, gate and Python's repr show these sentences as they are. A
minus sign is "-" here; what is read by people shows the true one (`parity.wording.minus`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from parity.frozen import frozen
from parity.judging.case import AnyDocument
from parity.judging.codes import (
    ARMS_IDENTICAL,
    AS_OF,
    BY_CODE,
    IDENTICAL,
    TREATMENT_UNSHOWN,
)
from parity.judging.curves.window import MISSING_SHARE
from parity.judging.document_types import MarginDocument, State, StripDocument
from parity.report.number_words import ends_words
from parity.report.strip import StripItem, strip_of
from parity.report.view import INTERVAL_CODES, NO_GAP_CODES, GapView, TrainingView, View, view_of
from parity.wording import count, level_percent, short_percent

MARKS = {"pass": "●", "fail": "■", "inconclusive": "◇"}
FIRST_LINES: Mapping[str, frozenset[str]] = {
    "pass": frozenset(code for code, entry in BY_CODE.items() if entry.rests_on),
    "fail": frozenset(code for code, entry in BY_CODE.items() if entry.explains_a_fail),
}
"""What a pass rests on, and what else than the recipe a fail may be of, by verdict: told in its
first lines.
"""


@frozen
class Words:
    """A verdict, or the answer of several candidates (`parity.report.answer`), in words.

    `why` is why it is undecided in a few words, or why it fails apart from its gap; "" where the
    gap decides. `next_open` is what to do about the candidates that are open, where another one
    decides.
    """

    verdict: State
    lead: str
    measure: str
    interval: str
    next: str
    why: str
    strip: Sequence[StripItem]
    next_open: str = ""

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


def words(view: View, cost: StripItem | None = None) -> Words:
    """A verdict, or a comparison of evaluations, in words; `cost` is what the check cost, where
    somebody counts it.
    """
    return Words(
        verdict=view.state,
        lead=lead_of(view),
        measure=measure_of(view),
        interval=_interval(view),
        next=next_step(view),
        why=why(view),
        strip=strip_of(view, cost),
    )


def with_words(document: AnyDocument) -> Any:
    """A document with its words, for those that read it as JSON; they are no part of its digest."""
    said = words(view_of(document))
    strip = [StripDocument(name=fact.name, value=fact.value, why=fact.why) for fact in said.strip]
    return {
        **document,
        "words": {
            "strip": strip,
            "lead": said.lead,
            "measure": said.measure,
            "interval": said.interval,
            "next": said.next,
            "why": said.why,
        },
    }


def lead_of(view: View) -> str:
    """The answer in one sentence: "Do not switch to nvfp4."."""
    verdict, code, name, base = (
        view.state,
        view.code,
        view.candidate.title,
        view.baseline.title,
    )
    if view.is_numbers_alone:
        return _lead_of_numbers(view)
    alike = has_one_recipe(view)
    if verdict == "inconclusive" and code == AS_OF.code and (_is_below(view) or view.is_identical):
        if _stops_early(view):
            early = f"say that {name} trains as {base} does" if view.compares else "switch"
            return f"No loss beyond the margin as of {view.point}; too early to {early}."
        return f"No loss beyond the margin as of {view.point}; was that the end?"
    if code == "BETTER_THAN_BASELINE" and view.compares:
        return f"{name} trains better than {base} does: look for the reason first."
    if alike:
        does = {"pass": "trains", "fail": "does not train"}.get(verdict)
        as_of = f", as of {view.point}" if verdict == "pass" and not view.finished else ""
        if does:
            return f"{name} {does} as {base} does{as_of}."
        return f"It is open whether {name} trains as {base} does."
    if code == ARMS_IDENTICAL.code:
        return f"The losses of {name} are those of {base}: one file twice, or a fallback?"
    if code == TREATMENT_UNSHOWN.code:
        return f"{name} begins with the loss of {base}: did it fall back?"
    if verdict == "pass":
        if view.finished:
            return f"You may switch to {name}."
        return f"You may switch to {name}, as of {view.point}."
    if verdict == "fail":
        return f"Do not switch to {name}."
    return f"Do not decide on {name} yet."


def _lead_of_numbers(view: View) -> str:
    """The answer from numbers, one a run."""
    name, runs = view.candidate.title, (view.baseline.runs, view.candidate.runs)
    if max(runs) == 1:
        those, all_of_them = "these two numbers", "Two numbers"
    else:
        those = f"the final losses of {runs[0]} + {runs[1]} runs"
        all_of_them = those.capitalize()
    if view.state == "fail":
        return f"Do not switch to {name}, as {those} stand."
    return f"{all_of_them} cannot decide on {name}."


def _stops_early(view: View) -> bool:
    """Whether a run stops before its plan, or a held-out loss before the end of its run."""
    if not isinstance(view, TrainingView):
        return True
    share: float = view.document["convergence"]["planned_share"]
    return share < 1.0 - MISSING_SHARE


def _is_below(view: View) -> bool:
    gap, margin = view.gap, view.margin
    return gap is not None and margin is not None and gap.against(margin["nats"]) == "below"


def has_one_recipe(view: View) -> bool:
    """Whether both arms have one recipe, as two revisions of the code do, so that there is nothing
    to switch to.
    """
    if view.compares:
        return True
    recipe = view.baseline.recipe
    return recipe is not None and recipe == view.candidate.recipe


def measure_of(view: View, *, named: bool = False) -> str:
    """Where the candidate ends, in nats and in margins; without a gap to tell, the reason. `named`
    is whether it says of which candidate.
    """
    gap, margin = view.gap, view.margin
    name = view.candidate.title
    if gap is None or _fails_apart(view):
        sentence = str(view.reasons[0]["sentence"])
        return f"{name}: {sentence}" if named and name not in sentence else sentence
    if isinstance(view, TrainingView) and view.is_identical:  # only curves can be equal
        return _equal_runs(view, f"{name}'s" if named else "Its")
    size = abs(gap.mean)
    digits = f"{size:.{view.decimals}f}"
    side = "above" if gap.mean > 0.0 else "below"
    at = f"{digits} nats {side}" if float(digits) else "level with"
    if view.finished:
        where = f"{name if named else 'It'} ends {at}"
    else:
        where = f"As of {view.point}{_end_of_log(view)} {name if named else 'it'} is {at}"
    return (
        f"{where} {view.baseline.title}{_margin_multiple(size, margin) if float(digits) else ''}."
    )


def _end_of_log(view: View) -> str:
    """Why a training is compared up to this point: ", where mxfp8's log ends (fp8's: 1,499),"."""
    shorter = view.shorter_log if isinstance(view, TrainingView) else None
    if shorter is None:
        return ""
    name, end = shorter
    arms = (view.baseline.title, view.candidate.title)
    other = next((arm for arm in arms if arm != name), name)
    return f", where {name}'s log ends ({other}'s: {end:,}),"


def _equal_runs(view: TrainingView, whose: str) -> str:
    runs, inputs = view.candidate.runs, view.document["inputs"]
    steps = min(run["completeness"]["count"] for run in inputs["candidate"])
    are = "run is" if runs == 1 else f"{runs:,} runs are"
    return f"{whose} {are} equal to {view.baseline.name}'s at every one of {count(steps, 'step')}."


def _fails_apart(view: View) -> bool:
    """Whether a verdict is a fail although its interval is not above the margin: then the reason
    comes first.
    """
    gap, margin = view.gap, view.margin
    if view.state != "fail" or view.code in INTERVAL_CODES:
        return False
    return not (gap and margin and gap.against(margin["nats"]) == "above")


def _margin_multiple(size: float, margin: MarginDocument | None) -> str:
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


def _interval(view: View) -> str:
    """The interval, on which side of the margin it lies, and what else keeps the verdict open."""
    if view.is_identical:
        sentences = [_zero_gap(view)]
    else:
        sentences = [_ends_of_intervals(view)]
    has_its_reason = (
        view.code in INTERVAL_CODES | NO_GAP_CODES or view.state == "pass" or _fails_apart(view)
    )
    if view.gap and not has_its_reason:
        sentences.append(view.reasons[0]["sentence"])
    if view.is_identical:
        return " ".join(part for part in sentences if part)
    sentences += [
        reason["sentence"]
        for reason in view.reasons[1:]
        if reason["code"] in FIRST_LINES.get(view.state, ())
    ]
    return " ".join(part for part in sentences if part)


def _zero_gap(view: View) -> str:
    """The interval of equal runs: zero, but for what the printed digits hide."""
    printed = view.recorded_gap.hi if view.recorded_gap else 0.0
    digits = f", within the {printed:.2g} nats to which losses are printed" if printed else ""
    return f"The gap is zero{digits}: no run-to-run noise is in it."


def _ends_of_intervals(view: View) -> str:
    """The judged interval; of two that differ the one over clusters first, which decides."""
    if not view.intervals:
        return ""
    *others, judged = view.intervals
    over = f" over {judged.unit}" if view.names_unit else ""
    sentence = (
        f"{level_percent(view.confidence)} interval{over} {ends_words(view, judged)}: "
        f"{_side(view, judged)}."
    )
    for other in others:
        where = f": {other.against(view.margin['nats'])} it" if view.margin else ""
        sentence += f" Over {other.unit} {ends_words(view, other)}{where}."
    return sentence


def _side(view: View, gap: GapView) -> str:
    """ "above the margin 0.0133 (1 % of the loss)"; the lower margin where the interval crosses
    that one alone.
    """
    margin = view.margin
    if margin is None:
        return "no margin is known"
    where = gap.against(margin["nats"])
    nats = f"{margin['nats']:.{view.decimals}f}"
    worth = margin["source"]
    if margin["rel"] and "nats" not in worth and "tokens" not in worth:
        share = f" ({short_percent(margin['rel'])} of the loss)"
    else:
        share = ""
    return f"{where} the margin {nats}{share}"


def next_step(view: View) -> str:
    """What to do next; "" where nothing needs doing."""
    return next(iter(view.advice), "")


def why(view: View) -> str:
    """Why a verdict is undecided, or why it fails apart from its gap, in a few words; "" where the
    interval says it.
    """
    in_brief = code_in_brief(view.code)
    if in_brief is None:
        return str(view.reasons[0]["sentence"]).rstrip(".")
    return in_brief


def code_in_brief(code: str) -> str | None:
    """What the code that decided means, "" where the interval says it; None for a code that this
    version does not know.
    """
    if code in (IDENTICAL.code, "WITHIN_MARGIN", "GAP_EXCEEDS_MARGIN"):
        return ""
    entry = BY_CODE.get(code)
    return entry.means if entry else None
