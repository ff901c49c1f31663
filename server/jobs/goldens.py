"""Goldens by name: find, check a run, take a run as the next version, remove. Plain functions of a
session.

A version is the curve of one run, as the text of a golden's file, and is immutable. Whoever sends a
run sends its losses and never an answer: the rule of `parity.golden` is applied here, to the newest
version that was not removed. A name keeps its recipe for ever, also when all of its versions were
removed: a check that names it must not become one of another precision.

A name belongs to who took its newest version. Others change it only if they `overrule`, which takes
scope approve or admin; the tokens of repositories' gates change none
(`server.web.access.rules`).
"""

import hashlib
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from parity.canonical_json import canonical_json
from parity.frozen import frozen
from parity.golden.check import Check, RunFacts, check_golden
from parity.golden.golden_file import Golden as GoldenCurve
from parity.golden.golden_file import GoldenError, golden_text, parsed_golden
from parity.golden.recipes import NO_PRECISION_CHANGE
from parity.golden.update import NotAcceptedError, Request, Written, taken_golden
from parity.judging.curves.curve import Curve
from parity.recipes import RecipeError
from server.database import tables
from server.database.clock import time_text
from server.database.locks import hold_lock
from server.database.tables import LOCAL_ID, Golden, Token
from server.errors import ConflictError, DamagedError, ForbiddenError, InvalidError, NotFoundError

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
MOST_CHARACTERS = 1_000_000  # of a golden's text: 5,000 steps with all quantities are half of that
_WRITTEN = (
    "name",
    "version",
    "recipe",
    "text",
    "steps",
    "answer",
    "gap_pct",
    "accepted",
    "reason",
    "owner",
    "created_at",
)


@frozen
class Asked:
    """What is stated with a run that is sent: facts, what changed, and the last step before a
    resume.
    """

    facts: RunFacts
    changed: str | None = None
    fork: int | None = None


@frozen(eq=False)
class Taken:
    """What became of a run that was to be the next version: the version that holds now, and its
    check (None for a first one). `refused` says why it was not taken.
    """

    golden: Golden | None
    check: Check | None
    is_written: bool
    refused: str | None = None


def versions(session: Session, name: str) -> list[Golden]:
    """All versions of a name, newest first. NotFoundError without any."""
    found = _versions(session, name)
    if not found:
        raise NotFoundError(
            f"golden {name!r} does not exist; `parity golden list` lists all goldens"
        )
    return found


def find(session: Session, name: str, version: int | None = None) -> Golden:
    """A version of a golden, removed or not; by default the newest. NotFoundError if it does not
    exist.
    """
    found = versions(session, name)
    if version is None:
        return found[0]
    for golden in found:
        if golden.version == version:
            return golden
    raise NotFoundError(f"golden {name} has no version {version}, expected 1 to {found[0].version}")


def read(golden: Golden) -> GoldenCurve:
    """The golden of a version. DamagedError unless it is as it was taken."""
    check_intact(golden)
    return parsed_golden(golden.text, called(golden))


def check_intact(golden: Golden) -> None:
    """DamagedError unless a version is as it was taken."""
    if golden.sha256 != _digest(golden):
        raise DamagedError(
            f"RECORD_DAMAGED: golden {called(golden)} is not as it was taken; on the server's "
            "machine `python -m server.check` lists the damage, and a backup of the database has it"
        )


def checked(session: Session, goldens: Sequence[Golden], run: Curve, asked: Asked) -> Check:
    """A run judged by versions that are reruns of one. ConflictError for a removed one,
    InvalidError for a run that cannot be compared with them.
    """
    for golden in goldens:
        _refuse_removed(session, golden)
    name = goldens[0].name
    try:
        return check_golden(
            [read(golden) for golden in goldens],
            run,
            asked.facts,
            changed=asked.changed,
            fork=asked.fork,
            accept=f"POST /api/v1/goldens/{name}/versions",
        )
    except (GoldenError, RecipeError) as error:
        raise InvalidError(str(error)) from None


