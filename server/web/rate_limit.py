"""Requests a minute for each token, counted in Redis."""

import logging
import time

import redis

from parity.frozen import frozen
from server.queue import redis_client

_log = logging.getLogger(__name__)
_MINUTE = 60
# to connect, and again for an answer: a request may not wait longer for the broker than a second
_PATIENCE_SECONDS = 0.4
# After a failure no request tries Redis again for this long, because each try would wait.
_AWAY_SECONDS = 5.0


@frozen
class Allowance:
    """Requests that a caller may make in a minute, how many are left (below 0: limit exceeded), and
    when the next minute begins.
    """

    limit: int
    left: int
    seconds: int

    def headers(self) -> dict[str, str]:
        """The same values as response headers."""
        values = {
            "RateLimit-Limit": self.limit,
            "RateLimit-Remaining": max(0, self.left),
            "RateLimit-Reset": self.seconds,
        }
        return {name: str(value) for name, value in values.items()}


class Limiter:
    """Counts requests by minute in Redis, so that all API processes count together."""

    def __init__(self, url: str, per_minute: int) -> None:
        self._redis = redis_client(url, _PATIENCE_SECONDS)
        self._per_minute = per_minute
        self._away_until = 0.0

    def count(self, token_id: str) -> Allowance | None:
        """Count a request of this token; its remaining allowance, or None while Redis is
        unreachable.
        """
        if time.monotonic() < self._away_until:
            return None
        minute, second = divmod(int(time.time()), _MINUTE)
        key = f"parity:requests:{token_id}:{minute}"
        try:
            with self._redis.pipeline() as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, 2 * _MINUTE)
                made: int = pipeline.execute()[0]
        except redis.RedisError as error:
            _log.warning("requests are not counted, because the broker is unreachable: %s", error)
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return None
        return Allowance(
            limit=self._per_minute, left=self._per_minute - made, seconds=_MINUTE - second
        )
