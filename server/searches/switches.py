"""The switches of a search that names none: what the newest analysis of its base job named, then blocks; without one, parts of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.search.policies import MOST_SWITCHES, Switch
from parity.search.proposals import GEMMS, GROUPS, Box, Cell, boxes, proposals
from parity.search.setup import SwitchSource
from server.database.lab_tables import Analysis
from server.database.tables import Arm, Job
from server.errors import InvalidError
from training.spec import Arm as SpecArm
from training.spec import JobSpec
from training.why.subject import subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Switches, where they come from, and the job of the analysis if it is one."""

    switches: Sequence[Switch]
    source: SwitchSource
    analysis: str | None = None


def propose(session: Session, arm: Arm, spec: JobSpec, own: SpecArm, step: int, fork_steps: int) -> Proposal:
    """The switches for a candidate (`arm` of the record, `own` of the specification). Raises InvalidError and SpecError.

    Each takes its part back to the baseline's recipe.
    """
    baseline = spec.baseline
    if baseline.overrides or baseline.bf16_from_step is not None or own.bf16_from_step is not None or baseline.recipe == "f32":
        raise InvalidError("search.switches is missing, and arms with overrides or a late switch have no default space; name the switches")
    units = subject(spec.run_of(own, 0), spec.run_of(baseline, 0), step, fork_steps).units
    changed: set[Cell] = {(unit.block, unit.projection, unit.gemm) for unit in units}
    analysis = _newest_that_names(session, arm, {unit.name for unit in units})
    if analysis is not None:
        named = [[_cell(name) for name in cluster["units"]] for cluster in (analysis.answer or {})["named"]]
        parts = proposals(changed, named)
        if parts:
            return Proposal(switches=_switches(baseline, parts), source="analysis", analysis=analysis.job_id)
    return Proposal(switches=_switches(baseline, _parts_of_blocks(changed, spec.model.n_layers)), source="default")


def _newest_that_names(session: Session, arm: Arm, units: set[str]) -> Analysis | None:
    """The newest analysis of this candidate that names some of its units, and not all of them as one cluster."""
    newest = select(Analysis).join(Job, Job.id == Analysis.job_id).where(Job.status == "concluded").order_by(Analysis.job_id.desc())
    for analysis in session.scalars(newest.where(Analysis.explains == arm.job_id, Analysis.candidate == arm.name)):
        named = {unit for cluster in (analysis.answer or {}).get("named", ()) for unit in cluster["units"]}
        if named & units and not units <= named:
            return analysis
    return None


def _parts_of_blocks(changed: set[Cell], layers: int) -> list[Box]:
    """Attention and MLP, by GEMM, in as many ranges of blocks as 12 switches allow."""
    parts = [
        {cell for cell in changed if cell[1] in members and cell[2] == gemm} for members, gemm in itertools.product(GROUPS.values(), GEMMS)
    ]
    parts = [cells for cells in parts if cells]
    ranges = max(1, min(layers, MOST_SWITCHES // len(parts)))
    edges = [round(at * layers / ranges) for at in range(ranges + 1)]
    return [
        box
        for first, end in itertools.pairwise(edges)
        for cells in parts
        for box in boxes(cell for cell in cells if first <= cell[0] < end)
    ]


def _switches(baseline: SpecArm, parts: Sequence[Box]) -> list[Switch]:
    """A switch for each box."""
    switches = []
    for box in parts:
        places = {"blocks": box.ranges, "projections": list(box.projections), "gemms": list(box.gemms)}
        override: dict[str, Any] = {**places, "recipe": baseline.recipe}
        if baseline.switches.given():
            override["switches"] = baseline.switches.given()
        switches.append(Switch(name=box.name, override=override))
    return switches


def _cell(unit: str) -> Cell:
    block, projection, gemm = unit.split(".")
    return int(block), projection, gemm
