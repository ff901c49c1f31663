"""Responses that are made while the client reads them: limited in number for each sender, and cut
when the client stops reading.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from parity.frozen import frozen
from server.errors import TooManyError, UnavailableError

IDLE_SECONDS = 30.0
"""A client that has not made room for the next part for so long is disconnected."""


@frozen
class Share:
    """How many streams of one kind one sender may read at once from one process, and all senders
    together.
    """

    what: str
    per_sender: int
    in_total: int


EXPORTS = Share(what="exports", per_sender=16, in_total=64)
PAGES = Share(what="event streams", per_sender=1000, in_total=3000)
"""A team may share one principal, and an open page costs little; more than the files that a process
may open are refused by the system.
"""


class OpenStreams:
    """How many streams every sender reads at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[tuple[str, str]] = Counter()

    def enter(self, share: Share, sender: str) -> None:
        """Count one more; TooManyError if the sender has its share already, UnavailableError if all
        together have theirs.
        """
        remedy = "read or close one, then retry"
        with self._lock:
            sender_open, total_open = self._open[share.what, sender], self._open[share.what, ""]
            if sender_open >= share.per_sender:
                raise TooManyError(
                    f"{sender_open:,} {share.what} are open; expected at most "
                    f"{share.per_sender:,} at once: {remedy}"
                )
            if total_open >= share.in_total:
                raise UnavailableError(
                    f"{total_open:,} {share.what} are open, the most that this server sends at "
                    "once; retry in a moment"
                )
            self._open.update(((share.what, sender), (share.what, "")))

    def leave(self, share: Share, sender: str) -> None:
        """Count one less."""
        with self._lock:
            for key in ((share.what, sender), (share.what, "")):
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]


class _Limited(Response):
    """A response that is sent as its client reads it. If the client stops reading, the connection
    is cut before the body's end.
    """

    def _limit(self, request: Request, share: Share) -> None:
        self._share, self._sender = share, str(request.state.sender)
        self._streams: OpenStreams = request.app.state.context.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts; TooManyError or UnavailableError, before anything is sent, if too many
        streams are open.
        """

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(IDLE_SECONDS):
                await send(message)

        self._streams.enter(self._share, self._sender)
        try:
            await super().__call__(scope, receive, send_in_time)
        except (ClientDisconnect, TimeoutError):
            return
        finally:
            self._streams.leave(self._share, self._sender)


class Stream(_Limited, StreamingResponse):
    """A response that is made while its client reads it."""

    def __init__(
        self,
        request: Request,
        share: Share,
        parts: Iterable[bytes] | AsyncIterable[bytes],
        **more: Any,
    ) -> None:
        """`more`: the media type and the headers."""
        super().__init__(parts, **more)
        self._limit(request, share)


class Download(_Limited, FileResponse):
    """A file of this machine, also in parts (Range); it counts as an export."""

    def __init__(self, request: Request, path: Path) -> None:
        super().__init__(path, filename=path.name, media_type="application/octet-stream")
        self._limit(request, EXPORTS)
