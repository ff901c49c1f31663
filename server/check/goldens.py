"""Is each golden as it was taken, and can this version read it?"""

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import undefer

from parity.golden.golden_file import GoldenError
from server.check.damage import BACKUP, Checked, Damage
from server.database.sessions import Database
from server.database.tables import Golden
from server.errors import DamagedError
from server.jobs import goldens

_REMEDIES = (BACKUP, "a new run of the trusted code, taken as the next version")


def check_goldens(database: Database) -> Iterator[Checked]:
    """Read every golden by its digest, one at a time."""
    with database.read() as session:
        ids = [*session.scalars(select(Golden.id).order_by(Golden.id))]
    for golden_id in ids:
        with database.read() as session:
            row = session.get(Golden, golden_id, options=[undefer(Golden.text)])
            found = None if row is None else _damage(row)
        yield Checked(kind="golden", pieces=1, damage=() if found is None else (found,))


def _damage(row: Golden) -> Damage | None:
    called = f"golden {goldens.called(row)}"
    try:
        recipe = goldens.read(row).recipe
    except DamagedError:
        return Damage(what=f"{called} is not as it was taken", remedies=_REMEDIES)
    except GoldenError as error:
        newer = "where a newer version stored it: run that version (docs/operate.md, Upgrade)"
        return Damage(what=f"{called} cannot be read ({error!s:.200})", remedies=(newer, BACKUP))
    if recipe != row.recipe:
        return Damage(what=f"{called} is one of {recipe}, not {row.recipe}", remedies=_REMEDIES)
    return None
