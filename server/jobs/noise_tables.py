"""Run-to-run noise on record: the reruns of earlier jobs as a table of groups, from which a job of
the same family borrows.

family: all of the specification but name, arms, seed, short reruns and the family that it names
is equal, and the data and device class
        that its runs recorded; its name holds a digest of that
group:  runs of one job with one recipe and seed, at least two, that were trained for it, and
        finished with a finite loss in the late
        window; a run with the fingerprint of an earlier one has the same curve and is left out
sd:     standard deviation over a group's runs of their mean loss in the window of a policy that
        states none, the last 20 % of the steps

What can be borrowed from groups is the judge's business (`parity.judging.noise.noise_table`): at
least 3 groups and 8 degrees of freedom of an arm's own class of rounding. Runs of engine `external`
do not count here, because nobody checks what their specification says of model and data.

A job of engine emulated whose model is small and whose rate decays borrows from reruns that ship
with the judge (`noise_table.emulated`): of the very specification of the demo before any on
record, which hold fewer of them; else of other sizes, where the record has too few.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import ROUNDINGS, rounding_of
from parity.judging.curves.learning_rates import DECAYED
from parity.judging.curves.window import make_window
from parity.judging.noise.emulated_table import DEMO, LARGEST, SMALL, emulated_noise_table
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import (
    COLUMNS,
    MIN_SHARE,
    NATS,
    NoiseTable,
    Row,
    read_noise_table,
)
from parity.judging.policy import WINDOW_FRACTION
from parity.recipes import rounds_to_nearest
from server.database.metrics import store
from server.database.tables import Job, Run
from server.json_digest import digest
from server.stored import stored_model
from training.spec import ArmSpec, Data, JobSpec, Schedule

MOST_GROUPS = 100  # of a family, newest first
VARIES = "replicate: the rounding's random numbers, and a nudge of the initial weights"
_JOBS_READ = 5000
_DIGITS = 8  # of the digests in a family's name
_RECORDED = ("data_digest", "device_class")  # of a run's manifest
_FIELDS_OUTSIDE_FAMILY = (
    "name",
    "baseline",
    "candidates",
    "seed",
    "short_reruns",
    "family",
    "keep_checkpoints",
)
# of a schedule: they change no weight
_READ_ONLY = ("validation_every", "statistics_every", "gradients_every")
# What examples/demo.yaml trains, but for what `_FIELDS_OUTSIDE_FAMILY` and `_READ_ONLY` leave out.
DEMO_SPEC = JobSpec(
    name="demo",
    layer_policy="mlp_only",
    data=Data(source="parity_docs"),
    schedule=Schedule(steps=1000),
    baseline=ArmSpec(recipe="fp8_current"),
    candidates=(ArmSpec(recipe="mxfp8"),),
)


def family_of(job: Job) -> str | None:
    """The name of a job's family; None for a job whose runs are trained elsewhere, or recorded
    other data or devices than each other.
    """
    recorded = {
        tuple((run.manifest or {}).get(name) for name in _RECORDED)
        for run in job.runs
        if run.state == "finished"
    }
    if job.engine == "external" or len(recorded) != 1 or None in (facts := recorded.pop()):
        return None
    return f"{_specification_family(job)}-{digest(facts)[:_DIGITS]}"


def newest_family(session: Session, job: Job) -> str | None:
    """The family on record that a job will probably belong to, which has no run yet: that of the
    newest job with its specification.
    """
    if job.engine == "external":
        return None
    named = Job.reruns_family.startswith(f"{_specification_family(job)}-", autoescape=True)
    return session.scalar(select(Job.reruns_family).where(named).order_by(Job.id.desc()).limit(1))


def emulated_family(spec: Mapping[str, Any]) -> str | None:
    """From which of the reruns that ship with the judge a job of this specification borrows, as
    stored; None without any.
    """
    if spec["engine"] != "emulated":
        return None
    schedule = spec["schedule"]
    if schedule["final_fraction"] > DECAYED or stored_model(spec).parameters >= LARGEST:
        return None
    if _weights_of(spec) == _weights_of(DEMO_SPEC.document()):
        return DEMO
    return SMALL


def _weights_of(spec: Mapping[str, Any]) -> str:
    """A digest of everything that changes the weights of every arm."""
    facts = _facts(spec)
    facts["schedule"] = {
        name: value for name, value in facts["schedule"].items() if name not in _READ_ONLY
    }
    return digest(facts)


def _facts(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _FIELDS_OUTSIDE_FAMILY}


def _specification_family(job: Job) -> str:
    return (
        f"{job.engine}-{job.spec['schedule']['steps']}-steps-{digest(_facts(job.spec))[:_DIGITS]}"
    )


def noise_table_on_record(
    session: Session, family: str | None = None, but: Collection[str] = ()
) -> NoiseTable:
    """The groups of all families on record, or of one, without those of some jobs: what `reruns_of`
    said when each job was judged.
    """
    on_record = Job.reruns_family.is_not(None) if family is None else Job.reruns_family == family
    statement = (
        select(Job.reruns)
        .where(on_record, Job.id.not_in(but))
        .order_by(Job.id.desc())
        .limit(_JOBS_READ if family is None else MOST_GROUPS)
    )
    rows: dict[str, list[Row]] = {}
    for text in session.scalars(statement):
        for row in read_noise_table(text or "").rows:
            if len(rows.setdefault(row["family"], [])) < MOST_GROUPS:
                rows[row["family"]].append(row)
    return NoiseTable(tuple(row for name in sorted(rows) for row in rows[name]))


def reruns_of(session: Session, job: Job) -> NoiseTable | None:
    """The groups of reruns that a job trained; None without any."""
    family = family_of(job)
    rows = tuple(_groups(session, job, family)) if family else ()
    return NoiseTable(rows) if rows else None


def keep_reruns(job: Job, reruns: NoiseTable | None) -> None:
    """Put a job's groups of reruns on record, from which later jobs of their family borrow."""
    job.reruns = reruns.csv() if reruns else None
    # a job's groups are all of its own family
    job.reruns_family = family_in(reruns) if reruns else None


