"""A job's progress: bar, steps, loss, gap and time left per arm, in a table or in one line."""

from collections.abc import Mapping

from rich.progress_bar import ProgressBar
from rich.table import Table

from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import is_transient
from parity.wording import signed

_GAP_BINS = 20
AS_SENT = "held-out losses as they were sent"


def state_line(client: Client, document: Document) -> str:
    """The state of a job and of its arms in one line."""
    if has_no_runs(document):
        return f"{document['status']}, {AS_SENT}"
    gaps = recent_gaps(client, document)
    arms = "; ".join(_line(arm, gaps) for arm in document["arms"])
    waiting = f". {why}" if (why := document["waiting"] or _lacks_candidate(document)) else ""
    return (
        f"{document['status']} {document['share_done']:.0%}, {_left(document['eta_seconds'])} "
        f"left: {arms}{waiting}"
    )


def has_no_runs(document: Document) -> bool:
    """Whether a job has held-out losses that were sent as they are, in place of runs."""
    return bool(document.get("engine") == "evaluations")


def _lacks_candidate(document: Document) -> str:
    """That a project of one arm waits for its candidate, as a sentence; else ""."""
    if not document.get("is_open") or len(document["arms"]) > 1:
        return ""
    return f"{document['arms'][0]['name']} is the baseline, and no candidate has begun"


def forecast_changes(document: Document, states: dict[str, str]) -> list[str]:
    """A line for each candidate whose forecast changed its state since the last call; `states` (by
    arm) is updated. No verdict.
    """
    lines = []
    for arm in document["arms"]:
        live = arm.get("live")
        if live and states.get(arm["name"]) != live["state"]:
            states[arm["name"]] = live["state"]
            lines.append(f"{_title(arm)}: {live['sentence']}")
    return lines


def _title(arm: Document) -> str:
    """An arm's name with what it does; an earlier server gives the name alone."""
    return str(arm.get("title", arm["name"]))


def _line(arm: Document, gaps: Mapping[str, float]) -> str:
    gap = f" gap {signed(gaps[arm['name']])}" if arm["name"] in gaps else ""
    planned = "" if arm["planned_steps"] is None else f"/{arm['planned_steps']}"
    return f"{_title(arm)} {arm['steps_done']}{planned} loss {_loss(arm['loss'])}{gap}"


def table(document: Document, gaps: Mapping[str, float]) -> Table:
    """One row per arm: bar, steps, loss, gap (nats, where known) and time left."""
    if has_no_runs(document):
        return Table(box=None, title_justify="left", title=AS_SENT, title_style="dim")
    shown = Table(
        box=None,
        pad_edge=False,
        title_justify="left",
        title=document["waiting"] or _lacks_candidate(document),
        title_style="dim",
    )
    for heading in ("arm", ""):
        shown.add_column(heading, no_wrap=True)
    for heading in ("steps", "loss", "gap, nats", "left"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for arm in document["arms"]:
        done, planned = arm["steps_done"], arm["planned_steps"]
        gap = signed(gaps[arm["name"]]) if arm["name"] in gaps else "–"
        gap = "baseline" if arm["role"] == "baseline" else gap
        shown.add_row(
            _title(arm),
            ProgressBar(total=planned, completed=done, width=20) if planned else "",
            _steps(arm),
            _loss(arm["loss"]),
            gap,
            _left(arm["eta_seconds"]),
        )
    return shown


def _steps(arm: Document) -> str:
    """The steps that an arm's runs have done, of those that are planned where that is known."""
    done, planned = arm["steps_done"], arm["planned_steps"]
    if planned is None:
        return f"{done:,}"
    return f"{done:,}/{planned:,}"


def recent_gaps(client: Client, document: Document) -> dict[str, float]:
    """Candidate -> gap over the last twentieth of the steps that it shares with the baseline, where
    there are any.
    """
    gaps = {}
    for arm in document["arms"]:
        if arm["role"] == "candidate" and arm["steps_done"]:
            try:
                mean = client.gap(document["id"], arm["name"], _GAP_BINS)["mean"]
            except (UnreachableError, ClientError) as error:
                if not is_transient(error):
                    raise
                continue
            if mean and isinstance(mean[-1], float):
                gaps[arm["name"]] = mean[-1]
    return gaps


def _loss(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return value or "–"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"
