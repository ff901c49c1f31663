"""The first screen of a job's page: its verdict, its forecast while it trains, or why it has
neither, with one picture and the strip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from markupsafe import Markup
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.document_types import PathPointDocument, VerdictDocument
from parity.judging.live.gap_chart import StepRange
from parity.judging.live.pair_sums import BLOCKS
from parity.judging.live.rules import Forecast
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.sign_offs import SignOffDocument
from parity.report.candidates import deciding, safest_first
from parity.report.forecast import margin_basis
from parity.report.html.candidates_table import candidates_table
from parity.report.html.screen import (
    Screen,
    ScreenAnswer,
    answer_of,
    chances_html,
    live_answer,
    screen_html,
    selected_answer,
)
from parity.report.picture.axes import steady_limits
from parity.report.picture.buckets import loss_buckets
from parity.report.picture.case_scene import dots_of
from parity.report.picture.live_trace import live_trace
from parity.report.picture.picture import picture
from parity.report.picture.scene import (
    DOTS,
    FEW_DOTS,
    MANY,
    STYLES,
    Dots,
    Losses,
    Points,
    Scene,
    scene_of,
)
from parity.report.sign_off_words import accepted_words
from parity.report.strip import StripItem
from parity.report.view import views_of
from parity.wording import cut, minus, nats_decimals, version_words
from server.api.curves.forecast import observed
from server.concurrency.cache import Cache
from server.curves import judged_curves
from server.database.states import JOB_ENDED, JUDGED_IN_VAIN, JUDGING_AGAIN
from server.database.tables import EVALUATIONS, Job, Run
from server.documents.jobs import ArmDocument, JobDocument
from server.documents.remarks import SignOffEntry
from server.errors import DamagedError
from server.gaps.candidate_gaps import candidate_gaps
from server.jobs import forecasts
from server.pages.formats import rough_duration, size
from server.pages.job.strip import cost_fact, progress_strip
from server.run_codes import remedy_of

_PLAN_NOTE = "The axes are those of the whole plan, so nothing moves while points arrive."
_OUTPUT_CHARACTERS = 200  # of a trainer's last line
_NO_GAP_SO_FAR = "The first point comes with the first step that both arms have recorded."


@frozen
class LivePath:
    """What is known of a candidate in training: the gap at each look, the mean gap in blocks of the
    plan, and where its forecasts and margins have reached so far, nats.
    """

    path: Sequence[PathPointDocument]
    dots: Dots
    reach: Sequence[float]


@frozen
class LiveCurves:
    """What a job without a verdict has to draw: the paths of its candidates, and, before there is
    a gap, the losses of the arms that have begun.
    """

    paths: Mapping[str, LivePath]
    losses: Sequence[Losses] = ()


def verdict_dots(cache: Cache, session: Session, job: Job) -> Mapping[str, Dots]:
    """The dots of each candidate of a concluded job, read once."""
    names = tuple(verdict.candidate for verdict in job.verdicts)
    key = ("dots", job.id, names)
    dots = cache.get(key, dict)
    if dots is None:
        bins = FEW_DOTS if len(names) > MANY else DOTS
        gaps = candidate_gaps(
            cache,
            session,
            job,
            [arm for arm in job.arms[1:] if arm.name in names],
            StepRange(bins=bins),
        )
        dots = {gap.candidate: dots_of(gap.binned) for gap in gaps}
        cache.put(key, dots)
    return dots


def verdict_losses(
    cache: Cache, session: Session, job: Job, verdicts: Sequence[Mapping[str, Any]]
) -> Sequence[Losses]:
    """The losses of a concluded job whose verdicts have no gap, as of NaN; none of any other."""
    if any(view.gap for view in views_of(verdicts)):
        return ()
    return _losses_of(cache, session, job)


def live_curves(cache: Cache, session: Session, job: Job) -> LiveCurves:
    """What there is to draw of a job without a verdict."""
    paths = live_paths(job)
    if any(live_path.path or live_path.dots.points for live_path in paths.values()):
        return LiveCurves(paths=paths)
    return LiveCurves(paths=paths, losses=_losses_of(cache, session, job))


def _losses_of(cache: Cache, session: Session, job: Job) -> list[Losses]:
    """The losses of a run of each arm that has begun: of the first that ended in NaN, else of the
    first.
    """
    begun = [(arm, _drawn_run(arm.runs)) for arm in job.arms if arm.runs]
    losses = [
        Losses(
            name=arm.name,
            arm=None if arm.role == "baseline" else arm.position,
            points=_loss_points(cache, session, run, job.planned_steps or run.steps_done),
        )
        for arm, run in begun
        if run.steps_done
    ]
    return [arm for arm in losses if arm.points]


def _drawn_run(runs: Sequence[Run]) -> Run:
    broken = (run for run in runs if run.last_loss and not math.isfinite(float(run.last_loss)))
    return next(broken, runs[0])


def _loss_points(cache: Cache, session: Session, run: Run, planned: int) -> Points:
    """The losses of a run so far in buckets of steps, read again once it is a hundredth longer;
    none of a run whose recorded steps are damaged, which the job's code says.
    """
    key = ("losses so far", run.id, run.attempt_number, 100 * run.steps_done // planned)
    points = cache.get(key, list)
    if points is None:
        try:
            losses = judged_curves.losses(session, run)
        except DamagedError:
            return ()
        steps, mean, _, _ = loss_buckets(losses)
        points = list(zip(steps.tolist(), mean.tolist(), strict=True))
        cache.put(key, points)
    return points


def live_paths(job: Job) -> Mapping[str, LivePath]:
    """The gaps so far of each candidate in training."""
    found = {}
    for arm in job.arms[1:]:
        looks: Sequence[Forecast] = forecasts.forecasts(job, arm.name)
        steps, gaps = observed(forecasts.pairs_of(job, arm))
        points = [
            PathPointDocument(
                step=look.step,
                mean=look.gap,
                lo=look.gap - look.gap_half_width,
                hi=look.gap + look.gap_half_width,
            )
            for look in looks
            if look.gap_half_width is not None
        ]
        block = (job.planned_steps or 0) // BLOCKS
        dots = Dots(points=list(zip(map(float, steps), gaps, strict=True)), steps=block)
        found[arm.name] = LivePath(
            path=points,
            dots=dots,
            reach=[end for look in looks for end in (look.low, look.high, look.margin)],
        )
    return found


def first_screen(
    job: JobDocument,
    drawn: Mapping[str, Dots] | LiveCurves,
    candidate: str,
    sign_offs: Sequence[SignOffEntry],
    buttons: Sequence[str],
    losses: Sequence[Losses] = (),
) -> Markup:
    """The screen as HTML; `drawn` holds the dots of a judged job by candidate, else what is live;
    `candidate` is the one that the picture highlights, by default the one that decides. `losses`
    are drawn where no verdict has a gap.
    """
    if not isinstance(drawn, LiveCurves):
        made = _judged(job, drawn, candidate, sign_offs, buttons, losses)
    else:
        made = _unjudged(job, drawn, candidate, buttons)
    return Markup(screen_html(made))  # noqa: S704


def _judged(
    job: JobDocument,
    dots: Mapping[str, Dots],
    candidate: str,
    sign_offs: Sequence[SignOffEntry],
    buttons: Sequence[str],
    losses: Sequence[Losses],
) -> Screen:
    # a job's answer holds them as JSON, which its schema does not describe
    documents = cast("Sequence[VerdictDocument]", job.verdicts)
    ordered = safest_first(views_of(documents))
    places = [view.candidate.name for view in ordered]
    selected = places.index(candidate if candidate in places else deciding(ordered).candidate.name)
    is_of_runs = job.engine != EVALUATIONS
    end = job.planned_steps - 1 if is_of_runs and job.planned_steps else None
    scene = scene_of(documents, dots, end=end, losses=losses)
    scene = replace(scene, selected=selected)
    accepted = {
        sign_off.candidate: cast("SignOffDocument", asdict(sign_off)) for sign_off in sign_offs
    }
    cost = cost_fact(job.cost) if is_of_runs else None
    answer = answer_of(documents, cost, selected, accepted)
    if len(places) > 1 and candidate in places:
        answer = selected_answer(answer, ordered[selected])
    return Screen(
        context=_context(job),
        answer=answer,
        picture=picture(scene),
        buttons=buttons,
        table=candidates_table(documents, selected),
        accepted="; ".join(accepted_words(sign_off) for sign_off in accepted.values()),
        is_dense=scene.is_dense,
    )


def _unjudged(job: JobDocument, live: LiveCurves, candidate: str, buttons: Sequence[str]) -> Screen:
    arms = _likeliest_first(job)
    shown = next((arm for arm in arms if arm.name == candidate), arms[0] if arms else None)
    outlook = (
        shown.live if shown and job.status not in JOB_ENDED and not job.awaits_conclusion else None
    )
    strip = progress_strip(job)
    if shown is not None and outlook is not None:
        answer = live_answer(
            (shown.judged_against or job.arms[0].name, shown.name),
            outlook,
            job.planned_steps,
            strip,
            _next_of(job, shown),
            _margin_worth(job, outlook.margin),
        )
        answer = replace(
            answer,
            measure=minus(" ".join(part for part in (answer.measure, outlook.changed) if part)),
            interval=minus(" ".join(part for part in (answer.interval, outlook.unseen) if part)),
        )
    else:
        answer = _no_answer(job, strip)
    return Screen(
        context=_context(job),
        answer=answer,
        picture=picture(_live_scene(job, live, shown)) if shown else "",
        buttons=buttons,
        chances=chances_html(outlook) if outlook else "",
        is_dense=len(arms) > MANY,
    )


def _likeliest_first(job: JobDocument) -> list[ArmDocument]:
    """The candidates, those that are likeliest to pass first; as submitted before any forecast."""
    return sorted(job.arms[1:], key=lambda arm: -arm.live.passes if arm.live else 1.0)


def _live_scene(job: JobDocument, live: LiveCurves, shown: ArmDocument | None) -> Scene:
    """The picture of a job without a verdict: the axes of the whole plan, the gap so far, and the
    forecast while it trains; before there is a gap, the losses of what has begun.
    """
    has_ended = job.status in JOB_ENDED or job.awaits_conclusion
    traces = []
    arms = _likeliest_first(job)
    for arm in arms:
        live_path = live.paths.get(arm.name)
        trace = live_trace(
            arm.name,
            None if has_ended else arm.live,
            live_path.path if live_path else (),
            live_path.dots if live_path else None,
        )
        traces.append(replace(trace, style=job.arms[1:].index(arm) % STYLES))
    outlook = shown.live if shown and not has_ended else None
    margin = outlook.margin if outlook else None
    window = _window(job)
    places = {arm.name: place for place, arm in enumerate(arms)}
    losses = [replace(one, arm=places.get(one.name)) for one in live.losses]
    steps = [int(step) for trace in traces for step, _ in trace.dots]
    if outlook:
        legend = "line: gap over the last part so far · band: its interval · fan: forecast"
    else:
        runs = "the first run of each arm" + ("" if has_ended else " so far")
        legend = runs if losses else "the plan’s axes"
    if has_ended:
        note = ""
    elif any(trace.dots or trace.path for trace in traces):
        note = _PLAN_NOTE
    else:
        note = _NO_GAP_SO_FAR
    reach = [end for live_path in live.paths.values() for end in live_path.reach]
    return Scene(
        baseline=(shown.judged_against if shown else None) or job.arms[0].name,
        traces=traces,
        decimals=nats_decimals(margin, outlook.low, outlook.high)
        if outlook
        else nats_decimals(margin),
        end=job.planned_steps - 1 if job.planned_steps else max([1, *steps]),
        window=None if has_ended else window,
        margin=margin,
        margin_note=_margin_worth(job, margin) if margin else "",
        legend=legend,
        note=f"A forecast is never a verdict. {note}" if outlook else note,
        selected=next((place for place, arm in enumerate(arms) if arm is shown), 0),
        losses=losses,
        now=outlook.step if outlook else None,
        limits=steady_limits(reach) if outlook and reach else None,
        nothing="no step was recorded" if has_ended else "no step yet",
    )


def _margin_worth(job: JobDocument, margin: float) -> str:
    return margin_basis(policy_from_mapping(job.policy), margin)


def _window(job: JobDocument) -> tuple[int, int] | None:
    """The steps that will be judged, where the plan is known."""
    if not job.planned_steps:
        return None
    fraction = float(job.policy.get("window_fraction") or 0.2)
    return round(job.planned_steps * (1.0 - fraction)), job.planned_steps - 1


def _no_answer(job: JobDocument, strip: Sequence[StripItem]) -> ScreenAnswer:
    """Why there is no verdict and no forecast, in the place of the answer."""
    measure, lacks = job.waiting or "", ""
    if job.status == "failed":
        chip, lead = "✕ DID NOT FINISH", "This job did not finish."
        measure, _, log = (job.message or job.code or "The reason is not on record.").partition(
            "\n"
        )
        lacks = _last_line(log)
    elif job.status == "cancelled":
        chip, lead = "✕ CANCELLED", "This job was cancelled."
        measure = "It has no verdict."
    elif job.status == "concluded":
        chip, lead = "✓ ENDED", "This job has ended."
        measure = "It has no verdict of its own."
    elif job.status == "queued":
        chip, lead = "… QUEUED", "Nothing has trained yet."
        lacks = " ".join(sentence for sentence in job.missing if sentence != job.waiting)
    elif job.is_open and len(job.arms) < 2:
        chip, lead = "▸ NO VERDICT YET", "One arm so far."
        measure = (
            f"{job.arms[0].name} is the baseline; the next arm that parity.Run names is its "
            "candidate."
        )
    elif job.is_open:
        chip, lead = "▸ NO VERDICT YET", "Open until it is concluded."
        measure = (
            f"{'All its runs have ended; it' if job.awaits_conclusion else 'The project'} takes "
            "further runs."
        )
    elif job.code == JUDGING_AGAIN:
        chip, lead, measure = (
            "▸ NO VERDICT YET",
            "The judge could not finish yet.",
            job.message or "",
        )
    elif job.share_done >= 1.0:
        ended = max(
            (run.finished_at for arm in job.arms for run in arm.runs if run.finished_at),
            default=None,
        )
        since = f" since {ended[:16].replace('T', ', ')} UTC" if ended else ""
        chip, lead, measure = (
            "▸ NO VERDICT YET",
            "The judge reads the curves.",
            f"All steps are done{since}.",
        )
    elif not any(arm.steps_done for arm in job.arms[1:]):
        chip, lead = "▸ NO VERDICT YET", "The baseline trains first."
        lacks, measure = measure, _baseline_progress(job)
    else:
        chip, lead = "▸ NO VERDICT YET", "Too early for a forecast."
        measure = (
            measure
            or "The first forecast comes once both arms have trained a tenth of the planned steps."
        )
    return ScreenAnswer(
        state="live",
        chip=chip,
        lead=lead,
        measure=measure,
        interval=lacks,
        next=_next_of_none(job),
        strip=strip,
    )


def _last_line(log: str) -> str:
    """The last line of a trainer's output, which mostly names the error."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f"Its output ends: {cut(lines[-1], _OUTPUT_CHARACTERS)}" if lines else ""