def take(
    session: Session,
    name: str,
    run: Curve,
    asked: Asked,
    request: Request,
    who: str,
    *,
    overrules: bool = False,
) -> Taken:
    """Take a run as the next version of a name: the first one, or one that is identical or differs
    by numerics only, or whose answer a person accepts.

    ForbiddenError if the name is not the sender's, unless they overrule; InvalidError for a run
    that cannot be a golden, or has another recipe than the name.
    """
    _check_name(name)
    hold_lock(session, f"golden {name}")  # two runs at a time: the second is judged by the first
    every = _versions(session, name)
    if every:
        _check_owner(session, every[0], who, overrules=overrules)
    before = next((golden for golden in every if golden.removed_at is None), None)
    try:
        written = taken_golden(
            None if before is None else read(before),
            run,
            asked.facts,
            request,
            changed=asked.changed,
            fork=asked.fork,
        )
    except NotAcceptedError as error:
        return Taken(golden=before, check=error.check, is_written=False, refused=str(error))
    except (GoldenError, RecipeError) as error:
        raise InvalidError(str(error)) from None
    if not written.is_written:
        return Taken(golden=before, check=written.check, is_written=False)
    if every and every[0].recipe != written.golden.recipe:
        raise InvalidError(
            f"golden {name} is one of recipe {every[0].recipe}, and the run has recipe "
            f"{written.golden.recipe}; {NO_PRECISION_CHANGE}: give the run's golden another name"
        )
    row = _row(name, 1 if not every else every[0].version + 1, written, who)
    session.add(row)
    session.flush()
    return Taken(golden=row, check=written.check, is_written=True)


def remove(
    session: Session, golden: Golden, reason: str, who: str, *, overrules: bool = False
) -> None:
    """Remove a version: nothing is judged by it any more, and the next run is judged by the one
    before it. Removing twice changes nothing.
    """
    hold_lock(session, f"golden {golden.name}")
    session.refresh(golden)  # who held the lock may have removed it
    _check_owner(session, versions(session, golden.name)[0], who, overrules=overrules)
    if golden.removed_at is not None:
        return
    stated = " ".join(reason.split())
    if not stated:
        raise InvalidError(
            f"reason is {reason!r:.80}, expected a sentence of 1 to 1,000 characters"
        )
    golden.removed_at, golden.removed_by, golden.remove_reason = time.time(), who, stated


def called(golden: Golden) -> str:
    """A version as text: its name and number."""
    return f"{golden.name} version {golden.version}"


def date_of(moment: float) -> str:
    """The day of a time, as a golden's history has it."""
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _versions(session: Session, name: str) -> list[Golden]:
    statement = (
        select(Golden)
        .where(Golden.name == name)
        .order_by(Golden.version.desc())
        .options(undefer(Golden.text))
    )
    return [*session.scalars(statement)]


def _row(name: str, version: int, written: Written, who: str) -> Golden:
    text = golden_text(written.golden)
    if len(text) > MOST_CHARACTERS:
        raise InvalidError(
            f"the golden would have {len(text):,} characters, expected at most "
            f"{MOST_CHARACTERS:,}; keep fewer steps with every"
        )
    entry = written.golden.updates[-1]
    row = Golden(
        id=tables.new_id("g"),
        name=name,
        version=version,
        recipe=written.golden.recipe,
        text=text,
        steps=len(written.golden.curve.steps),
        answer=entry.answer,
        gap_pct=entry.gap_pct,
        accepted=entry.accepted,
        reason=entry.reason,
        owner=None if who == LOCAL_ID else who,
        created_at=time.time(),
    )
    row.sha256 = _digest(row)
    return row


def _digest(golden: Golden) -> str:
    columns = [getattr(golden, name) for name in _WRITTEN]
    return hashlib.sha256(canonical_json(columns).encode()).hexdigest()


def _refuse_removed(session: Session, golden: Golden) -> None:
    """ConflictError for a removed version: another one is never taken in its place unasked."""
    if golden.removed_at is None:
        return
    kept = [one.version for one in _versions(session, golden.name) if one.removed_at is None]
    remedy = f"name one that is kept, such as {golden.name}@{kept[0]}, or " if kept else ""
    raise ConflictError(
        f"golden {called(golden)} was removed on {time_text(golden.removed_at)[:10]}: "
        f"{golden.remove_reason}; {remedy}take a new run as the golden"
    )


def _check_owner(session: Session, newest: Golden, who: str, *, overrules: bool) -> None:
    """ForbiddenError if somebody else took the newest version of a name, or nobody knows who."""
    if overrules or newest.owner == who:
        return
    owner = session.scalar(select(Token.name).where(Token.id == newest.owner))
    if newest.owner is None:
        taken = "without a token"
    else:
        taken = f"by token {(owner or newest.owner)!r}"
    raise ForbiddenError(
        f"golden {called(newest)} was taken {taken}; expected a token of that principal, or one "
        "with scope approve or admin"
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise InvalidError(
            f"name is {name!r:.80}, expected 1 to 64 letters, digits, '_', '.' or '-', a letter or "
            "digit first"
        )
