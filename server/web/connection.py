"""uvicorn's connection, closed where a client opens it and sends no whole request, or an ambiguous
one.

uvicorn waits indefinitely for the head of a request, so that a few hundred idle sockets would use
up its files.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0
"""How long a client may take to send the head of a request; bodies have their own limit
(`server.web.middleware`).
"""


class Connection(H11Protocol):
    """One client's connection; name it with `uvicorn --http server.web.connection:Connection`."""

    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's, and begin to watch."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()

    def on_response_complete(self) -> None:
        """As uvicorn's; the client may now send another request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _watch(self) -> None:
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and not self.cycle.response_complete
        waited = self.loop.time() - self._idle_since
        if not answering and waited >= HEAD_SECONDS:
            self.transport.close()
            return
        self.loop.call_later(HEAD_SECONDS / 4 if answering else HEAD_SECONDS - waited, self._watch)
