"""The page of an analysis: the effect at the checkpoint in parts with intervals, and a heat map of
layer x GEMM; and of ablation runs.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from parity.frozen import frozen
from parity_lab.analysis import label
from parity_lab.answer_lines import (
    NO_CAUSE_NEXT,
    NO_PRECISION_NEXT,
    NO_REPLAY_NEXT,
    assumed_words,
)
from parity_lab.server.ablations import AblationsDocument, ablations_document
from parity_lab.server.documents import AnalysisDocument, analysis_document
from parity_lab.server.waterfall import WATERFALL_WIDTH, Bar, bars
from server.api.curves.gap import pair_of
from server.database.lookups import find_job
from server.database.states import JOB_ENDED
from server.pages.rendering import templates, visitor
from server.web.context import InContext
from training.overrides import GEMMS

pages = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
LEVELS = 8
_UNITS_SHOWN = 6


@frozen
class HeatCell:
    """One GEMM of a layer: the error of the gradient that it causes alone, and its part of the
    forward loss; None if it is no GEMM.

    The levels are 0 to LEVELS, from none to the largest of the map; the forward level is negative
    for a GEMM that helps.
    """

    unit: str
    error: Mapping[str, float] | None
    error_level: int
    forward: Mapping[str, float] | None
    forward_level: int
    named: bool


@pages.get("/jobs/{job_id}/why")
def analysis_page(job_id: str, request: Request, context: InContext) -> Response:
    """An analysis by its own job, or the newest one of an explained job."""
    with context.database.read() as session:
        document = analysis_document(session, job_id)
    if document.job != job_id:
        return RedirectResponse(f"/jobs/{document.job}/why", 303)
    answer = document.answer or {}
    values = {
        "analysis": document,
        "plan": document.plan,
        "answer": answer,
        "ended": document.status in JOB_ENDED,
        "width": WATERFALL_WIDTH,
        "levels": range(LEVELS + 1),
        "label": label,
        "if_none_is_named": NO_CAUSE_NEXT,
        "if_not_in_precision": NO_PRECISION_NEXT,
        "if_not_replayed": NO_REPLAY_NEXT,
        "forks": fork_bars(document),
        "forward": forward_bars(answer),
        "layers": layers(document),
        "gemms": GEMMS,
    }
    return templates.TemplateResponse(request, "why.html", values)


@pages.get("/jobs/{job_id}/why/ablations")
def ablations_page(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: str | None = None,
    ablation: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """The gap of a candidate in parts, by other candidates of the job; without a name, its first
    candidate.
    """
    with context.database.read() as session:
        _, first = pair_of(find_job(session, job_id), None)
        document = ablations_document(session, job_id, candidate or first.name, ablation or ())
    values = {
        "ablation": document,
        "bars": ablation_bars(document),
        "assumed": assumed_words(document.assumed),
        "width": WATERFALL_WIDTH,
    }
    return templates.TemplateResponse(request, "ablations.html", values)


def ablation_bars(document: AblationsDocument) -> list[Bar]:
    """The gap, its parts in order, and what they leave unexplained."""
    parts = [(f"left out in {part.name}", "part", asdict(part.part)) for part in document.parts]
    return bars(
        [
            ("gap", "whole", asdict(document.whole)),
            *parts,
            ("unexplained", "rest", asdict(document.unexplained)),
        ]
    )


def fork_bars(document: AnalysisDocument) -> list[Bar]:
    """The gap of the full runs, the effect at the checkpoint, its named parts, their interaction
    and what is unexplained.
    """
    answer, gap = document.answer, document.plan.gap
    if answer is None or answer["effect"] is None:
        return []
    rows: list[tuple[str, str, Mapping[str, float]]] = []
    if gap.gap is not None and gap.low is not None and gap.high is not None:
        rows.append(
            ("gap of the full runs", "whole", {"value": gap.gap, "low": gap.low, "high": gap.high})
        )
    rows.append((f"effect at step {document.plan.fork_step:,}", "whole", answer["effect"]))
    if answer["named"]:
        rows += [(label(part["gemms"]), "part", part["without"]) for part in answer["named"]]
        # an answer of an earlier version has no interaction
        for name in ("interaction", "unexplained"):
            if answer.get(name):
                rows.append((name, "rest", answer[name]))
    return bars(rows)


def forward_bars(answer: Mapping[str, Any]) -> list[Bar]:
    """The forward loss, its largest parts, the other GEMMs together, and what single GEMMs leave
    unexplained.
    """
    instant = answer.get("instant")
    if instant is None:
        return []
    units = sorted(instant["gemms"], key=lambda part: -abs(part["without"]["value"]))
    shown = [part for part in units[:_UNITS_SHOWN] if part["without"]["value"]]
    rest = sum(part["without"]["value"] for part in units[_UNITS_SHOWN:])
    rows = [
        ("forward loss", "whole", instant["whole"]),
        *((part["name"], "part", part["without"]) for part in shown),
    ]
    if rest:
        rows.append(
            (
                f"{len(units) - _UNITS_SHOWN} other GEMMs",
                "part",
                {"value": rest, "low": rest, "high": rest},
            )
        )
    return bars([*rows, ("unexplained", "rest", instant["unexplained_without"])])


def layers(document: AnalysisDocument) -> list[tuple[str, list[HeatCell | None]]]:
    """The rows of the heat map: a layer (`block.projection`) and a cell for each GEMM, None where
    it is no GEMM.
    """
    answer = document.answer or {}
    errors = {gradient["name"]: gradient["error"] for gradient in answer.get("gradients") or ()}
    forward = {
        part["name"]: part["without"] for part in (answer.get("instant") or {"gemms": ()})["gemms"]
    }
    if not errors and not forward:
        return []
    named = {unit for part in answer.get("named", ()) for unit in part["gemms"]}
    units = set(document.plan.gemms)
    most_error = max((errors[unit]["value"] for unit in units if unit in errors), default=0.0)
    most_forward = max((abs(estimate["value"]) for estimate in forward.values()), default=0.0)

    def cell(unit: str) -> HeatCell | None:
        if unit not in units:
            return None
        error, part = errors.get(unit), forward.get(unit)
        return HeatCell(
            unit=unit,
            error=error,
            error_level=_level(error["value"], most_error) if error else 0,
            forward=part,
            forward_level=_level(part["value"], most_forward) if part else 0,
            named=unit in named,
        )

    names = sorted({unit.rsplit(".", 1)[0] for unit in units}, key=_place)
    return [(name, [cell(f"{name}.{gemm}") for gemm in GEMMS]) for name in names]


def _level(value: float, most: float) -> int:
    if not most:
        return 0
    return round(LEVELS * value / most)


def _place(layer: str) -> tuple[int, str]:
    block, projection = layer.split(".", 1)
    return int(block), projection
