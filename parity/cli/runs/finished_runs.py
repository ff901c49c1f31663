"""Finished runs from files, for the runs of a job that the user trained: read, and proved
complete.
"""

from collections.abc import Mapping, Sequence

from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.frozen import frozen
from parity.judging.curves.curve import Completeness, Curve
from parity.judging.curves.outside_plan import last_recorded
from parity.wording import count, did_you_mean


@frozen
class FinishedRun:
    """A curve to import: the id of its run, the file as messages name it, and what it ran on."""

    run: str
    file: str
    curve: Curve
    context: Mapping[str, str]


def runs_of_table(
    file: str, arms: Mapping[str, Sequence[Curve]], job: Document, facts: Mapping[str, str]
) -> list[FinishedRun]:
    """The runs of a table as runs of a job: arms by their names, each arm's runs in order, one for
    each run that the job awaits.

    Raises UsageError where the job has no such arm, or another number of runs in it.
    """
    awaited = {
        arm["name"]: sorted(arm["runs"], key=lambda run: (run["seed"], run["replicate"]))
        for arm in job["arms"]
    }
    finished = []
    for name, curves in arms.items():
        if name not in awaited:
            awaited_names = ", ".join(awaited)
            raise UsageError(
                f"{file}: job {job['id']} has no arm {name!r}; expected arms called "
                f"{awaited_names}{did_you_mean(name, awaited)}"
            )
        if len(curves) != len(awaited[name]):
            raise UsageError(
                f"{file}: {name} has {count(len(curves), 'run')}, but job {job['id']} has "
                f"{len(awaited[name])} in that arm; "
                f"expected one run of the table for each run of the job{_noise_words(job, name)}"
            )
        for run, curve in zip(awaited[name], curves, strict=True):
            finished.append(
                FinishedRun(
                    run=run["id"],
                    file=f"{file}, run {curve.label} of {name}",
                    curve=curve,
                    context={**curve.context, **facts},
                )
            )
    return finished


def _noise_words(job: Document, name: str) -> str:
    """How to import the short reruns of an arm, "" where it has none."""
    noise = next(len(arm.get("short_reruns", ())) for arm in job["arms"] if arm["name"] == name)
    if not noise:
        return ""
    return (
        f"; import the {count(noise, 'rerun')} that {'stops' if noise == 1 else 'stop'} early with "
        "--as-run"
    )


def why_incomplete(curve: Completeness, planned_steps: int | None) -> str | None:
    """Why a curve is incomplete, or None. `planned_steps` is the planned length of the run, None
    where nobody has stated it.
    """
    first, last, stride = curve.first, curve.last, curve.stride
    if first is None or last is None or stride is None:
        return f"it has {curve.count} steps, expected two at least"
    if curve.gaps:
        expected = (last - first) // stride + 1
        return (
            f"{expected - curve.count} of {expected} steps are missing between step {first} and "
            f"{last}, in {curve.gaps} gaps"
        )
    if first > stride:
        return f"it begins at step {first}, expected the beginning: 0 to {stride}"
    if planned_steps is not None and last + stride < planned_steps:
        return f"it ends at step {last}, but this run takes {planned_steps} steps"
    if planned_steps is not None and last > last_recorded(planned_steps):
        return (
            f"it goes on to step {last}, but this run takes {planned_steps} steps; none after "
            f"{last_recorded(planned_steps)} is recorded"
        )
    return None


def refuse_other_run(
    finished: FinishedRun, awaited: Document, recipe: str | None, seeds: dict[int, int]
) -> None:
    """Raise UsageError where a run's config contradicts the run of the job that it is imported as.

    `recipe` is that of an option, which counts more; `seeds` collects the config's seed by the
    job's.
    """
    recipe_of_run, seed = recipe or finished.curve.recipe, finished.curve.seed
    if recipe_of_run not in (None, awaited["recipe"]):
        raise UsageError(
            f"{finished.file}: its recipe is {recipe_of_run}, but run {finished.run} is to train "
            f"{awaited['recipe']}; nothing was imported: name "
            "another run, or state the recipe with --recipe"
        )
    if seed and seeds.setdefault(awaited["seed"], seed) != seed:
        raise UsageError(
            f"{finished.file}: its config states seed {seed}, and that of a run before it "
            f"{seeds[awaited['seed']]}, but both have seed {awaited['seed']} in the job, so they "
            "should have read the same data; nothing was imported"
        )
