"""The table of a job's candidates: one row each with verdict or forecast, and the gap on a shared
axis.
"""

from collections.abc import Sequence
from urllib.parse import urlencode

from markupsafe import Markup

from parity.frozen import frozen
from parity.judging.document_types import VerdictDocument
from parity.report.candidates import safest_first
from parity.report.picture.forest import DrawnGap, GapAxis, axis_of, estimate_of, head_svg, row_svg
from parity.report.view import TrainingView, view_of, views_of
from server.database.states import JOB_ENDED
from server.documents.jobs import ArmDocument, JobDocument

STYLED = 8  # candidates that a chart shows in a colour and line style of their own at a time
_LIT = 4  # of more, how many are highlighted at first


@frozen
class CandidateRow:
    """A candidate. `verdict` is the judge's document; without one, the forecast may be there, while
    the job trains.
    """

    arm: ArmDocument
    verdict: VerdictDocument | None
    estimate: DrawnGap | None
    axis: GapAxis | None
    link: str
    selected: bool

    @property
    def figure(self) -> Markup:
        """The gap on the axis of all rows."""
        return (
            Markup(row_svg(self.estimate, self.axis)) if self.estimate and self.axis else Markup()  # noqa: S704
        )

    @property
    def live(self) -> bool:
        """Whether the row shows a forecast."""
        return self.estimate is not None and self.estimate.state == "forecast"


@frozen
class CandidateTable:
    """The rows, the head of the figures' column, and what the charts highlight at first."""

    rows: list[CandidateRow]
    head: Markup | None
    lit: list[str]


def candidate_table(job: JobDocument, candidate: str = "") -> CandidateTable:
    """The table of a job, judged candidates safest first; `candidate` is the one that is
    highlighted, by default the only one.
    """
    arms = job.arms[1:]
    chosen = arms[0].name if len(arms) == 1 else candidate
    views = safest_first(views_of(job.verdicts or ()))
    verdicts = {
        view.candidate.name: view.document for view in views if isinstance(view, TrainingView)
    }
    estimates = {arm.name: _estimate(job, arm, verdicts.get(arm.name)) for arm in arms}
    axis = axis_of([estimate for estimate in estimates.values() if estimate])
    rows = [
        CandidateRow(
            arm=arm,
            verdict=verdicts.get(arm.name),
            estimate=estimates[arm.name],
            axis=axis,
            link="?" + urlencode({"candidate": arm.name}),
            selected=arm.name == chosen,
        )
        for arm in arms
    ]
    places = {name: place for place, name in enumerate(verdicts)}
    return CandidateTable(
        rows=sorted(rows, key=lambda row: places.get(row.arm.name, len(places))),
        head=Markup(head_svg(axis)) if axis else None,  # noqa: S704
        lit=_lit(sorted(rows, key=_badness), chosen),
    )


def _lit(ranked: Sequence[CandidateRow], chosen: str) -> list[str]:
    """What the charts highlight at first: every candidate, or of many the selected one and those
    that end worst.
    """
    names = [row.arm.name for row in ranked]
    if len(ranked) <= STYLED:
        return names
    worst = [row.arm.name for row in ranked if row.estimate or row.verdict] or names
    return list(dict.fromkeys([*({chosen} & {*names}), *worst[:_LIT]]))


def _badness(row: CandidateRow) -> tuple[bool, float]:
    """Worst first; a candidate without a number comes before all others if it failed, else after
    them.
    """
    if row.estimate is None:
        return not (row.verdict and row.verdict["verdict"] == "fail"), float(
            "inf"
        ) if row.verdict is None else -1.0
    return True, -row.estimate.mean


def _estimate(
    job: JobDocument, arm: ArmDocument, verdict: VerdictDocument | None
) -> DrawnGap | None:
    """The verdict's gap; while the job trains, the forecast of it. A job that ended without a
    verdict has neither.
    """
    if verdict is not None:
        return estimate_of(view_of(verdict))
    if arm.live is None or job.status in JOB_ENDED:
        return None
    live = arm.live
    return DrawnGap(mean=live.gap, lo=live.low, hi=live.high, margin=live.margin, state="forecast")
