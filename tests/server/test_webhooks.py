"""Webhooks arrive at a real server: signed, again after a failure, and nowhere else."""

import base64
import hashlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from server import deliveries, webhooks
from server.database import tables
from server.database.tables import WebhookDelivery, new_id
from server.jobs.conclude import conclude
from server.settings import CHECKOUT, SECRET_PREFIX, WebhookSetting
from server.webhooks import Deliverer

both_databases = pytest.mark.both_databases
SECRET = SECRET_PREFIX + base64.b64encode(bytes(range(32))).decode()


class Receiver:
    """An HTTP server that keeps what it gets and answers as it is told: a status, `hang`, `meet`
    (once another one is asked, too), or `drip` (a header without end).
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int | str] = []
        self.closing = threading.Event()
        self.meeting = threading.Barrier(1)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                receiver.requests.append(
                    (self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                )
                answer = receiver.answers.pop(0) if receiver.answers else 204
                if answer == "hang":
                    receiver.closing.wait(20)
                elif answer == "meet":
                    receiver.meeting.wait(8)
                    self.send_response(204)
                    self.end_headers()
                elif answer == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while not receiver.closing.wait(0.05):
                        self.wfile.write(b"a")
                else:
                    self.send_response(int(answer))
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # a sender that hangs up is what is tested
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def make_receiver():
    made = []

    def make(tls=None) -> Receiver:
        made.append(Receiver(tls))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def receiver(make_receiver):
    return make_receiver()


@pytest.fixture
def hooks(database):
    """The webhooks of the settings, and a function that adds one; its id."""
    known: list[WebhookSetting] = []

    def add(url, *events) -> str:
        known.append(
            WebhookSetting(url=url, secret=SECRET, events=events or ("job.ended", "verdict.given"))
        )
        with database.write() as session:
            deliveries.register(session, {hook.id: hook.events for hook in known})
        return known[-1].id

    return known, add


@pytest.fixture
def register(hooks):
    return hooks[1]


@pytest.fixture
def own_settings(settings, hooks):
    """A function: the settings with the webhooks that were registered so far."""
    return lambda: settings.model_copy(
        update={"public_url": "https://parity.example/", "webhooks": tuple(hooks[0])}
    )


@pytest.fixture
def deliver_due(database, own_settings):
    def deliver() -> list[str]:
        """In a thread of its own, as a server does; a test before may have left an event loop in
        this one (a browser's).
        """
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(webhooks.deliver_due, own_settings(), database).result()

    return deliver


@pytest.fixture
def waiting(database, recorded):
    """A function that writes a delivery of a webhook; its id."""
    job = recorded({"nvfp4": 0.0}, steps=60)

    def make(hook, count=1) -> str:
        with database.write() as session:
            about = {
                "webhook_id": hook,
                "kind": "job.ended",
                "job_id": job,
                "created_at": time.time(),
                "next_attempt_at": 0.0,
            }
            rows = [WebhookDelivery(id=new_id("d"), **about) for _ in range(count)]
            session.add_all(rows)
        return rows[-1].id

    return make


@pytest.fixture
def sent(register, waiting):
    """A function that registers a webhook with a delivery that is due; the delivery's id."""
    return lambda url: waiting(register(url))


def _url(receiver, path="/in/T0K3N?a=b"):
    return f"http://127.0.0.1:{receiver.port}{path}"


def _row(database, delivery):
    with database.read() as session:
        row = session.get_one(WebhookDelivery, delivery)
        return row.state, row.attempts, row.status, row.message


def _make_due(database):
    with database.write() as session:
        for row in session.query(WebhookDelivery):
            row.next_attempt_at = 0.0


def _hmac_sha256(key: bytes, message: bytes) -> bytes:
    """RFC 2104 by its definition."""
    key = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(one ^ 0x36 for one in key) + message).digest()
    return hashlib.sha256(bytes(one ^ 0x5C for one in key) + inner).digest()


