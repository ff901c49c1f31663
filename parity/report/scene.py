"""What the picture of a verdict shows: gaps on their way to the verdict, judged intervals, the
margin and the window, without a drawing.

A scene is made of documents that carry their `path`; the caller adds what a document does not hold:
dots (the gap in blocks of steps), NaN and losses, from a case here or from the server's bins.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import numpy as np

from parity.frozen import frozen
from parity.judging.bundles.evidence import Case
from parity.judging.document_types import MarginDocument, PathPointDocument, State, VerdictDocument
from parity.judging.live.gap_chart import BinnedGap, StepRange
from parity.report.facts import tokens_per_step
from parity.report.figures import loss_buckets, spike_steps, verdict_gap
from parity.report.words import (
    PROBABLE,
    AnyDocument,
    Fact,
    Outlook,
    baseline_name,
    baseline_title,
    candidate_name,
    candidate_title,
    decimals,
    ends_words,
    evaluation_intervals,
    is_evaluation,
    mean_words,
    number,
    own_facts,
    safest_first,
    told_gap,
    words,
)
from parity.wording import (
    DECIMALS,
    cut,
    interval_words,
    level_percent,
    minus,
    nats_decimals,
    short_percent,
    signed,
)

DOTS = 150
MANY = 8  # candidates; more of them share one whisker
FEW_DOTS = 60  # of each, where there are many candidates
_SHORT_NAME = 12  # characters of a baseline's name before an interval
_HALF = 0.6744898 / 1.6448536  # of a normal's 90 % interval, which its 50 % interval spans

Points = Sequence[tuple[float, float]]
TraceState = State | Literal["live"]


@frozen
class Judged:
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
class Trace:
    """One candidate: its path, what was judged (the interval that decides first), and the words
    beside it.

    `label` is the gap, `notes` the lines below it, `line` the verdict in words. A live one has
    `judged` for the forecast's 90 % and its `gap` so far, from which the forecast starts.
    `decimals` are those of its nats, `facts` what the strip says of it alone.
    """

    name: str
    state: TraceState
    judged: Sequence[Judged]
    label: str
    notes: Sequence[str]
    line: str
    path: Sequence[PathPointDocument] = ()
    outer: Sequence[PathPointDocument] = ()
    dots: Points = ()
    marks: Marks = Marks()
    gap: float | None = None
    facts: Sequence[Fact] = ()
    decimals: int = DECIMALS


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

    `end` is the end of the axis: of the plan, or the last step. `now` is the step that a live job
    has reached. `limits` are the ends of the axis in nats, for a live job whose axis stays
    (`picture.steady_limits`).
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
    ordered = safest_first(documents)
    first, dots = ordered[0], dots or {}
    baselines = {baseline_name(document) for document in ordered}
    several, mixed = len(ordered) > 1, len(baselines) > 1
    traces = [
        _trace(document, dots.get(candidate_name(document), Dots()), several=several, mixed=mixed)
        for document in ordered
    ]
    window = window_of(first)
    steps = [point["step"] for trace in traces for point in (*trace.path, *trace.outer)]
    steps += [int(step) for arm in losses for step, _ in arm.points[-1:]]
    places = {candidate_name(document): place for place, document in enumerate(ordered)}
    margin = next((document["margin"] for document in ordered if document["margin"]), None)
    return Scene(
        baseline=OWN_BASELINE if mixed else baseline_title(first),
        traces=traces,
        decimals=decimals(first),
        end=max([1, *steps, *([window[1]] if window else []), *([end] if end else [])]),
        window=window,
        margin=margin["nats"] if margin and math.isfinite(number(margin["nats"])) else None,
        margin_note=_margin_note(margin, candidate_name(first) if mixed else "") if margin else "",
        legend=_legend(first, dots, several=several)
        if any(map(told_gap, ordered))
        else "no gap is judged",
        note=_NOTE,
        losses=[
            Losses(name=arm.name, arm=places.get(arm.name, arm.arm), points=arm.points)
            for arm in losses
        ],
        tokens_per_step=tokens_per_step(first) if is_evaluation(first) else None,
    )


OWN_BASELINE = "own baseline"  # of each candidate, where they are judged against different arms
_NOTE = (
    "Each point is the judge’s gap and interval for the runs cut there; the last one is the "
    "verdict."
)


def _margin_note(margin: MarginDocument, of: str) -> str:
    """What the margin is worth; and whose it is, where candidates have baselines of their own, so
    that their margins differ a little.
    """
    worth = f"{short_percent(margin['rel'])} of the loss" if margin["rel"] else ""
    return ", ".join(part for part in (worth, f"for {of}" if of else "") if part)


def _trace(document: AnyDocument, dots: Dots, *, several: bool, mixed: bool) -> Trace:
    gap = told_gap(document)
    inner, outer = _paths(document) if gap else ((), ())
    told = words(document)
    notes = _notes(document, several=several) if gap else []
    spikes = () if is_evaluation(document) else spike_steps(cast("VerdictDocument", document))
    return Trace(
        name=candidate_title(document),
        state=document["verdict"],
        judged=_judged(document),
        label=minus(mean_words(document)),
        notes=[
            minus(f"to {cut(baseline_name(document), _SHORT_NAME)}: {note}" if mixed else note)
            for note in notes
        ],
        line=minus(told.line),
        facts=own_facts(told.strip) if several else (),
        decimals=decimals(document),
        path=inner,
        outer=outer,
        dots=dots.points,
        marks=Marks(
            spikes=(spikes[0], spikes[1]) if spikes else ((), ()), nonfinite=dots.nonfinite
        ),
    )


def _judged(document: AnyDocument) -> list[Judged]:
    """The judged interval, and after it the other one of a comparison of evaluations."""
    if is_evaluation(document):
        if told_gap(document):
            gaps = [gap for gap, _ in reversed(evaluation_intervals(document))]
        else:
            gaps = []
    else:
        own = cast("VerdictDocument", document)["gap"] if told_gap(document) else None
        gaps = [own] if own else []  # type: ignore[list-item]
    return [
        Judged(mean=number(gap["mean"]), lo=number(gap["lo"]), hi=number(gap["hi"])) for gap in gaps
    ]


def _paths(
    document: AnyDocument,
) -> tuple[Sequence[PathPointDocument], Sequence[PathPointDocument]]:
    """The path with its inner band, and the one with the outer band of a comparison of evaluations
    in clusters.
    """
    path = document.get("path")
    if not path:
        return (), ()
    if is_evaluation(document):
        both = document["path"]
        if both["over_runs"]:
            return both["over_runs"], both["over_clusters"]
        return both["over_clusters"], ()
    return cast("Sequence[PathPointDocument]", path), ()


def _notes(document: AnyDocument, *, several: bool) -> list[str]:
    """The lines below the label: the interval, and of one candidate alone the gap's share of the
    loss.
    """
    gap = told_gap(document)
    if gap is None:
        return []
    if is_evaluation(document):
        intervals = evaluation_intervals(document)
        named = len(intervals) > 1
        return [
            f"{unit}: {ends_words(document, own)}" if named else ends_words(document, own)
            for own, unit in reversed(intervals)
        ]
    share = gap["rel"]
    if share is not None and not several:
        of_loss = [f"{signed(100.0 * number(share), 2)} % of the loss"]
    else:
        of_loss = []
    return [ends_words(document, gap), *of_loss]


def window_of(document: AnyDocument) -> tuple[int, int] | None:
    """First and last step of what is judged."""
    if is_evaluation(document):
        as_of = document["as_of"]
        if as_of and as_of["points"]:
            return as_of["points"][0], as_of["points"][-1]
        return None
    window = cast("VerdictDocument", document)["window"]
    return window["first"], window["last"]


def _legend(document: AnyDocument, dots: Mapping[str, Dots], *, several: bool) -> str:
    if is_evaluation(document):
        level = level_percent(document["gap"]["confidence"])
        clusters = document["gap"]["over_clusters"]
        if clusters and document["gap"]["over_runs"]:
            return (
                f"line: mean gap · inner band: over runs · outer: over {clusters['key']}s ({level})"
            )
        return f"line: mean gap · band: {level} interval"
    verdict = cast("VerdictDocument", document)
    gap = verdict["gap"]
    band = f" · band: {level_percent(gap['confidence'])} interval" if gap else ""
    blocks = max((each.steps for each in dots.values()), default=0)
    shown = f" · dots: {blocks:,} step{'s' if blocks > 1 else ''}" if blocks else ""
    return (
        f"line: gap over the last {short_percent(verdict['window']['fraction'])} so "
        f"far{band if several or gap else ''}{shown}"
    )


# What a case adds: dots, NaN and losses.


def case_scene(case: Case, documents: Sequence[VerdictDocument]) -> Scene:
    """The scene of a case that was judged."""
    bins = FEW_DOTS if len(documents) > MANY else DOTS
    dots = {
        candidate_name(each): dots_of(verdict_gap(each, case, StepRange(bins=bins)))
        for each in documents
    }
    first = min((int(run.steps[0]) for run in case.baseline if len(run.steps)), default=0)
    return scene_of(
        documents,
        dots,
        end=first + case.planned_steps - 1 if case.planned_steps else None,
        losses=losses_of(case),
    )


def dots_of(gap: BinnedGap) -> Dots:
    """The dots of a binned gap."""
    middle = (gap.first_step + gap.last_step) / 2.0
    finite = np.isfinite(gap.mean)
    return Dots(
        points=list(zip(middle[finite].tolist(), gap.mean[finite].tolist(), strict=True)),
        steps=int(np.median(gap.n)) if len(gap.n) else 0,
        nonfinite=(gap.nonfinite_baseline.tolist(), gap.nonfinite_candidate.tolist()),
    )


def losses_of(case: Case) -> list[Losses]:
    """The losses of the first run of each arm, in buckets; arms without a finite loss are
    left out.
    """
    arms = [(case.baseline_name or "baseline", None, case.baseline)]
    arms += [(name, place, runs) for place, (name, runs) in enumerate(case.candidates.items())]  # type: ignore[misc]
    drawn = []
    for name, place, runs in arms:
        steps, mean, _, _ = loss_buckets(runs[0])
        if len(steps):
            drawn.append(
                Losses(
                    name=name,
                    arm=place,
                    points=list(zip(steps.tolist(), mean.tolist(), strict=True)),
                )
            )
    return drawn


# A live job: the gap so far and the forecast.


def live_trace(
    name: str,
    live: Outlook | None,
    path: Sequence[PathPointDocument] = (),
    dots: Dots | None = None,
) -> Trace:
    """A candidate in training: its gap so far, and the forecast of its end once there is one."""
    dots = dots or Dots()
    marks = Marks(nonfinite=dots.nonfinite)
    if live is None:
        return Trace(
            name=name,
            state="live",
            judged=[],
            label="",
            notes=[],
            line="",
            path=path,
            dots=dots.points,
            marks=marks,
        )
    places = nats_decimals(live.margin, live.low, live.high)
    middle = (live.low + live.high) / 2.0
    chances: Sequence[tuple[State, float]] = (
        ("pass", live.passes),
        ("fail", live.fails),
        ("inconclusive", live.inconclusive),
    )
    likely: TraceState = next((state for state, chance in chances if chance >= PROBABLE), "live")
    return Trace(
        name=name,
        state=likely,
        judged=[Judged(mean=middle, lo=live.low, hi=live.high)],
        label=minus(signed(middle, places)),
        decimals=places,
        notes=[minus(interval_words(live.low, live.high, places)), "90 % forecast"],
        line="",
        path=path,
        dots=dots.points,
        marks=marks,
        gap=live.gap,
    )


def half_of(judged: Judged) -> tuple[float, float]:
    """The ends that a forecast stays within with a chance of 50 %, where those of 90 % are known,
    as of a normal distribution.
    """
    return judged.mean - _HALF * (judged.mean - judged.lo), judged.mean + _HALF * (
        judged.hi - judged.mean
    )
