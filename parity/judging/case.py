"""A comparison of runs in training: everything that the judge is given."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from parity.canonical_json import fields_of
from parity.frozen import frozen
from parity.judging.curves.context import Comparison
from parity.judging.curves.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.policy import Policy
from parity.judging.secondary.tasks import Evaluations
from parity.judging.verdict.layer_statistics import LayerSnr
from parity.judging.verdict.verdict import Verdict, judge

AnyDocument = VerdictDocument | EvaluationDocument

BASELINE, CANDIDATE, CONTROL, SHORTER, SHORT_RERUN = (
    "baseline",
    "candidate",
    "control",
    "shorter",
    "short_rerun",
)


@frozen(eq=False)
class Case:
    """Everything that `judge` was given, by the names of its parameters."""

    baseline: Sequence[Curve]
    candidates: Mapping[str, Sequence[Curve]]
    policy: Policy
    controls: Sequence[Curve] = ()
    planned_steps: int | None = None
    assume_complete: bool = False
    layer_policy: str | None = None
    baseline_name: str | None = None
    layer_snr_db: Mapping[str, LayerSnr] = field(default_factory=dict)
    evaluations: Evaluations = field(default_factory=dict)
    noise_table: NoiseTable | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    short_reruns: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    multiplicity: Multiplicity | None = None
    shorter: Sequence[Curve] = ()
    compares: Mapping[str, Comparison] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)

    def judged_against(self, candidate: str) -> Sequence[Curve]:
        """The runs that a candidate is judged against: those of the baseline, or of another
        candidate.
        """
        if candidate in self.against:
            return self.candidates[self.against[candidate]]
        return self.baseline

    def documents(self) -> list[VerdictDocument]:
        """Judge the case: one document a candidate."""
        return [verdict.document() for verdict in self.verdicts()]

    def verdicts(self) -> tuple[Verdict, ...]:
        """Judge the case: one verdict a candidate, with what was measured."""
        return judge(**fields_of(self))

    def arms(self) -> Iterator[tuple[str, str, Sequence[Curve]]]:
        """Role, name and runs of each arm, then controls and shorter runs, then short reruns."""
        yield BASELINE, self.baseline_name or "", self.baseline
        for name, runs in self.candidates.items():
            yield CANDIDATE, name, runs
        if self.controls:
            yield CONTROL, "", self.controls
        if self.shorter:
            yield SHORTER, "", self.shorter
        for name, runs in self.short_reruns.items():
            yield SHORT_RERUN, name, runs


AnyCase = Case | EvaluationCase
