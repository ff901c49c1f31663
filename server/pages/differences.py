"""What differs between the arms of a job beside the recipe: from the manifests that the workers recorded of their runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from server.documents.job import ArmDocument

_VARIABLE, _NOT_SET = "env.", "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact on which runs disagree, with the values of each arm; `declared` when the policy's `may_differ` allows it."""

    key: str
    values: list[str]
    declared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Facts that differ, those that all runs share, and how many of the runs have recorded what they ran on."""

    differences: list[Difference]
    shared: dict[str, str]
    recorded_runs: int
    runs: int

    @property
    def confounded(self) -> bool:
        """Whether something differs that the policy does not declare."""
        return any(not difference.declared for difference in self.differences)


def compare(arms: Sequence[ArmDocument], may_differ: Collection[str]) -> Comparison:
    """Compare what the runs of all arms ran on, as the judge does (`parity.context`, and a test holds the two together).

    A fact that only some runs have says nothing, except a variable of the environment: it was not set in the others.
    """
    runs = [run for arm in arms for run in arm.runs]
    manifests = [run.manifest for run in runs if run.manifest]
    keys = sorted({key for manifest in manifests for key in manifest})
    seen = {key: _values(manifests, key) for key in keys}
    return Comparison(
        differences=[
            Difference(key=key, values=[_of_arm(arm, key) for arm in arms], declared=key in may_differ)
            for key in keys
            if len(seen[key]) > 1
        ],
        shared={key: min(seen[key]) for key in keys if len(seen[key]) == 1},
        recorded_runs=len(manifests),
        runs=len(runs),
    )


def _of_arm(arm: ArmDocument, key: str) -> str:
    return ", ".join(sorted(_values([run.manifest for run in arm.runs if run.manifest], key))) or "not recorded"


def _values(manifests: Sequence[Mapping[str, str]], key: str) -> set[str]:
    missing = {_NOT_SET} if key.startswith(_VARIABLE) and any(key not in manifest for manifest in manifests) else set()
    return {str(manifest[key]) for manifest in manifests if key in manifest} | missing
