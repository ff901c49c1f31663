"""Can the database file and every row of every table be read, and does each row belong to one that
exists?
"""

from collections.abc import Iterator

from sqlalchemy import Table, select, text
from sqlalchemy.exc import SQLAlchemyError

from server.check.damage import BACKUP, Checked, Damage
from server.database.sessions import Database
from server.database.tables import Base, Chunk, ChunkColumn, table_of

_ROWS_A_READ = 2000
_MOST_FINDINGS = 100
_REMEDIES = (BACKUP, "sqlite3's `.recover` writes what can still be read of a SQLite file")
_UNREADABLE = (SQLAlchemyError, ValueError, TypeError)
# Steps are read with their checksums (`server.check.steps`).
_STEPS = (table_of(Chunk), table_of(ChunkColumn))


def check_tables(database: Database) -> Iterator[Checked]:
    """The file as SQLite sees it, then each table read whole: its values, its JSON, its
    references.
    """
    if database.engine.dialect.name == "sqlite":
        yield _check_file(database)
    for table in Base.metadata.sorted_tables:
        if table not in _STEPS:
            yield _check_table(database, table)


def _check_file(database: Database) -> Checked:
    """SQLite's own check of pages, indexes and constraints, and of references."""
    damage = []
    with database.engine.connect() as connection:
        try:
            rows = connection.execute(text(f"PRAGMA integrity_check({_MOST_FINDINGS})")).scalars()
            found = [str(row) for row in rows if row != "ok"]
        except SQLAlchemyError as error:
            found = [str(error.__cause__ or error)]
        damage += [Damage(what=f"the database file: {line}", remedies=_REMEDIES) for line in found]
        if not found:
            for row in connection.execute(text("PRAGMA foreign_key_check")).all():
                what = f"table {row[0]}, row {row[1]}: it belongs to a row of {row[2]} that is gone"
                damage.append(Damage(what=what, remedies=(BACKUP,)))
    return Checked(kind="database file", pieces=1, damage=tuple(damage))


def _check_table(database: Database, table: Table) -> Checked:
    rows = 0
    try:
        with database.engine.connect() as connection:
            stream = connection.execution_options(yield_per=_ROWS_A_READ).execute(table.select())
            for _ in stream:
                rows += 1
    except _UNREADABLE as error:
        damage = _unreadable_rows(database, table) or (_damage(f"table {table.name}", error),)
        return Checked(kind="row", pieces=rows, damage=damage)
    return Checked(kind="row", pieces=rows)


def _unreadable_rows(database: Database, table: Table) -> tuple[Damage, ...]:
    """The rows of a table that cannot be read, one by one; none where their keys cannot be."""
    key = list(table.primary_key)
    damage = []
    try:
        with database.engine.connect() as connection:
            for values in connection.execute(select(*key)).all():
                try:
                    chosen = (column == value for column, value in zip(key, values, strict=True))
                    connection.execute(table.select().where(*chosen)).all()
                except _UNREADABLE as error:
                    row = ", ".join(str(value) for value in values)
                    damage.append(_damage(f"table {table.name}, row {row}", error))
    except SQLAlchemyError:
        return ()
    return tuple(damage)


def _damage(place: str, error: Exception) -> Damage:
    cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
    return Damage(what=f"{place} cannot be read ({cause:.200})", remedies=_REMEDIES)
