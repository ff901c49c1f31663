"""The differences between a job's arms other than the recipe, from the manifests of their runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from parity.judging.inputs.context import confounding_keys, values_by_key, values_of
from server.documents.job import ArmDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact on which runs disagree, with the values of each arm; `declared` if the policy's `may_differ` allows it."""

    key: str
    values: list[str]
    declared: bool

    def arms_by_value(self, arms: Sequence[ArmDocument]) -> dict[str, list[str]]:
        """The names of the arms that have each value, for a table with few columns."""
        grouped: dict[str, list[str]] = {}
        for arm, value in zip(arms, self.values, strict=True):
            grouped.setdefault(value, []).append(arm.name)
        return grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Facts that differ, facts that all runs share, and how many of the runs have recorded a manifest."""

    differences: list[Difference]
    shared: dict[str, str]
    recorded_runs: int
    runs: int

    @property
    def confounded(self) -> bool:
        """Whether a fact differs that the policy does not declare."""
        return any(not difference.declared for difference in self.differences)


def compare(arms: Sequence[ArmDocument], may_differ: Collection[str]) -> Comparison:
    """Compare the manifests of all runs by the judge's rule (`parity.judging.inputs.context`)."""
    runs = [run for arm in arms for run in arm.runs]
    manifests = [run.manifest for run in runs if run.manifest]
    values = values_by_key(manifests)
    return Comparison(
        differences=[
            Difference(key=key, values=[_of_arm(arm, key) for arm in arms], declared=key in may_differ)
            for key in confounding_keys(manifests)
        ],
        shared={key: min(values[key]) for key in values if len(values[key]) == 1},
        recorded_runs=len(manifests),
        runs=len(runs),
    )


def _of_arm(arm: ArmDocument, key: str) -> str:
    return ", ".join(sorted(values_of([run.manifest or {} for run in arm.runs], key))) or "not recorded"
