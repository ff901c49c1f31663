"""Run-to-run noise on record: the reruns of earlier jobs, and groups that were imported from a
table that somebody else measured.
"""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.inert import cell as as_cell
from parity.judging.curves.curve import ROUNDINGS, rounding_of
from parity.judging.curves.learning_rates import DECAYED
from parity.judging.curves.window import make_window
from parity.judging.noise.emulated_table import DEMO, EMULATED, LARGEST, SMALL, emulated_noise_table
from parity.judging.noise.lending import find_lender
from parity.judging.noise.noise_table import (
    ANY_DECODER,
    COLUMNS,
    MIN_SHARE,
    NATS,
    NoiseTable,
    NoiseTableError,
    Row,
    read_noise_table,
)
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import WINDOW_FRACTION
from parity.recipes import rounds_to_nearest
from parity.structure import frozen, shown
from server.database import sessions, store
from server.database.sessions import hold_lock
from server.database.tables import ImportedGroup, Job, Run
from server.errors import ConflictError, InvalidError
from server.records import digest
from training.spec import Arm, Data, JobSpec, Model, Schedule

# Run-to-run noise on record: the reruns of earlier jobs as a table of groups, from which a job of
# the same family borrows.
#
# family: all of the specification but name, arms, seed, short reruns and the family that it names
# is equal, and the data and device class
#         that its runs recorded; its name holds a digest of that
# group:  runs of one job with one recipe and seed, at least two, that were trained for it, and
#         finished with a finite loss in the late
#         window; a run with the fingerprint of an earlier one has the same curve and is left out
# sd:     standard deviation over a group's runs of their mean loss in the window of a policy that
#         states none, the last 20 % of the steps
#
# What groups lend is the judge's business (`parity.judging.noise.noise_table`): at least 3 groups
# and 8 degrees of freedom of an arm's own class of rounding. Runs of engine `external` lend nothing
# here, because nobody checks what their specification says of model and data.
#
# A job of engine emulated whose model is small and whose rate decays borrows from reruns that ship
# with the judge (`noise_table.emulated`): of the very specification of the demo before any on
# record, which hold fewer of them; else of other sizes, where the record lends nothing.

