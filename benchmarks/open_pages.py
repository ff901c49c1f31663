"""Pages that follow one job's events: how long until they are connected, and how long an event
takes from its commit to each of them.
"""

import asyncio
import json
import time
from collections.abc import Callable

_COUNTED = 10


async def follow(
    address: str, token: str, job: str, clients: int, emit: Callable[[], None]
) -> tuple[float, list[float], int]:
    """(seconds until each page was told that it is connected, delays of events in seconds, how many
    of them there had to be).

    `emit` commits an event of the job with `{"sent": time.time()}` as its payload.
    """
    host, port = address.removeprefix("http://").split(":")
    request = (
        f"GET /api/v1/jobs/{job}/events?after=1 HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: "
        f"Bearer {token}\r\n\r\n"
    )
    delays: list[float] = []
    connected = asyncio.Semaphore(0)

    async def page() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request.encode())
        status = await reader.readline()
        assert b" 200 " in status, status
        while line := await reader.readline():
            if line.startswith(b"event: alive"):
                connected.release()
            elif line.startswith(b"data:") and b'"sent"' in line:
                delays.append(time.time() - json.loads(line[5:])["sent"])

    began = time.perf_counter()
    pages = [asyncio.create_task(page()) for _ in range(clients)]
    for _ in range(clients):
        await asyncio.wait_for(connected.acquire(), 120)
    connecting = time.perf_counter() - began
    # One event that every page has had before those that count: what connecting costs is a figure
    # of its own.
    await asyncio.to_thread(emit)
    async with asyncio.timeout(120):
        while len(delays) < clients:
            await asyncio.sleep(0.1)
    delays.clear()
    for _ in range(_COUNTED):
        await asyncio.to_thread(emit)
        await asyncio.sleep(1)
    await asyncio.sleep(2)
    for task in pages:
        task.cancel()
    return connecting, delays, clients * _COUNTED
