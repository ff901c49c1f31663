"""A date in a cell or a field, as seconds since 1970."""

import datetime

UNIX_SECONDS = "unix_seconds"
"""The quantity that a date is read as."""


def seconds_of_date(text: str) -> float | None:
    """The seconds of a date of ISO 8601, without a zone in UTC; None for any other text."""
    try:
        date = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()