def borrowed_noise_table(session: Session, job: Job, family: str | None) -> NoiseTable | None:
    """The groups of one family from which a job borrows that names none, if it is usable for
    arms of any class of rounding; else None.

    They are those of `family`, the job's own on record, or ship with the judge. Not those of the
    job itself, nor of the jobs whose curves it reuses or gets as controls: its judge reads these
    runs already.
    """
    shipped = emulated_family(job.spec)
    if family is not None and shipped != DEMO:
        others = [run.reused_from for run in job.runs if run.reused_from] + list(job.controls or ())
        read_already = set(session.scalars(select(Run.job_id).where(Run.id.in_(others)))) | {job.id}
        noise_table = noise_table_on_record(session, family, but=read_already)
        if any(find_noise_source(noise_table, family, rounding).noise for rounding in ROUNDINGS):
            return noise_table
    if not shipped:
        return None
    return emulated_noise_table().only({shipped})


def family_in(noise_table: NoiseTable) -> str:
    """The name of the one family whose groups a job borrows from."""
    return noise_table.rows[0]["family"]


def _groups(session: Session, job: Job, family: str) -> Iterator[Row]:
    """A row for each recipe and seed of which the job trained at least two runs to a finite end."""
    trained: dict[tuple[str, int], list[Run]] = {}
    for arm in job.arms:
        for run in arm.runs:
            if (
                run.state == "finished"
                and run.code is None
                and run.reused_from is None
                and not _trained_before(session, run)
            ):
                trained.setdefault((arm.stated_recipe or arm.recipe, run.seed), []).append(run)
    for (recipe, seed), runs in sorted(trained.items()):
        means = _late_means(session, runs)
        if len(means) >= 2:
            mean, sd = float(means.mean()), float(means.std(ddof=1))
            # equal bit for bit, but for the rounding of the sums
            sd = sd if sd >= MIN_SHARE * mean else 0.0
            numbers = {"runs": str(len(means)), "mean_loss": repr(mean), "sd": repr(sd)}
            about = {
                "rounding": _rounding(runs, recipe),
                "varies": VARIES,
                "source": f"job {job.id}",
            }
            cells = {
                "family": family,
                "group": f"{recipe} seed {seed}, {job.id}",
                "unit": NATS,
                **numbers,
                **about,
            }
            yield {column: cells.get(column, "") for column in COLUMNS}


def _trained_before(session: Session, run: Run) -> bool:
    """Whether an earlier run has the same fingerprint and so the same curve."""
    earlier = select(Run.id).where(Run.fingerprint == run.fingerprint, Run.id < run.id).limit(1)
    return run.fingerprint is not None and session.scalar(earlier) is not None


def _late_means(session: Session, runs: Sequence[Run]) -> NDArray[np.float64]:
    """Mean loss (nats) of each run in its late window, of those whose every step there is recorded
    and finite.
    """
    means = []
    for run in runs:
        window = make_window(run.length, 0, WINDOW_FRACTION, "declared")
        steps, columns = store.read_range(
            session, run.id, "train", window.first, window.last, [JUDGED_LOSS]
        )
        if len(steps) == window.last - window.first + 1 and np.isfinite(columns[JUDGED_LOSS]).all():
            means.append(columns[JUDGED_LOSS].mean())
    return np.array(means)


def _rounding(runs: Sequence[Run], recipe: str) -> str:
    """How the runs round, as recorded or by the definition of their recipe; else "", and the group
    is not used.
    """
    return rounding_of(run.rounding for run in runs) or (
        "nearest" if rounds_to_nearest(recipe) else ""
    )