MOST_GROUPS = 100  # of a family, newest first
VARIES = "replicate: the rounding's random numbers, and a nudge of the initial weights"
_JOBS_READ = 5000
_DIGITS = 8  # of the digests in a family's name
_RECORDED = ("data_digest", "device_class")  # of a run's manifest
_NOT_OF_THE_FAMILY = (
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
# What examples/demo.yaml trains, but for what `_NOT_OF_THE_FAMILY` and `_READ_ONLY` leave out.
DEMO_SPEC = JobSpec(
    name="demo",
    layer_policy="mlp_only",
    data=Data(source="parity_docs"),
    schedule=Schedule(steps=1000),
    baseline=Arm(recipe="fp8_current"),
    candidates=(Arm(recipe="mxfp8"),),
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
    if job.engine == "external" or len(recorded) != 1 or None in (known := recorded.pop()):
        return None
    return f"{_of_specification(job)}-{digest(known)[:_DIGITS]}"


def newest_family(session: Session, job: Job) -> str | None:
    """The family on record that a job will probably belong to, which has no run yet: that of the
    newest job with its specification.
    """
    if job.engine == "external":
        return None
    named = Job.reruns_family.startswith(f"{_of_specification(job)}-", autoescape=True)
    return session.scalar(select(Job.reruns_family).where(named).order_by(Job.id.desc()).limit(1))


def emulated_family(spec: Mapping[str, Any]) -> str | None:
    """Which of the reruns that ship with the judge lend to a job of this specification, as stored;
    None without any.
    """
    if spec["engine"] != "emulated":
        return None
    schedule = spec["schedule"]
    if schedule["final_fraction"] > DECAYED or Model(**spec["model"]).parameters >= LARGEST:
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
    return {name: value for name, value in spec.items() if name not in _NOT_OF_THE_FAMILY}


def _of_specification(job: Job) -> str:
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


def lent_noise_table(session: Session, job: Job, family: str | None) -> NoiseTable | None:
    """The groups of one family from which a job borrows that names none, if they lend to arms of
    any class of rounding; else None.

    They are those of `family`, the job's own on record, or ship with the judge. Not those of the
    job itself, nor of the jobs whose curves it reuses or gets as controls: its judge reads these
    runs already.
    """
    shipped = emulated_family(job.spec)
    if family is not None and shipped != DEMO:
        others = [run.reused_from for run in job.runs if run.reused_from] + list(job.controls or ())
        read_already = set(session.scalars(select(Run.job_id).where(Run.id.in_(others)))) | {job.id}
        noise_table = noise_table_on_record(session, family, but=read_already)
        if any(find_lender(noise_table, family, rounding).floor for rounding in ROUNDINGS):
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
            session, run.id, "train", window.first, window.last, ["lm_loss"]
        )
        if len(steps) == window.last - window.first + 1 and np.isfinite(columns["lm_loss"]).all():
            means.append(columns["lm_loss"].mean())
    return np.array(means)


def _rounding(runs: Sequence[Run], recipe: str) -> str:
    """How the runs round, as recorded or by the definition of their recipe; else "", and the group
    lends to nobody.
    """
    return rounding_of(run.rounding for run in runs) or (
        "nearest" if rounds_to_nearest(recipe) else ""
    )


# Run-to-run noise that were imported: groups of reruns from a table that somebody else measured.
# Plain functions of a session.
#
# Nobody here has seen these runs, so a job borrows from them only if its specification names the
# family; what it borrows is fixed when it is submitted. They are kept apart from the record
# (`noise_table`), which lends without being named.
#
# A table is imported whole or not at all. Each family of it must lend to some class of rounding,
# together with its groups that were imported before; so a single group, reruns that are all equal
# bit for bit and any row that is not usable are refused. So is a name that the table has no right
# to: that of a public family or of one that jobs of this server measured, and groups of the latter
# under another name. Can fail: a table whose figures are wrong, or that calls unlike set-ups one
# family. Its owner, source and licence are kept and shown.

MOST_IMPORTED_GROUPS = 1000  # of all families together: the page of run-to-run noise fits them all
_MOST_CELL = 1000  # characters
_NUMBERS = ("runs", "mean_loss", "sd")


@frozen
class Import:
    """What a table changed: its families, and how many of its groups are new here or were imported
    before.
    """

    families: list[str]
    new_groups: int
    known_groups: int


def import_noise_table(session: Session, table: str, family: str | None, who: str) -> Import:
    """Import the groups of a table (CSV), or those of one of its families; groups that were
    imported before change nothing.

    Raises InvalidError or ConflictError, with nothing imported.
    """
    rows = _chosen(_read(table), family)
    hold_lock(session, "imported noise tables")
    here = {(row["family"], row["group"]): row for row in imported_noise_tables(session).rows}
    _refuse_forged(session, rows)
    new: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = row["family"], row["group"]
        if key not in here:
            here[key] = new[key] = row
        elif here[key] != row:
            column = next(column for column in COLUMNS if here[key][column] != row[column])
            values = (
                f"{shown(row[column])}, and it is {shown(here[key][column])} in another row or an "
                "earlier import"
            )
            raise ConflictError(
                f"{column} of group {shown(key[1])} of family {shown(key[0])} is {values}; give "
                "the group another name"
            )
    if len(here) > MOST_IMPORTED_GROUPS:
        raise ConflictError(
            f"{len(here):,} groups would be imported in all; expected at most "
            f"{MOST_IMPORTED_GROUPS:,}: choose one with --family"
        )
    families = sorted({row["family"] for row in rows})
    _refuse_useless(NoiseTable(tuple(row for row in here.values() if row["family"] in families)))
    now = sessions.now(session)
    session.add_all(
        ImportedGroup(family=key[0], name=key[1], cells=dict(row), imported_by=who, imported_at=now)
        for key, row in new.items()
    )
    return Import(
        families=families,
        new_groups=len(new),
        known_groups=len({(row["family"], row["group"]) for row in rows}) - len(new),
    )


def imported_noise_tables(session: Session, family: str | None = None) -> NoiseTable:
    """The imported groups of all families, or of one."""
    statement = select(ImportedGroup).order_by(ImportedGroup.family, ImportedGroup.name)
    if family is not None:
        statement = statement.where(ImportedGroup.family == family)
    return NoiseTable(
        tuple(
            {column: group.cells[column] for column in COLUMNS}
            for group in session.scalars(statement)
        )
    )


def imported_groups(session: Session, family: str) -> Mapping[str, ImportedGroup]:
    """The imported groups of a family by name, with their owner and time."""
    return {
        group.name: group
        for group in session.scalars(select(ImportedGroup).where(ImportedGroup.family == family))
    }


def named_noise_table(session: Session, family: str) -> NoiseTable:
    """The groups of a family that a job names: imported, else public. InvalidError if neither has
    it.

    What jobs of this server measured is not looked at: a job of such a family borrows from it
    without naming it.
    """
    noise_table = imported_noise_tables(session, family)
    if not noise_table.rows and (family == ANY_DECODER or family in public_noise_table().families):
        noise_table = public_noise_table().only({family})
    if not noise_table.rows:
        known = session.scalar(select(func.count(ImportedGroup.family.distinct()))) or 0
        detail = (
            f"job.family is {shown(family)}; expected one of the {known} imported families or of "
            "the public ones, which /noise-tables "
            "lists; `parity noise import FILE` imports a table"
        )
        raise InvalidError.at("/job/family", detail)
    return noise_table


def _read(table: str) -> NoiseTable:
    try:
        noise_table = read_noise_table(table)
    except NoiseTableError as error:
        raise InvalidError.at("/table", str(error)) from None
    for number, row in enumerate(noise_table.rows, 1):
        for column, cell in row.items():
            if not cell.isprintable() or len(cell) > _MOST_CELL:
                what = f"row {number} of the noise table has the {column} {shown(cell)}"
                raise InvalidError.at(
                    "/table", f"{what}; expected at most {_MOST_CELL:,} printable characters"
                )
            if as_cell(cell) != cell:
                what = (
                    f"row {number} of the noise table has the {column} {shown(cell)}, which a "
                    "spreadsheet takes for a formula"
                )
                raise InvalidError.at(
                    "/table", f"{what}; expected text that begins with a letter or a digit"
                )
    return noise_table


def _chosen(noise_table: NoiseTable, family: str | None) -> list[Row]:
    if family is not None and family not in noise_table.families:
        raise InvalidError.at(
            "/table",
            f"family is {shown(family)}; expected one of the {len(noise_table.families)} families "
            "of the table",
        )
    return [row for row in noise_table.rows if family in (None, row["family"])]


def _refuse_forged(session: Session, rows: Iterable[Row]) -> None:
    """ConflictError for a name or for groups that are not the importer's to state."""
    record = noise_table_on_record(session)
    measured = {_plain(row["family"]): row["family"] for row in record.rows}
    public = {
        _plain(name): name for name in (*public_noise_table().families, *EMULATED, ANY_DECODER)
    }
    sources = {_numbers(row): row for row in record.rows}
    for row in rows:
        name = _plain(row["family"])
        remedy = "rename the family in the table"
        if name in public:
            raise ConflictError(
                f"family {shown(row['family'])} has the name of the public {public[name]}; jobs "
                f"can name that one: {remedy}"
            )
        if name in measured:
            what = "which jobs of this server measured and lend without being named"
            raise ConflictError(
                f"family {shown(row['family'])} has the name of {measured[name]}, {what}: {remedy}"
            )
        if own := sources.get(_numbers(row)):
            what = f"{shown(own['group'])} of {own['family']}, which jobs of this server measured"
            raise ConflictError(
                f"group {shown(row['group'])} of family {shown(row['family'])} has the figures of "
                f"{what}: leave it out"
            )


def _refuse_useless(noise_table: NoiseTable) -> None:
    """InvalidError for a family that would lend to no class of rounding."""
    for name, family in noise_table.families.items():
        lenders = [find_lender(noise_table, name, rounding) for rounding in ROUNDINGS]
        if all(lender.floor is None for lender in lenders):
            stated = {group.rounding for group in family.groups}
            reasons = [
                lender.refused
                for rounding, lender in zip(ROUNDINGS, lenders, strict=True)
                if rounding in stated
            ]
            raise InvalidError.at(
                "/table",
                f"family {shown(name)} would lend nothing: "
                f"{(reasons or [lenders[0].refused])[0]}; nothing was imported",
            )


def _plain(name: str) -> str:
    """A name as it looks: case and compatibility forms of letters make no other family."""
    return unicodedata.normalize("NFKC", name).casefold()


def _numbers(row: Mapping[str, str]) -> tuple[float, ...]:
    """The figures of a row that is usable, as numbers; NaN, which equals nothing, for any other."""
    try:
        return tuple(float(row[column]) for column in _NUMBERS)
    except ValueError:
        return (float("nan"),)
