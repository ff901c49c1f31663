"""The table of a job's candidates: one row each with verdict or forecast, gap on a shared axis, cost, what decided, and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlencode

from markupsafe import Markup

from parity.judging.document_types import VerdictDocument
from parity.report.forest import Axis, Estimate, axis_of, estimate_of, head_svg, row_svg
from parity.report.headline import decided_by, next_step
from server.database.states import JOB_ENDED
from server.documents.job import ArmDocument, JobDocument

Order = Literal["", "gap", "verdict"]
ORDERS: Mapping[Order, str] = {"": "as submitted", "gap": "gap, worst first", "verdict": "verdict, fails first"}
STYLED = 8  # candidates that a chart shows in a colour and line style of their own at a time
_LIT = 4  # of more, how many are highlighted at first
_SEVERITY = {"fail": 0, "inconclusive": 1, "pass": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A candidate. `verdict` is the judge's document; without one, the forecast may be there, while the job trains."""

    arm: ArmDocument
    verdict: VerdictDocument | None
    estimate: Estimate | None
    axis: Axis | None
    link: str
    selected: bool

    @property
    def figure(self) -> Markup:
        """The gap on the axis of all rows."""
        return Markup(row_svg(self.estimate, self.axis)) if self.estimate and self.axis else Markup()  # noqa: S704 (numbers of our own)

    @property
    def decided(self) -> str:
        """What decided, in words; empty without a verdict."""
        return decided_by(self.verdict) if self.verdict else ""

    @property
    def next_step(self) -> str:
        """The verdict's advice in a few words."""
        return next_step(self.verdict) if self.verdict else ""

    @property
    def live(self) -> bool:
        """Whether the row shows a forecast."""
        return self.estimate is not None and self.estimate.state == "forecast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows in their order, the head of the figures' column, what is selected, and what the charts highlight at first."""

    rows: list[Row]
    head: Markup | None
    order: Order
    orders: list[tuple[str, str, bool]]
    selected: Row | None
    lit: list[str]
    counts: Mapping[str, list[str]]

    @property
    def has_tax(self) -> bool:
        """Whether any verdict has a token tax."""
        return any(row.verdict and row.verdict.get("token_tax") for row in self.rows)

    @property
    def confidence(self) -> float | None:
        """The level of the intervals, if they all have one level."""
        levels = {row.verdict["gap"]["confidence"] for row in self.rows if row.verdict and row.verdict["gap"]}
        return levels.pop() if len(levels) == 1 else None


def candidate_table(job: JobDocument, candidate: str = "", order: Order = "") -> Table:
    """The table of a job; `candidate` is the one whose details are shown, by default the only one."""
    arms = job.arms[1:]
    chosen = arms[0].name if len(arms) == 1 else candidate
    verdicts = {document["candidate"]["name"]: document for document in cast(Sequence[VerdictDocument], job.verdicts)}
    estimates = {arm.name: _estimate(job, arm, verdicts.get(arm.name)) for arm in arms}
    axis = axis_of([each for each in estimates.values() if each])
    ordered = {"order": order} if order else {}
    rows = [
        Row(
            arm=arm,
            verdict=verdicts.get(arm.name),
            estimate=estimates[arm.name],
            axis=axis,
            link="?" + urlencode({"candidate": arm.name} | ordered) + "#candidate",
            selected=arm.name == chosen,
        )
        for arm in arms
    ]
    ranked = sorted(rows, key=_badness)
    by_order = {"": rows, "gap": ranked, "verdict": sorted(ranked, key=lambda row: _SEVERITY[row.verdict["verdict"]] if row.verdict else 3)}
    kept = {"candidate": candidate} if candidate else {}
    return Table(
        rows=by_order[order],
        head=Markup(head_svg(axis)) if axis else None,  # noqa: S704 (numbers of our own)
        order=order,
        orders=[(words, "?" + urlencode(kept | ({"order": name} if name else {})), name == order) for name, words in ORDERS.items()],
        selected=next((row for row in rows if row.selected), None),
        lit=_lit(ranked, chosen),
        counts={
            outcome: names
            for outcome in ("pass", "fail", "inconclusive")
            if (names := [row.arm.name for row in rows if row.verdict and row.verdict["verdict"] == outcome])
        },
    )


def _lit(ranked: Sequence[Row], chosen: str) -> list[str]:
    """What the charts highlight at first: every candidate, or of many the selected one and those that end worst."""
    if len(ranked) <= STYLED:
        return [row.arm.name for row in ranked]
    worst = [row.arm.name for row in ranked if row.estimate] or [row.arm.name for row in ranked]
    first = [row.arm.name for row in ranked if row.arm.name == chosen]
    return list(dict.fromkeys([*first, *worst[:_LIT]]))


def _badness(row: Row) -> tuple[bool, float]:
    """Worst first; a candidate without a number comes before all others if it failed, else after them."""
    if row.estimate is None:
        return not (row.verdict and row.verdict["verdict"] == "fail"), float("inf") if row.verdict is None else -1.0
    return True, -row.estimate.mean


def _estimate(job: JobDocument, arm: ArmDocument, verdict: VerdictDocument | None) -> Estimate | None:
    """The verdict's gap; while the job trains, the forecast of it. A job that ended without a verdict has neither."""
    if verdict is not None:
        return estimate_of(verdict)
    if arm.live is None or job.status in JOB_ENDED:
        return None
    live = arm.live
    return Estimate(mean=live.gap, lo=live.low, hi=live.high, margin=live.margin, state="forecast")
