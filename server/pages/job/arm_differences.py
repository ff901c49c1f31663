"""The differences between a job's arms other than the recipe, from the manifests of their runs."""

from collections.abc import Collection, Sequence

from parity.frozen import frozen
from parity.judging.curves.context import (
    COMPARISONS,
    confounding_keys,
    is_compared,
    values_by_key,
    values_of,
)
from server.database.tables import Job
from server.documents.jobs import ArmDocument
from server.jobs.judge_input import compared_of


@frozen
class ArmDifference:
    """A fact on which runs disagree, with the values of each arm; `declared` if what is compared or
    the policy's `may_differ` allows it.
    """

    key: str
    values: list[str]
    declared: bool

    def arms_by_value(self, arms: Sequence[ArmDocument]) -> dict[str, list[str]]:
        """The names of the arms that have each value, for a table with few columns."""
        grouped: dict[str, list[str]] = {}
        for arm, value in zip(arms, self.values, strict=True):
            grouped.setdefault(value, []).append(arm.name)
        return grouped


@frozen
class ArmComparison:
    """In what candidates differ by plan, facts that differ, facts that all share, and how many of
    the runs recorded a manifest.
    """

    question: str
    differences: list[ArmDifference]
    shared: dict[str, str]
    recorded_runs: int
    runs: int

    @property
    def confounded(self) -> bool:
        """Whether a fact differs that the policy does not declare."""
        return any(not difference.declared for difference in self.differences)


def compare(
    arms: Sequence[ArmDocument], may_differ: Collection[str], compared: Collection[str] = ()
) -> ArmComparison:
    """Compare the manifests of all runs by the judge's rule (`parity.judging.curves.context`);
    `compared`: in what candidates differ by plan.
    """
    runs = [run for arm in arms for run in arm.runs]
    manifests = [run.manifest for run in runs if run.manifest]
    values = values_by_key(manifests)
    confounding, planned_keys = (
        confounding_keys(manifests),
        {
            key
            for key in values
            if any(
                is_compared(key, comparison) for comparison in COMPARISONS if comparison in compared
            )
        },
    )
    differing = [
        key
        for key in values
        if len(values[key]) > 1 and (key in confounding or key in planned_keys)
    ]
    return ArmComparison(
        question=" or the ".join(comparison for comparison in COMPARISONS if comparison in compared)
        or "recipe",
        differences=[
            ArmDifference(
                key=key,
                values=[_arm_values(arm, key) for arm in arms],
                declared=key in planned_keys or key in may_differ,
            )
            for key in differing
        ],
        shared={key: min(values[key]) for key in values if len(values[key]) == 1},
        recorded_runs=len(manifests),
        runs=len(runs),
    )


def compared_by_plan(job: Job) -> set[str]:
    """In what the candidates of a job differ from the arms that they are judged against."""
    others = compared_of(job)
    return {*others.values(), *({"recipe"} if len(others) < len(job.arms) - 1 else ())}


def _arm_values(arm: ArmDocument, key: str) -> str:
    return (
        ", ".join(sorted(values_of([run.manifest or {} for run in arm.runs], key)))
        or "not recorded"
    )
