"""Run-to-run noise that were imported: groups of reruns from a table that somebody else measured.

Plain functions of a session.

Nobody here has seen these runs, so a job borrows from them only if its specification names the
family; what it borrows is fixed when it is submitted. They are kept apart from the record
(`noise_table`), which is used without being named.

A table is imported whole or not at all. Each family of it must be usable for some class of
rounding, together with its groups that were imported before; so a single group, reruns that are all
equal bit for bit and any row that is not usable are refused. So is a name that the table has no
right to: that of a public family or of one that jobs of this server measured, and groups of the
latter under another name. Can fail: a table whose figures are wrong, or that calls unlike set-ups
one family. Its owner, source and licence are kept and shown.
"""

import unicodedata
from collections.abc import Iterable, Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.inert import cell as as_cell
from parity.judging.curves.curve import ROUNDINGS
from parity.judging.noise.emulated_table import EMULATED
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import (
    ANY_DECODER,
    COLUMNS,
    NoiseTable,
    NoiseTableError,
    Row,
    read_noise_table,
)
from parity.judging.noise.public_table import public_noise_table
from parity.typed_json import shown
from server.database import clock
from server.database.locks import hold_lock
from server.database.tables import ImportedGroup
from server.errors import ConflictError, InvalidError
from server.jobs.noise_tables import noise_table_on_record

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
    now = clock.now(session)
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
        families = session.scalar(select(func.count(ImportedGroup.family.distinct()))) or 0
        detail = (
            f"job.family is {shown(family)}; expected one of the {families} imported families or "
            "of the public ones, which /noise-tables "
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
            what = "which jobs of this server measured and use without naming it"
            raise ConflictError(
                f"family {shown(row['family'])} has the name of {measured[name]}, {what}: {remedy}"
            )
        if group := sources.get(_numbers(row)):
            what = (
                f"{shown(group['group'])} of {group['family']}, which jobs of this server measured"
            )
            raise ConflictError(
                f"group {shown(row['group'])} of family {shown(row['family'])} has the figures of "
                f"{what}: leave it out"
            )


def _refuse_useless(noise_table: NoiseTable) -> None:
    """InvalidError for a family that would be usable for no class of rounding."""
    for name, family in noise_table.families.items():
        noise_sources = [find_noise_source(noise_table, name, rounding) for rounding in ROUNDINGS]
        if all(noise_source.noise is None for noise_source in noise_sources):
            stated = {group.rounding for group in family.groups}
            reasons = [
                noise_source.refused
                for rounding, noise_source in zip(ROUNDINGS, noise_sources, strict=True)
                if rounding in stated
            ]
            raise InvalidError.at(
                "/table",
                f"family {shown(name)} would not be usable: "
                f"{(reasons or [noise_sources[0].refused])[0]}; nothing was imported",
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