@both_databases
def test_a_verdict_arrives_signed_and_once(
    database, recorded, receiver, register, deliver_due, caplog
):
    caplog.set_level("INFO")
    register(_url(receiver))
    job = recorded({"nvfp4": 0.001, "nvfp4_no_rht": 0.3}, steps=1500)
    conclude(database, job)
    assert len(deliver_due()) == 2
    assert deliver_due() == []
    documents = {}
    for path, headers, body in receiver.requests:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = _hmac_sha256(base64.b64decode(SECRET.removeprefix("whsec_")), signed)
        assert headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
        assert path == "/in/T0K3N?a=b"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["content-type"] == "application/json"
        document = json.loads(body)
        assert document["id"] == headers["webhook-id"]
        documents[document["type"]] = document
        assert SECRET not in body.decode() + str(headers)
        assert _row(database, document["id"]) == ("delivered", 1, 204, None)
    assert set(documents) == {"job.ended", "verdict.given"}
    for document in documents.values():
        assert (
            document["job"].items()
            >= {
                "id": job,
                "name": "small",
                "engine": "emulated",
                "status": "concluded",
                "code": None,
            }.items()
        )
        assert document["job"]["verdict"] == "fail"
        assert document["job"]["lead"].startswith("nvfp4_no_rht")
        assert [(each["candidate"], each["verdict"]) for each in document["verdicts"]] == [
            ("nvfp4", "pass"),
            ("nvfp4_no_rht", "fail"),
        ]
        assert abs(document["verdicts"][1]["gap_nats"] - 0.3) < 0.02
        assert [each["candidate"] for each in document["forecasts"]] == ["nvfp4", "nvfp4_no_rht"]
        assert document["links"]["page"] == f"https://parity.example/jobs/{job}"
    assert "T0K3N" not in caplog.text


@both_databases
def test_what_fails_is_sent_again_as_it_was(database, receiver, sent, deliver_due, caplog):
    delivery = sent(_url(receiver))
    receiver.answers = [503, 302]
    for attempt, (status, message) in enumerate(
        ((503, "answered 503"), (302, "redirects are not followed")), start=1
    ):
        assert deliver_due() == [delivery]
        state, attempts, last, why = _row(database, delivery)
        assert (state, attempts, last) == ("pending", attempt, status)
        assert message in why
        assert deliver_due() == []
        _make_due(database)
    assert deliver_due() == [delivery]
    assert _row(database, delivery) == ("delivered", 3, 204, None)
    assert {(path, headers["webhook-id"], body) for path, headers, body in receiver.requests} == {
        ("/in/T0K3N?a=b", delivery, receiver.requests[0][2])
    }
    assert len(receiver.requests) == 3
    assert "attempt 2 at delivery" in caplog.text
    assert "T0K3N" not in caplog.text


@pytest.mark.parametrize("way", ["hang", "drip"])
def test_who_does_not_answer_in_time_holds_up_nobody(
    database, make_receiver, register, waiting, sent, deliver_due, monkeypatch, way
):
    monkeypatch.setattr(webhooks, "_TIMEOUT_SECONDS", 0.4)
    slow, quick = make_receiver(), make_receiver()
    slow.answers = [way, way]
    hanging = register(_url(slow))
    late, later, good = waiting(hanging), sent("http://127.0.0.1:1/"), sent(_url(quick))
    waiting(hanging)
    began = time.monotonic()
    assert set(deliver_due()) == {late, later, good}
    assert time.monotonic() - began < 3
    assert _row(database, late) == ("pending", 1, None, "no response within 0.4 s")
    assert "no response" in _row(database, later)[3]
    assert _row(database, good)[0] == "delivered"


@both_databases
def test_webhooks_are_sent_at_the_same_time(database, make_receiver, sent, deliver_due):
    both = make_receiver(), make_receiver()
    both[0].meeting = both[1].meeting = threading.Barrier(2)
    for receiver in both:
        receiver.answers = ["meet"]
    deliveries_of_both = [sent(_url(receiver)) for receiver in both]
    assert set(deliver_due()) == {*deliveries_of_both}
    assert [_row(database, each)[0] for each in deliveries_of_both] == ["delivered", "delivered"]


def test_a_slow_receiver_has_a_round_of_limited_length(
    database, receiver, register, waiting, deliver_due, monkeypatch
):
    monkeypatch.setattr(webhooks, "_TIMEOUT_SECONDS", 0.0)
    waiting(register(_url(receiver)), 5)
    assert len(deliver_due()) <= 1


@both_databases
def test_a_webhook_with_a_long_list_holds_up_nobody(
    database, receiver, register, waiting, deliver_due
):
    """500 jobs end while its receiver is away; each round it is tried once, so the list would take
    hours to become short.
    """
    dead, good = register("http://127.0.0.1:1/"), register(_url(receiver))
    waiting(dead, 1001)
    last = waiting(good)
    assert last in deliver_due()
    assert _row(database, last)[0] == "delivered"


