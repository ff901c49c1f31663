"""Names of those who submitted jobs or changed baselines, by the id in a row."""

from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.tables import LOCAL_ID, LOCAL_NAME, Token


def principal_names(session: Session, ids: Collection[str | None]) -> Mapping[str, str]:
    """Names by id, for tokens and for local use without a token; unknown ids have no entry."""
    tokens = session.execute(
        select(Token.id, Token.name).where(Token.id.in_({one for one in ids if one}))
    )
    return {LOCAL_ID: LOCAL_NAME} | {row[0]: row[1] for row in tokens}