def _baseline_progress(job: JobDocument) -> str:
    """How far the baseline is, and when a candidate starts, where that is known."""
    base, *candidates = job.arms
    run = next((run for run in base.runs if run.state == "running"), base.runs[0])
    length = f" of {run.planned_steps:,}" if run.planned_steps else ""
    loss = f", loss {run.loss:.4f}" if isinstance(run.loss, float) else ""
    said = f"{base.name} is at step {run.steps_done:,}{length}{loss}."
    starts = [
        (arm.starts_in_seconds, arm.name) for arm in candidates if arm.starts_in_seconds is not None
    ]
    if not starts:
        return said
    seconds, name = min(starts, key=lambda start: start[0])
    first = name if len(candidates) == 1 else f"{name}, the first of {len(candidates)} candidates,"
    when = f"in about {rough_duration(seconds)}" if seconds >= 1.0 else "now"
    return f"{said} {first} starts {when}."


def _next_of_none(job: JobDocument) -> str:
    if job.status == "failed" and job.code in JUDGED_IN_VAIN:
        return (
            f"parity runs conclude {job.id} has it judged again, with the token of an admin; "
            f"parity runs judge {job.id} only asks how."
        )
    if job.status == "failed":
        remedy = remedy_of(job.code or "")
        return f"{remedy} {_again(job)}".strip()
    if job.is_open and job.status not in JOB_ENDED and _can_be_judged(job):
        judge = f"parity runs judge {job.id} judges the runs that have finished, as of now"
        if job.awaits_conclusion:
            return f"{judge}; parity runs conclude {job.id} records the verdict."
        return f"{judge}."
    return ""


