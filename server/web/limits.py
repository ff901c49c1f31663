"""The numbers that limit requests: the sizes of bodies, lists, numbers and answers, the threads
that work on them, and how many may wait. `middleware` and `requests/` refuse what is above them.
"""

from server.errors import InvalidError

BODY_BYTES = 2**20
"""The largest body of a request without curves or tables; those have the setting
`max_body_bytes`.
"""
LARGEST = 2**53
"""The largest whole number of a request: up to it, numbers are exact in JSON, and the database can
store them.
"""
MOST_ITEMS, MOST_NUMBERS, MOST_KEYS = 1000, 10_000_000, 1000
"""The longest list of objects or lists, the longest other list, and the most keys of an object,
where no field has its own limit.
"""
MOST_VALUES = 2_000_000
"""The most values of columns in one answer; a file (CSV, Arrow) is sent in parts and has no
limit.
"""
MOST_FINDINGS, MOST_COUNTED = 100, 10_000
"""The most errors that a problem document lists, and the most of which it can list some: making
more of them takes seconds.
"""

THREADS, MOST_WAITING, THREAD_SECONDS = 12, 128, 20.0
"""How many threads work on requests; how many requests wait for one, of which the next is refused;
and for how long each of them does.

With 40 threads, the event loop had so small a share of the interpreter under load that even
refusals took seconds.
"""


def check_values(columns: int, values: int) -> None:
    """InvalidError where the columns of an answer have too many values; `values` is the most that
    one of them can have.
    """
    if columns * values > MOST_VALUES:
        raise InvalidError(
            f"the answer would have {columns:,} columns of {values:,} values, expected at most "
            f"{MOST_VALUES:,} values in all; ask for fewer columns (`names`) or fewer values of "
            "each (`points` or `limit`), or for the steps as format csv or arrow"
        )
