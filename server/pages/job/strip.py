"""The strip of a job without a verdict, and what a job cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from parity.report.strip import StripItem
from parity.wording import count
from server.database.states import JOB_ENDED
from server.documents.jobs import JobDocument
from server.jobs.cost import SECONDS_OF_AN_HOUR, CostDocument
from server.pages.formats import duration, instant_words


def progress_strip(job: JobDocument) -> list[StripItem]:
    """The facts under the answer of a job that has no verdict."""
    base, *arms = job.arms
    runs = [len(arm.runs) for arm in job.arms]
    if len(set(runs)) == 1:
        run_counts = f"{count(runs[0], 'run')} per arm"
    else:
        run_counts = f"{runs[0]} + {sum(runs[1:])} runs"
    if job.eta_seconds and job.eta_seconds >= 1 and job.status not in JOB_ENDED:
        end = datetime.now(UTC) + timedelta(seconds=job.eta_seconds)
        left = f"{duration(job.eta_seconds)} left, ends about {instant_words(end)}"
    else:
        left = ""
    loss = f"loss {base.loss:.3f} of {base.name}" if base.loss is not None else ""
    short_reruns = sum(len(arm.short_reruns) for arm in job.arms)
    return [
        StripItem(
            "Progress",
            f"{100.0 * job.share_done:.0f} % of the steps",
            "; ".join(part for part in (left, loss) if part),
        ),
        cost_fact(job.cost),
        StripItem("Evidence", run_counts, count(len(arms), "candidate")),
        StripItem(
            "Run-to-run noise",
            count(short_reruns, "short rerun") if short_reruns else "No short reruns",
            "used in the verdict, not in a forecast",
        ),
        _early_stop(job.policy),
    ]


def _early_stop(policy: Mapping[str, Any]) -> StripItem:
    """What a forecast of a fail does to the runs, as the policy says."""
    if policy.get("early_stop", "advise") == "stop":
        return StripItem(
            "Early stop", "On", "runs of a candidate that will fail, or can hardly pass, are ended"
        )
    return StripItem("Early stop", "Off", "a forecast of a fail is shown and ends no run")


def cost_fact(cost: CostDocument) -> StripItem:
    """What a job cost: device time, price where one is stated, and the runs that it did not have to
    train.
    """
    trained = f"{count(cost.trained_runs, 'run')} trained"
    reused = f"; {cost.reused_runs} reused" if cost.reused_runs else ""
    if cost.device_seconds is None:
        known = "Not known yet" if cost.is_estimate else "Not recorded"
        return StripItem("Cost", known, cost.missing or "no step times on record")
    device_time = _device_time(cost.device_seconds, is_estimate=cost.is_estimate)
    if cost.price is not None:
        about = "about " if cost.is_estimate else ""
        money = f"{about}{cost.price:,.2f} {cost.currency or ''}".rstrip()
        return StripItem("Cost", money, f"{device_time}; {trained}{reused}")
    return StripItem("Cost", device_time, f"{trained}{reused}")


def _device_time(seconds: float, *, is_estimate: bool) -> str:
    """Device time; while a run trains about, because it changes with the speed last measured."""
    hours, digits = seconds / SECONDS_OF_AN_HOUR, 2 if is_estimate else 3
    about = "about " if is_estimate else ""
    if hours >= 0.01:
        return f"{about}{hours:.{digits}g} device hours"
    return f"{about}{seconds:.{digits}g} device seconds"
