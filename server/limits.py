"""How often one caller may ask: requests a minute for each token."""

from __future__ import annotations

import logging
import time

import redis

from server.readiness import redis_client

_log = logging.getLogger(__name__)
_MINUTE = 60
# While Redis is away no request waits for it again this soon: a connection that hangs costs seconds.
_AWAY_SECONDS = 5.0


class Limiter:
    """Counts requests by minute in Redis, so that all API processes count together."""

    def __init__(self, url: str, per_minute: int) -> None:
        self._redis = redis_client(url)
        self._per_minute = per_minute
        self._away_until = 0.0

    def allows(self, token_id: str) -> bool:
        """Count a request of this token; False when it was one too many. While Redis is away everything is allowed."""
        if time.monotonic() < self._away_until:
            return True
        key = f"parity:requests:{token_id}:{int(time.time()) // _MINUTE}"
        try:
            with self._redis.pipeline() as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, 2 * _MINUTE)
                made: int = pipeline.execute()[0]
        except redis.RedisError as error:
            _log.warning("requests are not counted, the broker is away: %s", error)
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return True
        return made <= self._per_minute
