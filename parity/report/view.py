"""One typed view of a stored document, a training verdict or a comparison of evaluations, made
once and read by every surface.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from parity.effective_recipe import title
from parity.frozen import frozen
from parity.judging.case import AnyDocument
from parity.judging.codes import BY_CODE, IDENTICAL, NUMBERS_ALONE
from parity.judging.curves.window import ends_early
from parity.judging.document_types import (
    ChancesDocument,
    MarginDocument,
    OfferDocument,
    PathPointDocument,
    ReasonDocument,
    State,
    VerdictDocument,
)
from parity.judging.evaluations.document import EVALUATION_SCHEMA
from parity.judging.evaluations.document_types import EvaluationDocument, IntervalDocument
from parity.judging.gap.chances import chances_of
from parity.judging.verdict.deciding_interval import recorded_interval
from parity.wording import count, cut, nats_decimals

MOST_OF_TITLE = 100  # characters of what an arm did, next to its name; the facts have all of it
# Their sentence is about the interval: there is no other reason to tell.
INTERVAL_CODES = frozenset(code for code, entry in BY_CODE.items() if entry.says_its_interval)
# With these codes the recorded gap is meaningless.
NO_GAP_CODES = frozenset(code for code, entry in BY_CODE.items() if entry.gap_means_nothing)

Path = Sequence[PathPointDocument]


@frozen
class ArmView:
    """An arm: `title` is its name with what it did, where the name does not say that; `noise` is
    its run-to-run noise as a share of the loss, where it is known.
    """

    name: str
    title: str
    recipe: str | None
    runs: int
    noise: float | None


@frozen
class GapView:
    """A gap with the ends of the interval that decided, nats; `rel` is its share of the baseline's
    loss, `unit` what the interval counts ("6 runs"), "" where there is only one way to count.
    """

    mean: float
    lo: float
    hi: float
    rel: float | None
    unit: str = ""

    def against(self, margin: float) -> str:
        """Where the interval lies: above, below or across the margin (nats)."""
        if self.hi < margin:
            return "below"
        if self.lo > margin:
            return "above"
        return "across"


@frozen
class CommonView:
    """What both kinds of documents say.

    `gap` is the one that the sentences report: the judged one, None where there is none, or where
    it compares nothing. `intervals` are all that are on record, the judged one last.
    `recorded_gap` is the one that a table shows, also where it compares nothing. `names_unit` is
    whether a sentence about the interval says what it counts. `confidence` is the level of the
    interval that decided, which is the one that is shown.
    """

    state: State
    codes: Sequence[str]
    reasons: Sequence[ReasonDocument]
    advice: Sequence[str]
    offers: Sequence[OfferDocument]
    profile: str
    judge: str
    baseline: ArmView
    candidate: ArmView
    gap: GapView | None
    recorded_gap: GapView | None
    intervals: Sequence[GapView]
    names_unit: bool
    confidence: float
    margin: MarginDocument | None
    compares: bool
    finished: bool
    chance: float | None

    @property
    def code(self) -> str:
        """The code that decided."""
        return self.codes[0]

    @property
    def is_identical(self) -> bool:
        """Whether all runs are equal, one for one, in arms of one recipe."""
        return IDENTICAL.code in self.codes

    @property
    def is_numbers_alone(self) -> bool:
        """Whether numbers were compared, one a run, and no curves."""
        return NUMBERS_ALONE.code in self.codes

    @property
    def pair(self) -> str:
        """Which arm was judged against which."""
        return f"{self.candidate.title} against {self.baseline.title}"

    @property
    def decimals(self) -> int:
        """Decimals of every nat that is told of this verdict."""
        intervals = self.intervals if self.gap else ()
        ends = [end for interval in intervals for end in (interval.lo, interval.hi)]
        return nats_decimals(self.margin["nats"] if self.margin else None, *ends)


@frozen
class TrainingView(CommonView):
    """A verdict on two training curves."""

    document: VerdictDocument

    @property
    def point(self) -> str:
        """The point of training that the verdict speaks of: "step 760"."""
        schedule = self.document.get("schedule")
        if not schedule:
            return "this point"
        return f"step {schedule['step']:,}"

    @property
    def shorter_log(self) -> tuple[str, int] | None:
        """The arm whose log ends before the other's, and the last step of the other's; None where
        both reach as far.
        """
        inputs = self.document["inputs"]
        logs = [
            (
                max((run["completeness"]["last"] for run in runs), default=0),
                max((run["completeness"]["stride"] or 1 for run in runs), default=1),
                arm.title,
            )
            for arm, runs in (
                (self.baseline, inputs["baseline"]),
                (self.candidate, inputs["candidate"]),
            )
        ]
        (last, stride, name), (end, other_stride, _) = sorted(logs)
        if ends_early(last, end, max(stride, other_stride), end):
            return name, end
        return None

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last step of what is judged."""
        window = self.document["window"]
        return window["first"], window["last"]

    @property
    def run_hours(self) -> float | None:
        """Hours of training of all runs together."""
        speed = self.document.get("throughput")
        return speed["run_hours"] if speed else None

    @property
    def hours_missing(self) -> str | None:
        """Why the hours are no speed, where step times are on record."""
        return self.document.get("speed_reason")

    @property
    def is_paired(self) -> bool:
        """Whether runs are compared in pairs."""
        return bool(self.document["params"]["policy"].get("pairing") != "unpaired")

    @property
    def chances(self) -> ChancesDocument | None:
        """The chances of each verdict after one more pair of runs."""
        return chances_of(self.document)

    @property
    def spikes(self) -> Sequence[Sequence[int]]:
        """The steps of the baseline's and of the candidate's spikes."""
        return spike_steps(self.document)

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens a step: no training verdict knows them."""
        return None

    @property
    def paths(self) -> tuple[Path, Path]:
        """The gap on its way to the verdict; there is no second band."""
        return self.document.get("path") or (), ()


@frozen
class EvaluationView(CommonView):
    """A comparison of evaluations of several runs."""

    document: EvaluationDocument

    @property
    def point(self) -> str:
        """The points of training that are compared: "1.3 B tokens"."""
        as_of = self.document["as_of"]
        if not as_of:
            return "this point"
        several = len(as_of["points"])
        return f"{as_of['words']}{f' (mean of {several} points)' if several > 1 else ''}"

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last step of what is judged."""
        as_of = self.document["as_of"]
        if as_of and as_of["points"]:
            return as_of["points"][0], as_of["points"][-1]
        return None

    @property
    def run_hours(self) -> float | None:
        """Hours of training of all runs to the target; None where one is unknown."""
        times = [
            run["times"]
            for arm in (self.document["baseline"], self.document["candidate"])
            for run in arm["runs"]
        ]
        seconds = [
            run["seconds_to_target"]
            for run in times
            if run and run["seconds_to_target"] is not None
        ]
        if seconds and len(seconds) == len(times):
            return sum(seconds) / 3600.0
        return None

    @property
    def hours_missing(self) -> str | None:
        """None: nothing is said of times that are not on record."""
        return None

    @property
    def is_paired(self) -> bool:
        """Whether runs are compared in pairs."""
        return self.document["gap"]["pairs"] is not None

    @property
    def chances(self) -> ChancesDocument | None:
        """None: further runs are not forecast."""
        return None

    @property
    def spikes(self) -> Sequence[Sequence[int]]:
        """None in evaluations."""
        return ((), ())

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens a step, where the document knows them."""
        as_of = self.document["as_of"]
        if as_of and as_of["tokens"] and as_of["points"][-1]:
            return as_of["tokens"] / as_of["points"][-1]
        return None

    @property
    def paths(self) -> tuple[Path, Path]:
        """The gap on its way over runs, and over clusters where there are both."""
        path = self.document.get("path")
        if not path:
            return (), ()
        if path["over_runs"]:
            return path["over_runs"], path["over_clusters"]
        return path["over_clusters"], ()


View = TrainingView | EvaluationView


def view_of(document: Mapping[str, Any]) -> View:
    """The view of a stored document."""
    # the one place where JSON of a record becomes a typed document
    if document["schema"] == EVALUATION_SCHEMA:
        return evaluation_view(cast("EvaluationDocument", document))
    return training_view(cast("VerdictDocument", document))


def views_of(documents: Sequence[Mapping[str, Any]]) -> list[View]:
    """The views of documents, in their order."""
    return [view_of(document) for document in documents]


def training_view(document: VerdictDocument) -> TrainingView:
    """The view of a training verdict."""
    level, gap = 0.95, None
    if recorded := document["gap"]:
        interval = recorded_interval(document, recorded)
        level = interval["level"]
        gap = _gap({**recorded, "lo": interval["lo"], "hi": interval["hi"]})
    shown_gap = None if document["codes"][0] in NO_GAP_CODES else gap
    noises = document["tau"]
    return TrainingView(
        document=document,
        state=document["verdict"],
        codes=document["codes"],
        reasons=document["reasons"],
        advice=document.get("owner_steps", document["advice"]["sentences"]),
        offers=document["advice"].get("offers", ()),
        profile=document["profile"],
        judge=document["engine_version"],
        baseline=_arm(
            document["baseline"],
            document["baseline"]["runs"],
            noises["baseline"]["rel"] if noises else None,
        ),
        candidate=_arm(
            document["candidate"],
            document["candidate"]["runs"],
            noises["candidate"]["rel"] if noises else None,
        ),
        gap=shown_gap,
        recorded_gap=gap,
        intervals=[shown_gap] if shown_gap else [],
        names_unit=False,
        confidence=level,
        margin=document["margin"],
        compares="compares" in document,
        finished=_finished(document),
        chance=document.get("chance_of_parity"),
    )


def evaluation_view(document: EvaluationDocument) -> EvaluationView:
    """The view of a comparison of evaluations."""
    gap, intervals = document["gap"], _intervals(document)
    judged = _gap(gap["judged"]) if gap["judged"] else None
    shown_gap = judged or (intervals[-1] if intervals else None)
    if document["codes"][0] in NO_GAP_CODES:
        shown_gap = None
    return EvaluationView(
        document=document,
        state=document["verdict"],
        codes=document["codes"],
        reasons=document["reasons"],
        advice=document["advice"]["sentences"],
        offers=document["advice"].get("offers", ()),
        profile=document["profile"],
        judge=document["engine_version"],
        baseline=_evaluated_arm(document, "baseline"),
        candidate=_evaluated_arm(document, "candidate"),
        gap=shown_gap,
        recorded_gap=shown_gap,
        intervals=intervals,
        names_unit=len(intervals) > 1 or judged is None,
        confidence=gap["confidence"],
        margin=document["margin"],
        compares=False,
        finished=_finished(document),
        chance=document.get("chance_of_parity"),
    )


def number(value: object) -> float:
    """A number of a document, in which one that is not finite is text."""
    if isinstance(value, (int, float, str)):
        return float(value)
    return math.nan


def spike_steps(document: VerdictDocument) -> Sequence[Sequence[int]]:
    """The steps of the baseline's and of the candidate's spikes."""
    spikes = document.get("run_spikes")
    return spikes["steps"] if spikes else ((), ())


def _arm(arm: Mapping[str, Any], runs: int, noise: float | None) -> ArmView:
    name = str(arm["name"])
    shown = title(name, arm.get("recipe"))
    return ArmView(
        name=name,
        title=cut(shown, len(name) + MOST_OF_TITLE),
        recipe=arm.get("recipe"),
        runs=runs,
        noise=noise,
    )


def _evaluated_arm(document: EvaluationDocument, side: str) -> ArmView:
    arm = document["candidate"] if side == "candidate" else document["baseline"]
    spread = arm["spread"]
    return _arm(arm, len(arm["runs"]), spread["rel"] if spread and "rel" in spread else None)


def _gap(gap: Mapping[str, Any] | IntervalDocument, unit: str = "") -> GapView:
    rel = gap.get("rel")
    return GapView(
        mean=number(gap["mean"]),
        lo=number(gap["lo"]),
        hi=number(gap["hi"]),
        rel=None if rel is None else number(rel),
        unit=unit,
    )


def _intervals(document: EvaluationDocument) -> list[GapView]:
    """The gap over runs and over clusters, each with what it counts; the judged one last."""
    gap, intervals = document["gap"], list[GapView]()
    if over_runs := gap["over_runs"]:
        runs = len(document["baseline"]["runs"]) + len(document["candidate"]["runs"])
        pairs = gap["pairs"]
        unit = (
            count(runs, "run") if pairs is None else count(pairs, "pair of runs", "pairs of runs")
        )
        intervals.append(_gap(over_runs, unit))
    if over := gap["over_clusters"]:
        clusters = over["baseline"] if over["crossed"] else over["baseline"] + over["candidate"]
        intervals.append(_gap(over, count(clusters, over["key"])))
    return intervals


def _finished(document: AnyDocument) -> bool:
    schedule = document.get("schedule")
    return schedule is None or bool(schedule["finished"])
