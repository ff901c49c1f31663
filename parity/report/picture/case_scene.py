"""The scene of a case that was judged: dots, NaN and losses."""

from collections.abc import Sequence

import numpy as np

from parity.judging.case import Case
from parity.judging.curves.curve import all_usable
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap, StepRange
from parity.report.picture.buckets import loss_buckets
from parity.report.picture.scene import DOTS, FEW_DOTS, MANY, Dots, Losses, Scene, scene_of
from parity.report.verdict_gap import verdict_gap


def case_scene(case: Case, documents: Sequence[VerdictDocument]) -> Scene:
    """The scene of a case that was judged."""
    bins = FEW_DOTS if len(documents) > MANY else DOTS
    dots = {
        document["candidate"]["name"]: dots_of(verdict_gap(document, case, StepRange(bins=bins)))
        for document in documents
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
    """The losses of a run of each arm, in buckets: of the first with NaN, else of the first. Arms
    without a finite loss are left out.
    """
    arms = [(case.baseline_name or "baseline", None, case.baseline)]
    arms += [(name, place, runs) for place, (name, runs) in enumerate(case.candidates.items())]  # type: ignore[misc]
    drawn = []
    for name, place, runs in arms:
        broken = (run for run in runs if not all_usable(run.loss))
        steps, mean, _, _ = loss_buckets(next(broken, runs[0]))
        if len(steps):
            drawn.append(
                Losses(
                    name=name,
                    arm=place,
                    points=list(zip(steps.tolist(), mean.tolist(), strict=True)),
                )
            )
    return drawn
