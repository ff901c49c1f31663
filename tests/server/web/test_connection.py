"""Clients that open a connection and send half a request, or an ambiguous one."""

import socket

import pytest

from server.web import connection, middleware


def reply(served: str, *parts: bytes) -> bytes:
    """All that the server sends before it closes the connection."""
    host, port = served.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        for part in parts:
            client.sendall(part)
        received = b""
        while more := client.recv(4096):
            received += more
        return received


HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.3)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTT", HEAD], ids=["nothing", "half a line", "half a head"]
)
def test_a_head_that_does_not_arrive_is_cut(impatient, served, sent):
    assert reply(served, sent) == b""


def test_half_a_head_after_a_whole_request_is_cut(impatient, served):
    assert (
        reply(served, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /heal").count(
            b"HTTP/1.1 200"
        )
        == 1
    )


def test_a_body_that_does_not_arrive_is_408(impatient, served):
    answer = reply(served, HEAD + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"urn:parity:problem:http-408" in answer


def test_two_lengths_are_refused(served):
    answer = reply(
        served,
        HEAD
        + b"Connection: close\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 400")
