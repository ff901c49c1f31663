"""Names of the people and programs that submitted jobs or changed baselines, by the id that a row keeps of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.tables import LOCAL_ID, LOCAL_NAME, Token


def principal_names(session: Session, ids: Collection[str | None]) -> Mapping[str, str]:
    """Names by id, of the tokens among these ids and of this machine, which needs no token; an id that is unknown has no entry."""
    tokens = session.execute(select(Token.id, Token.name).where(Token.id.in_({one for one in ids if one})))
    return {LOCAL_ID: LOCAL_NAME} | {row[0]: row[1] for row in tokens}
