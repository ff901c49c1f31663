"""The rows of the list of jobs: each is one answer; repeats of one question fold into one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.documents.job_lists.parent_jobs import child_counts
from server.documents.job_lists.summaries import JobSummary
from server.pages.lists.answers import JobAnswer, answer_of, forecasts_of
from server.pages.lists.gap_figures import GapFigure

_SMALLS = 6


@frozen
class ListRow:
    """A row: its answer, which is that of the newest repeat, and all repeats of the question on
    this page, newest first; of one, none.
    """

    answer: JobAnswer
    repeats: Sequence[JobAnswer] = ()

    @property
    def so_far(self) -> str:
        """How the repeats ended: "5 of 6 pass."."""
        states = [repeat.state for repeat in self.repeats]
        state = states[0] if len(set(states)) == 1 else "pass"
        word = "stay inconclusive" if state == "inconclusive" else state
        return f"{states.count(state)} of {len(states)} {word}."

    @property
    def smalls(self) -> Sequence[tuple[float, GapFigure]]:
        """The last intervals that can be drawn, oldest first, each with its place in percent of the
        width.
        """
        drawn = [repeat.gap.small for repeat in self.repeats if repeat.gap.small is not None][
            :_SMALLS
        ][::-1]
        return [
            (round(100.0 * (at + 0.5) / len(drawn), 2), figure) for at, figure in enumerate(drawn)
        ]


def rows_of(session: Session, jobs: Sequence[JobSummary]) -> list[ListRow]:
    """The rows of a page, in the order of its jobs; a folded one stands where the first of its
    repeats does.

    Only jobs with a verdict fold: what trains, or did not finish, is not hidden. All repeats among
    the jobs of a page share one row of it; those on another page have a row there, which says how
    they ended and nothing of these. So a page never needs the next one, and its cursor stays that
    of its last job.
    """
    forecasts, belonging = (
        forecasts_of(session, jobs),
        child_counts(session, [job.id for job in jobs]),
    )
    answers = [answer_of(job, forecasts.get(job.id, {}), belonging.get(job.id, {})) for job in jobs]
    groups: dict[str, list[JobAnswer]] = {}
    for answer in answers:
        groups.setdefault(answer.job.group if answer.is_verdict else answer.job.id, []).append(
            answer
        )
    newest_first = (
        sorted(group, key=lambda answer: answer.job.id, reverse=True) for group in groups.values()
    )
    return [
        ListRow(answer=group[0], repeats=group if len(group) > 1 else ()) for group in newest_first
    ]
