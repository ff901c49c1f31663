"""A comparison of evaluations in a bundle's manifest: what it asks besides its arms, written and read with every value's type checked."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from parity.judging.bundle.manifest import Arms, ManifestError, multiplicity_of, planned_steps_of, shown, text_or_none, truth, typed
from parity.judging.criteria import criteria_from_mapping
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.times import RunTimes

KIND = "evaluations"
MAX_LISTED = 10_000  # points and times: more than any comparison of evaluations has


def manifest_of(case: EvaluationCase) -> dict[str, Any]:
    """The manifest's keys that only a comparison of evaluations has."""
    return {
        "kind": KIND,
        "paired": case.paired,
        "cluster": case.cluster,
        "at": list(case.at),
        "target": case.target,
        "tokens_per_step": case.tokens_per_step,
        "times": [asdict(run) for run in case.times],
        **({"multiplicity": asdict(case.multiplicity)} if case.multiplicity else {}),
    }


def evaluation_case(manifest: Mapping[str, Any], arms: Arms) -> EvaluationCase:
    """The case that a manifest describes. Raises KeyError, ManifestError and ValueError for one that describes none."""
    at, times = (_listed(manifest[key], key) for key in ("at", "times"))
    return EvaluationCase(
        baseline=arms.baseline,
        candidates=arms.candidates,
        criteria=criteria_from_mapping(manifest["criteria"]),
        baseline_name=arms.baseline_name or "",
        paired=truth(manifest["paired"], "paired"),
        cluster=text_or_none(manifest["cluster"], "cluster"),
        at=tuple(typed(point, int, f"at[{index}]", "a whole number") for index, point in enumerate(at)),
        target=_number(manifest["target"], "target"),
        tokens_per_step=_number(manifest["tokens_per_step"], "tokens_per_step"),
        planned_steps=planned_steps_of(manifest["planned_steps"]),
        times=[_times(run, f"times[{index}]") for index, run in enumerate(times)],
        multiplicity=multiplicity_of(manifest.get("multiplicity")),
    )


def _times(value: object, where: str) -> RunTimes:
    run = typed(value, dict, where, "an object")
    return RunTimes(
        arm=typed(run["arm"], str, f"{where}.arm", "text"),
        run=typed(run["run"], str, f"{where}.run", "text"),
        hardware=text_or_none(run["hardware"], f"{where}.hardware"),
        step_seconds=_number(run["step_seconds"], f"{where}.step_seconds"),
        seconds_to_target=_number(run["seconds_to_target"], f"{where}.seconds_to_target"),
    )


def _listed(value: object, where: str) -> list[Any]:
    items = typed(value, list, where, "a list")
    if len(items) > MAX_LISTED:
        raise ManifestError(f"{where} has {len(items):,} entries; expected at most {MAX_LISTED:,}")
    return items


def _number(value: object, where: str) -> float | None:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise ManifestError(f"{where} is {shown(value)}; expected a number or null")