def test_a_sender_of_ours_that_breaks_holds_up_nobody(
    database, receiver, sent, deliver_due, monkeypatch
):
    delivery = sent(_url(receiver))

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(webhooks, "_post", broken)
    deliver_due()
    assert _row(database, delivery)[:3] == ("pending", 1, None)
    assert "ZeroDivisionError" in _row(database, delivery)[3]


def _resolve_here(monkeypatch):
    """Every name is this machine; the hosts that were looked up."""
    hosts = []

    def look_up(host, port, *_, **__):
        hosts.append(host.decode())
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return hosts


def test_the_name_in_the_settings_is_the_one_that_is_looked_up(sent, deliver_due, monkeypatch):
    """`xn--strae-oqa` is straße; Python's own look-up of that is of strasse, which may be somebody
    else's.
    """
    hosts = _resolve_here(monkeypatch)
    sent("https://xn--strae-oqa.example:1/in")
    deliver_due()
    assert hosts == ["xn--strae-oqa.example"]


@both_databases
def test_a_webhook_that_left_the_settings_fails_and_is_back_with_them(
    database, receiver, register, waiting, hooks, deliver_due
):
    delivery = waiting(register(_url(receiver)))
    (hook,) = hooks[0]
    hooks[0].clear()
    assert deliver_due() == [delivery]
    assert _row(database, delivery) == (
        "pending",
        1,
        None,
        "PARITY_WEBHOOKS no longer has this webhook",
    )
    hooks[0].append(hook)
    _make_due(database)
    assert deliver_due() == [delivery]
    assert _row(database, delivery)[0] == "delivered"


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="makes a certificate with the openssl command"
)
@pytest.mark.parametrize("name", ["hooks.example", "other.example"])
def test_the_certificate_is_the_names_and_the_name_is_looked_up_once(
    database, make_receiver, sent, deliver_due, tmp_path, monkeypatch, name
):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=x",
    ]
    new += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(new, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    names = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    receiver = make_receiver(tls)
    hosts = _resolve_here(monkeypatch)
    monkeypatch.setattr(
        webhooks, "_certificates", lambda: ssl.create_default_context(cafile=str(certificate))
    )
    delivery = sent(f"https://hooks.example:{receiver.port}/in")
    deliver_due()
    assert names == ["hooks.example"]
    assert hosts == ["hooks.example"]
    if name == "hooks.example":
        assert _row(database, delivery) == ("delivered", 1, 204, None)
        assert receiver.requests[0][1]["host"] == f"hooks.example:{receiver.port}"
    else:
        assert "certificate" in _row(database, delivery)[3]
        assert receiver.requests == []


def test_an_api_process_registers_its_webhooks_and_sends_by_itself(
    database, receiver, sent, own_settings
):
    delivery = sent(_url(receiver))
    with database.write() as session:
        deliveries.register(session, {})
    sending = Deliverer(own_settings().model_copy(update={"reconcile_seconds": 0.05}), database)
    sending.start()
    try:
        deadline = time.monotonic() + 10
        while _row(database, delivery)[0] == "pending" and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        sending.close()
    assert _row(database, delivery)[0] == "delivered"
    with database.read() as session:
        assert [row.events for row in session.query(tables.Webhook)] == [
            ["job.ended", "verdict.given"]
        ]


def test_the_documented_way_to_verify(receiver, sent, deliver_due):
    sent(_url(receiver))
    deliver_due()
    defined: dict = {}
    page = (CHECKOUT / "docs" / "operate.md").read_text()
    exec(  # noqa: S102
        compile(page.partition("```python\n")[2].partition("```")[0], "docs/operate.md", "exec"),
        defined,
    )
    _, headers, body = receiver.requests[0]
    assert defined["verified"](SECRET, headers, body)
    other = SECRET_PREFIX + base64.b64encode(bytes(32)).decode()
    old = str(int(headers["webhook-timestamp"]) - 400)
    resigned = {
        "webhook-timestamp": old,
        "webhook-signature": webhooks.signature(SECRET, headers["webhook-id"], int(old), body),
    }
    for forged in (
        (other, headers, body),
        (SECRET, headers, body + b" "),
        (SECRET, headers | resigned, body),
    ):
        assert not defined["verified"](*forged)
