"""What the picture of a verdict shows: gaps on their way to the verdict, judged intervals, the
margin and the window, without a drawing.

A scene is made of documents that carry their `path`; the caller adds what a document does not hold:
dots (the gap in blocks of steps), NaN and losses, from a case here or from the server's bins.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from parity.frozen import frozen
from parity.judging.case import AnyDocument
from parity.judging.codes import BASELINE_INVALID, GAP_GROWING, NONFINITE_CAND
from parity.judging.document_types import MarginDocument, PathPointDocument, State
from parity.report.answer import answer_words
from parity.report.candidates import safest_first
from parity.report.number_words import ends_words, mean_words
from parity.report.picture.svg_parts import SHORT_NAME
from parity.report.strip import StripItem, candidate_items
from parity.report.view import EvaluationView, TrainingView, View, number, views_of
from parity.report.words import Words, words
from parity.wording import (
    DECIMALS,
    cut,
    level_percent,
    minus,
    short_percent,
    signed,
)

DOTS = 150
STYLES = 8  # lines that tell candidates apart, for which verdict.css and arms.js have dashes
MANY = 8  # candidates; more of them share one whisker
FEW_DOTS = 60  # of each, where there are many candidates


Points = Sequence[tuple[float, float]]
TraceState = State | Literal["live"]
_BROKEN_SIDE = {BASELINE_INVALID.code: "baseline", NONFINITE_CAND.code: "candidate"}
OWN_BASELINE = "own baseline"  # of each candidate, where they are judged against different arms
_NOTE = (
    "Each point is the judge’s gap and interval for the runs cut there; the last one is the "
    "verdict."
)


@frozen
class JudgedInterval:
    """A judged gap with its interval, nats."""

    mean: float
    lo: float
    hi: float


@frozen
class Marks:
    """Steps with spikes, and with NaN or infinite losses: the baseline's and the candidate's."""

    spikes: tuple[Sequence[int], Sequence[int]] = ((), ())
    nonfinite: tuple[Sequence[int], Sequence[int]] = ((), ())


@frozen
class Dots:
    """The mean gap of blocks of `steps` steps: (step, nats); and the steps at which a loss is not
    finite.
    """

    points: Points = ()
    steps: int = 0
    nonfinite: tuple[Sequence[int], Sequence[int]] = ((), ())


@frozen
class Answer:
    """What the page says of one candidate, or of all together, as people read it."""

    state: TraceState
    chip: str
    lead: str
    measure: str
    interval: str
    next: str

    @property
    def texts(self) -> Sequence[str]:
        """Its words in the order of the page, behind its state."""
        return self.state, self.chip, self.lead, self.measure, self.interval, self.next


@frozen
class Trace:
    """One candidate: its path, what was judged (the interval that decides first), and the words
    beside it.

    `label` is the gap, `notes` the lines below it, `line` the verdict in words. A live one has
    `judged` for the forecast's 90 % and its `gap` so far, from which the forecast starts.
    `decimals` are those of its nats, `facts` what the strip says of it alone, `answer` what the
    page says once it is selected, where there are several; `arm` is its arm's name, `style` the
    place of its line among the lines that tell candidates apart. `trend` is the gap at both ends of
    the judged steps on a straight line through them, where its growth decides;
    `broken` are the first and the last step of NaN or infinite losses that left no gap to judge.
    """

    name: str
    state: TraceState
    judged: Sequence[JudgedInterval]
    label: str
    notes: Sequence[str]
    line: str
    path: Sequence[PathPointDocument] = ()
    outer: Sequence[PathPointDocument] = ()
    dots: Points = ()
    marks: Marks = Marks()
    gap: float | None = None
    facts: Sequence[StripItem] = ()
    decimals: int = DECIMALS
    answer: Answer | None = None
    arm: str = ""
    style: int = 0
    trend: tuple[float, float] | None = None
    broken: tuple[int, int] | None = None


@frozen
class Losses:
    """The losses of one arm: (step, nats). `arm` is the candidate's place among the traces, None
    for the baseline.
    """

    name: str
    arm: int | None
    points: Points


@frozen
class Scene:
    """All that a picture shows. `margin_note` is what the margin is worth, `legend` what line, band
    and dots are, `note` is said below.

    `answer` is that of all candidates together, where there are several. `end` is the end of the
    axis: of the plan, or the last step. `now` is the step that a live job
    has reached. `limits` are the ends of the axis in nats, for a live job whose axis stays
    (`picture.steady_limits`). `nothing` is said where there is nothing to draw of a job without a
    verdict.
    """

    baseline: str
    traces: Sequence[Trace]
    decimals: int
    end: int
    window: tuple[int, int] | None = None
    margin: float | None = None
    margin_note: str = ""
    legend: str = ""
    note: str = ""
    selected: int = 0
    losses: Sequence[Losses] = ()
    tokens_per_step: float | None = None
    now: int | None = None
    limits: tuple[float, float] | None = None
    answer: Answer | None = None
    nothing: str = "no step yet"

    @property
    def is_dense(self) -> bool:
        """Whether there are more candidates than have a whisker each."""
        return len(self.traces) > MANY

    @property
    def has_gap(self) -> bool:
        """Whether anything was judged or is on its way; without it the picture shows losses."""
        return any(trace.judged or trace.path for trace in self.traces) or not self.losses


def scene_of(
    documents: Sequence[AnyDocument],
    dots: Mapping[str, Dots] | None = None,
    end: int | None = None,
    losses: Sequence[Losses] = (),
) -> Scene:
    """The scene of judged candidates, safest first; `dots` by candidate, `end` the planned last
    step.
    """
    ordered = safest_first(views_of(documents))
    first, dots = ordered[0], dots or {}
    baselines = {view.baseline.name for view in ordered}
    several, mixed = len(ordered) > 1, len(baselines) > 1
    asked = [view.candidate.name for view in views_of(documents)]  # in the order of the arms
    traces = [
        replace(
            _trace(view, dots.get(view.candidate.name, Dots()), several=several, mixed=mixed),
            style=asked.index(view.candidate.name) % STYLES,
        )
        for view in ordered
    ]
    window = first.window
    steps = [point["step"] for trace in traces for point in (*trace.path, *trace.outer)]
    steps += [int(step) for arm in losses for step, _ in arm.points[-1:]]
    places = {view.candidate.name: place for place, view in enumerate(ordered)}
    margin = next((view.margin for view in ordered if view.margin), None)
    has_line = any(len(path) > 1 for trace in traces for path in (trace.path, trace.outer))
    return Scene(
        baseline=OWN_BASELINE if mixed else first.baseline.title,
        traces=traces,
        decimals=first.decimals,
        end=max([1, *steps, *([window[1]] if window else []), *([end] if end else [])]),
        window=window,
        margin=margin["nats"] if margin and math.isfinite(number(margin["nats"])) else None,
        margin_note=_margin_note(margin, first.candidate.name if mixed else "") if margin else "",
        legend=_legend(ordered, dots, has_line=has_line)
        if any(view.gap for view in ordered)
        else "no gap is judged",
        note=_NOTE if has_line else "",
        losses=[
            Losses(name=arm.name, arm=places.get(arm.name, arm.arm), points=arm.points)
            for arm in losses
        ],
        tokens_per_step=first.tokens_per_step,
        answer=answer_in_words(answer_words(ordered)) if several else None,
    )


def answer_in_words(said: Words) -> Answer:
    """The answer of a candidate, or of all, with the true minus sign."""
    return Answer(
        state=said.verdict,
        chip=said.chip,
        lead=said.lead,
        measure=minus(said.measure),
        interval=minus(said.interval),
        next=minus(said.next),
    )


def _margin_note(margin: MarginDocument, of: str) -> str:
    """What the margin is worth; and whose it is, where candidates have baselines of their own, so
    that their margins differ a little.
    """
    worth = f"{short_percent(margin['rel'])} of the loss" if margin["rel"] else ""
    return ", ".join(part for part in (worth, f"for {of}" if of else "") if part)


def _trace(view: View, dots: Dots, *, several: bool, mixed: bool) -> Trace:
    inner, outer = view.paths if view.gap else ((), ())
    said = words(view)
    spikes = view.spikes
    return Trace(
        name=view.candidate.title,
        state=view.state,
        judged=_judged(view),
        label=minus(mean_words(view)) if view.gap else _label_without_gap(view),
        notes=[
            minus(f"to {cut(view.baseline.name, SHORT_NAME)}: {note}" if mixed else note)
            for note in _notes(view, several=several)
        ],
        arm=view.candidate.name,
        line=minus(said.line),
        answer=answer_in_words(said) if several else None,
        facts=candidate_items(said.strip) if several else (),
        decimals=view.decimals,
        path=inner,
        outer=outer,
        trend=_trend(view),
        broken=_broken(view, dots),
        dots=dots.points,
        marks=Marks(
            spikes=(spikes[0], spikes[1]) if spikes else ((), ()), nonfinite=dots.nonfinite
        ),
    )


def _trend(view: View) -> tuple[float, float] | None:
    if not isinstance(view, TrainingView) or not view.gap or view.code != GAP_GROWING.code:
        return None
    drift = view.document.get("drift")
    if not drift:
        return None
    return view.gap.mean - drift["change"] / 2.0, view.gap.mean + drift["change"] / 2.0


def _broken(view: View, dots: Dots) -> tuple[int, int] | None:
    """The losses that decided as NaN: to the end of what was judged where a run ends with one, else
    as far as they are marked.
    """
    side = _BROKEN_SIDE.get(view.code)
    if side is None or not isinstance(view, TrainingView):
        return None
    found = view.document["nonfinite"][side]
    first = found["first_step"]
    marked = dots.nonfinite[side == "candidate"]
    last = view.document["window"]["last"] if found["at_end"] else first
    return first, max(first, last, *marked)


def _label_without_gap(view: View) -> str:
    return "NaN" if view.code in _BROKEN_SIDE else "no gap"


def _judged(view: View) -> list[JudgedInterval]:
    """The judged interval, and after it the other one of a comparison of evaluations."""
    if view.gap is None:
        return []
    return [JudgedInterval(mean=gap.mean, lo=gap.lo, hi=gap.hi) for gap in reversed(view.intervals)]


def _notes(view: View, *, several: bool) -> list[str]:
    """The lines below the label: the interval, and of one candidate alone the gap's share of the
    loss.
    """
    if view.gap is None:
        return []
    named = len(view.intervals) > 1
    intervals = [
        f"{gap.unit}: {ends_words(view, gap)}" if named else ends_words(view, gap)
        for gap in reversed(view.intervals)
    ]
    share = view.gap.rel
    if share is None or several or isinstance(view, EvaluationView):  # its table has the share
        return intervals
    return [*intervals, f"{signed(100.0 * share, 2)} % of the loss"]


def _legend(views: Sequence[View], dots: Mapping[str, Dots], *, has_line: bool) -> str:
    """What line, band and dots are, or marks and whiskers of a gap at one point, which has no line.
    Passes and fails of several candidates have intervals of other levels: the judged panel and the
    sentences name those.
    """
    view = views[0]
    level = level_percent(view.confidence)
    if isinstance(view, EvaluationView):  # its bands are over runs and over clusters
        gap = view.document["gap"]
        clusters = gap["over_clusters"]
        both = bool(clusters and gap["over_runs"])
        if clusters and both and has_line:
            return (
                f"line: mean gap · inner band: over runs · outer: over {clusters['key']}s ({level})"
            )
        if has_line:
            return f"line: mean gap · band: {level} interval"
        return f"mark: mean gap · whisker{'s' if both else ''}: {level} interval"
    levels = {shown.confidence for shown in views if shown.recorded_gap is not None}
    band = " · band: its interval"
    if len(levels) == 1:
        band = f" · band: {level_percent(levels.pop())} interval"
    elif not levels:
        band = ""
    blocks = max((candidate.steps for candidate in dots.values()), default=0)
    shown = f" · dots: {blocks:,} step{'s' if blocks > 1 else ''}" if blocks else ""
    if not has_line:
        return f"mark: judged gap · whisker: its interval{shown}"
    return (
        f"line: gap over the last {short_percent(view.document['window']['fraction'])} so "
        f"far{band}{shown}"
    )
