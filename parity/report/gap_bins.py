"""The binned gap of a verdict, as its charts show it."""

from collections.abc import Sequence

from parity.judging.criteria import Criteria
from parity.judging.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap, binned_gap
from parity.judging.run_floor import Prior


def verdict_gap(
    document: VerdictDocument,
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    criteria: Criteria,
    planned_steps: int | None = None,
    *,
    bins: int = 200,
    log: bool = False,
) -> BinnedGap:
    """The gap of the runs that were judged, in up to `bins` ranges of steps, with bands that agree with the verdict's interval."""
    priors = _borrowed_priors(document)
    return binned_gap(baseline, candidate, criteria, bins=bins, planned_steps=planned_steps, priors=priors, log=log)


def _borrowed_priors(document: VerdictDocument) -> tuple[Prior, Prior] | None:
    """The priors of a verdict of which an arm borrowed its run floor, so that the chart's bands and the verdict's interval agree."""
    floors = document["tau"]
    if floors is None or not ("borrowed" in floors["baseline"] or "borrowed" in floors["candidate"]):
        return None
    first, second = (
        Prior(tau=floor["prior"], df=floor["prior_df"], basis=floor["prior_basis"]) for floor in (floors["baseline"], floors["candidate"])
    )
    return first, second
