"""A comparison of evaluations in a bundle's manifest: what it asks besides its arms, written and
read with every value's type checked.
"""

from collections.abc import Mapping
from typing import Any

from parity.judging.bundles.manifest import ManifestArms, multiplicity_of, policy_of
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.run_times import RunTimes
from parity.typed_json import ManifestError, optional, record, typed

KIND = "evaluations"
MAX_LISTED = 10_000  # points and times: more than any comparison of evaluations has


def manifest_of(case: EvaluationCase) -> dict[str, Any]:
    """The manifest's keys that only a comparison of evaluations has."""
    return {
        "kind": KIND,
        "paired": case.paired,
        "cluster": case.cluster,
        "at": case.at,
        "target": case.target,
        "tokens_per_step": case.tokens_per_step,
        "times": case.times,
        **({"multiplicity": case.multiplicity} if case.multiplicity else {}),
    }


def evaluation_case(manifest: Mapping[str, Any], arms: ManifestArms) -> EvaluationCase:
    """The case that a manifest describes. Raises KeyError, ManifestError and ValueError for one
    that describes none.
    """
    at, times = (_listed(manifest[key], key) for key in ("at", "times"))
    return EvaluationCase(
        baseline=arms.baseline,
        candidates=arms.candidates,
        policy=policy_of(manifest),
        baseline_name=arms.baseline_name or "",
        paired=typed(manifest["paired"], bool, "paired"),
        cluster=optional(manifest["cluster"], str, "cluster"),
        at=tuple(typed(point, int, f"at[{index}]") for index, point in enumerate(at)),
        target=optional(manifest["target"], float, "target"),
        tokens_per_step=optional(manifest["tokens_per_step"], float, "tokens_per_step"),
        planned_steps=optional(manifest["planned_steps"], int, "planned_steps"),
        times=[record(RunTimes, run, f"times[{index}]") for index, run in enumerate(times)],
        multiplicity=multiplicity_of(manifest.get("multiplicity")),
    )


def _listed(value: object, where: str) -> list[Any]:
    items = typed(value, list, where)
    if len(items) > MAX_LISTED:
        raise ManifestError(f"{where} has {len(items):,} entries; expected at most {MAX_LISTED:,}")
    return items
