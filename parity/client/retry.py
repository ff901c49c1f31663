"""Trying again over the network: which errors pass, how long to wait, and the one loop that does
both.
"""

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from parity.client.rest import ClientError, UnreachableError
from parity.frozen import frozen

Answer = TypeVar("Answer")

# 401 and 403: a token that is wrong or has expired says nothing against what was logged, which
# another token can send.
WRONG_TOKEN = frozenset({401, 403})
_ACCEPTED_LATER = WRONG_TOKEN | frozenset({408, 425, 429, 500, 502, 503, 504})


@frozen
class Pauses:
    """Seconds between tries: `first_seconds`, then twice as long after each failure, at most
    `longest_seconds`.

    A pause is never shorter than the server's Retry-After, which counts up to
    `longest_retry_after_seconds`. Pauses are multiplied by 1 - `spread` to 1 + `spread`, at random,
    and Retry-After by 1 to 1 + `spread`: those who were refused together come back one by one.
    """

    first_seconds: float
    longest_seconds: float
    longest_retry_after_seconds: float = math.inf
    spread: float = 0.0

    def after(self, failures: int, error: Exception) -> float:
        """The pause in seconds after this error, where `failures` tries had failed before it."""
        pause = min(self.first_seconds * 2.0 ** min(failures, 64), self.longest_seconds)
        pause *= random.uniform(1.0 - self.spread, 1.0 + self.spread)  # noqa: S311
        retry_after = error.retry_after if isinstance(error, ClientError) else None
        asked = min(retry_after or 0.0, self.longest_retry_after_seconds) * random.uniform(  # noqa: S311
            1.0, 1.0 + self.spread
        )
        return max(pause, asked)


def retry(
    send: Callable[[], Answer],
    *,
    pauses: Pauses,
    is_retryable: Callable[[Exception], bool],
    wait: Callable[[float], object],
    on_error: Callable[[Exception], object] | None = None,
    patience_seconds: float = math.inf,
) -> Answer:
    """The answer of `send`, which is repeated after each error that may pass; `on_error` gets the
    error before each pause.

    `wait` gets the seconds of a pause; it raises an exception of its own to end the tries. Raises
    the last error where it can't pass, and where the first try began longer than `patience_seconds`
    ago.
    """
    began, failures = time.monotonic(), 0
    while True:
        try:
            return send()
        except (UnreachableError, ClientError, OSError) as error:
            if not is_retryable(error) or time.monotonic() - began > patience_seconds:
                raise
            if on_error is not None:
                on_error(error)
            pause = pauses.after(failures, error)
        failures += 1
        wait(pause)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed soon: no answer, too many requests, or a server that is
    in trouble itself.
    """
    if isinstance(error, ClientError):
        return error.status >= 500 or error.status == 429
    return isinstance(error, UnreachableError)


def may_be_accepted_later(error: Exception) -> bool:
    """Whether logged steps are worth keeping and sending again, in hours if need be; False where
    the server refuses them for good.

    A refusal without a `kind` is not our server's: it comes from something before it, such as a
    proxy whose server restarts.
    """
    if isinstance(error, ClientError):
        return not error.kind or error.status in _ACCEPTED_LATER
    # another process has sent the spool and removed it
    return not isinstance(error, FileNotFoundError)
