"""The cursor of a list: the id of the last row of a page, opaque to clients."""

import base64
import binascii

from server.database.tables import is_id
from server.errors import InvalidError


def cursor_of(row_id: str) -> str:
    """The `next_cursor` of a page that ends with this row."""
    return base64.urlsafe_b64encode(row_id.encode()).decode()


def row_id_of(cursor: str, kind: str) -> str:
    """The id in a cursor, of kind "j" (job) or "b" (baseline); InvalidError if the cursor has no
    such id.
    """
    try:
        row_id = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        row_id = ""
    if not is_id(kind, row_id):
        raise InvalidError(
            f"cursor is {cursor!r}, expected the next_cursor of an earlier page; leave it out for "
            "the first page"
        )
    return row_id
