"""Responses that are made while the client reads them: limited in number for each sender, and cut when the client stops reading."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from server.errors import TooManyError

AT_ONCE = 16
"""Streams that one sender may read at once from one process."""
IDLE_SECONDS = 30.0
"""A client that has not made room for the next part for so long is disconnected."""


class OpenStreams:
    """How many streams every sender reads at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def enter(self, sender: str) -> None:
        """Count one more; TooManyError if the sender has its share already."""
        with self._lock:
            if self._open[sender] >= AT_ONCE:
                raise TooManyError(
                    f"{self._open[sender]} exports are open; expected at most {AT_ONCE} at once: read or close one, then retry"
                )
            self._open[sender] += 1

    def leave(self, sender: str) -> None:
        """Count one less."""
        with self._lock:
            self._open[sender] -= 1
            if not self._open[sender]:
                del self._open[sender]


class Stream(StreamingResponse):
    """Parts of an export. The connection is cut, without the end of the body, if the client stops reading."""

    def __init__(self, request: Request, streams: OpenStreams, parts: Iterable[bytes], media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(parts, media_type=media_type, headers=dict(headers))
        self._streams, self._sender = streams, str(request.state.sender)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; TooManyError, before anything is sent, if the sender has too many streams open."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(IDLE_SECONDS):
                await send(message)

        self._streams.enter(self._sender)
        try:
            await super().__call__(scope, receive, send_in_time)
        except (ClientDisconnect, TimeoutError):
            return
        finally:
            self._streams.leave(self._sender)
