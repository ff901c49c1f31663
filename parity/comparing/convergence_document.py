"""Comparisons of MLPerf results with reference convergence points as JSON."""

from typing import Literal, TypedDict

from parity.comparing.convergence import CONFIDENCE, NOTICE, JudgedFolders, ResultFolder
from parity.judging.decision import State


class ReferenceDocument(TypedDict):
    """The reference convergence points that a folder was compared with."""

    name: str
    precision: str | None
    runs: int


class ResultDocument(TypedDict):
    """A folder of runs. `samples`, `reference_samples`: geometric means of samples to the target;
    `more_samples` and `interval`: as a share of the reference's (0.1 = 10 %). None where they could
    not be measured, for the `reason`.
    """

    folder: str
    system: str | None
    precision: str | None
    batch_size: int | None
    runs: int
    converged: int
    reference: ReferenceDocument | None
    samples: float | None
    reference_samples: float | None
    more_samples: float | None
    interval: tuple[float, float] | None
    verdict: State
    reason: str


class ConvergenceDocument(TypedDict):
    """All folders; `margin` is a share of the reference's samples. `notice`: who did not verify
    it. `left_out`: folders with runs of other benchmarks.
    """

    schema: Literal["parity.convergence/1"]
    benchmark: str
    notice: str
    margin: float
    confidence: float
    results: list[ResultDocument]
    left_out: list[str]


def convergence_document(
    benchmark: str, margin: float, judged: JudgedFolders
) -> ConvergenceDocument:
    """The document of these results."""
    return ConvergenceDocument(
        schema="parity.convergence/1",
        benchmark=benchmark,
        notice=NOTICE,
        margin=margin,
        confidence=CONFIDENCE,
        results=[_result(result) for result in judged.results],
        left_out=judged.left_out,
    )


def _result(result: ResultFolder) -> ResultDocument:
    tax, reference = result.answer.tax, result.reference
    return ResultDocument(
        folder=result.folder,
        system=result.system,
        precision=result.precision,
        batch_size=result.batch_size,
        runs=result.runs,
        converged=result.converged,
        reference=None
        if reference is None
        else ReferenceDocument(
            name=reference.name, precision=reference.precision, runs=len(reference.samples)
        ),
        samples=None if tax is None else tax.geometric[1],
        reference_samples=None if tax is None else tax.geometric[0],
        more_samples=None if tax is None else tax.estimate,
        interval=None if tax is None else (tax.lo, tax.hi),
        verdict=result.answer.verdict,
        reason=result.answer.reason,
    )
