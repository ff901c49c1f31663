"""How often one caller may ask: requests a minute for each token."""

from __future__ import annotations

import logging
import time

import redis

from server.readiness import redis_client

_log = logging.getLogger(__name__)
_MINUTE = 60


class Limiter:
    """Counts requests by minute in Redis, so that all API processes count together."""

    def __init__(self, url: str, per_minute: int) -> None:
        self._redis = redis_client(url)
        self._per_minute = per_minute

    def allows(self, token_id: str) -> bool:
        """Count a request of this token; False when it was one too many. While Redis is away everything is allowed."""
        key = f"parity:requests:{token_id}:{int(time.time()) // _MINUTE}"
        try:
            with self._redis.pipeline() as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, 2 * _MINUTE)
                made: int = pipeline.execute()[0]
        except redis.RedisError as error:
            _log.warning("requests are not counted, the broker is away: %s", error)
            return True
        return made <= self._per_minute