def _again(job: JobDocument) -> str:
    """How a job that failed is trained again; a project has no job file."""
    if job.is_open:
        return "Begin another one with parity.Run(project=...)."
    return f"`parity again {job.id}` queues it again as it was."


def _can_be_judged(job: JobDocument) -> bool:
    """Whether a baseline and each candidate have a finished run."""
    finished = [any(run.state == "finished" for run in arm.runs) for arm in job.arms]
    return len(finished) > 1 and all(finished)


def _next_of(job: JobDocument, arm: ArmDocument) -> str:
    """What a forecast advises."""
    if arm.live is None:
        return ""
    if arm.live.state == "will_fail":
        return (
            "Its final gap is surely above the margin: cancel the job, or let it train on for the "
            "record."
        )
    if arm.live.state == "futile":
        return (
            "It can hardly pass any more: cancel the job, or let it train on for the size of the "
            "gap."
        )
    if job.is_open:
        return (
            "Let the runs end: the verdict reads the last steps of each, once the project is "
            "concluded."
        )
    return "Wait for the verdict: it reads the last steps of every run."


def _context(job: JobDocument) -> list[str]:
    """Name, question, size, plan, baseline, time and id."""
    arms = job.arms[1:]
    if len(arms) == 1:
        question = f"{arms[0].name} against {job.arms[0].name}"
    else:
        question = f"{len(arms)} candidates against {job.arms[0].name}"
    if job.engine == EVALUATIONS:
        trained = ["held-out losses as sent"]
    else:
        plan = f"{job.planned_steps:,} steps" if job.planned_steps else "length not stated"
        plan += f" of {job.tokens_per_step:,} tokens" if job.tokens_per_step else ""
        trained = [plan, f"engine {job.engine}"]
    when = (job.finished_at or job.created_at)[:16].replace("T", ", ")
    facts = [
        job.name,
        question if arms and question != job.name else "",
        f"{size(job.parameters)} parameters" if job.parameters else "",
        f"layer policy {job.layer_policy}" if job.layer_policy else "",
        *trained,
        f"baseline {version_words({'name': job.baseline.name, 'version': job.baseline.version})}"
        if job.baseline
        else "",
        f"revision {job.revision[:12]}" if job.revision else "",
        f"{when} UTC",
        job.id,
    ]
    return [fact for fact in facts if fact]
