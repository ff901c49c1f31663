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

from server import deliveries as sender
from server.database.sealed import Box
from server.database.tables import Webhook, WebhookDelivery
from server.deliveries import Deliverer
from server.jobs import webhooks
from server.jobs.conclude import conclude
from server.settings import CHECKOUT

both_databases = pytest.mark.both_databases
KEY, OTHER_KEY = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def _deliver_due(settings, database):
    """In a thread of its own, as a server does; a test before may have left an event loop in this one (a browser's)."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(sender.deliver_due, settings, database).result()


class Receiver:
    """An HTTP server that keeps what it gets and answers as it is told: a status, `hang`, or `drip` (a header without end)."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int | str] = []
        self.closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                receiver.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                answer = receiver.answers.pop(0) if receiver.answers else 204
                if answer == "hang":
                    receiver.closing.wait(20)
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
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
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
def settings(settings):
    own = {"webhooks_to_private_addresses": True, "public_url": "https://parity.example/", "webhook_keys": KEY}
    return settings.model_copy(update=own)


@pytest.fixture
def register(database):
    def add(url, *events) -> str:
        with database.write() as session:
            return webhooks.register(session, url, events or ("job.ended", "verdict.given"), Box([KEY]), to_private=True)[0].id

    return add


@pytest.fixture
def tested(database, register):
    """A function that registers a webhook and has it tested; the delivery's id."""

    def make(url) -> str:
        hook = register(url)
        with database.write() as session:
            return webhooks.announce_test(session, hook).id

    return make


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
def test_a_verdict_arrives_signed_and_once(settings, database, recorded, receiver, register, caplog):
    caplog.set_level("INFO")
    hook = register(_url(receiver))
    job = recorded({"nvfp4": 0.001, "nvfp4_no_rht": 0.3}, steps=1500)
    conclude(database, job)
    assert len(_deliver_due(settings, database)) == 2
    assert _deliver_due(settings, database) == []
    with database.read() as session:
        key = Box([KEY]).open(session.get_one(Webhook, hook).secret)
    documents = {}
    for path, headers, body in receiver.requests:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = _hmac_sha256(base64.b64decode(key.removeprefix("whsec_")), signed)
        assert headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 30
        assert path == "/in/T0K3N?a=b"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["content-type"] == "application/json"
        document = json.loads(body)
        assert document["id"] == headers["webhook-id"]
        documents[document["type"]] = document
        assert key not in body.decode() + str(headers)
        assert _row(database, document["id"]) == ("delivered", 1, 204, None)
    assert set(documents) == {"job.ended", "verdict.given"}
    for document in documents.values():
        assert document["job"].items() >= {"id": job, "name": "small", "status": "concluded", "code": None}.items()
        assert [(each["candidate"], each["verdict"]) for each in document["verdicts"]] == [("nvfp4", "pass"), ("nvfp4_no_rht", "fail")]
        assert abs(document["verdicts"][1]["gap_nats"] - 0.3) < 0.02
        assert [each["candidate"] for each in document["forecasts"]] == ["nvfp4", "nvfp4_no_rht"]
        assert document["links"]["page"] == f"https://parity.example/jobs/{job}"
    assert "T0K3N" not in caplog.text


@both_databases
def test_what_fails_is_sent_again_as_it_was(settings, database, receiver, tested, caplog):
    delivery = tested(_url(receiver))
    receiver.answers = [503, 302]
    for attempt, (status, message) in enumerate(((503, "answered 503"), (302, "redirects are not followed")), start=1):
        assert _deliver_due(settings, database) == [delivery]
        state, attempts, last, why = _row(database, delivery)
        assert (state, attempts, last) == ("pending", attempt, status)
        assert message in why
        assert _deliver_due(settings, database) == []
        _make_due(database)
    assert _deliver_due(settings, database) == [delivery]
    assert _row(database, delivery) == ("delivered", 3, 204, None)
    assert {(path, headers["webhook-id"], body) for path, headers, body in receiver.requests} == {
        ("/in/T0K3N?a=b", delivery, receiver.requests[0][2])
    }
    assert len(receiver.requests) == 3
    assert json.loads(receiver.requests[0][2]).items() >= {"type": "test", "job": None, "verdicts": []}.items()
    assert "attempt 2 at delivery" in caplog.text
    assert "T0K3N" not in caplog.text


@pytest.mark.parametrize("way", ["hang", "drip"])
def test_who_does_not_answer_in_time_holds_up_nobody(settings, database, make_receiver, tested, monkeypatch, way):
    monkeypatch.setattr(sender, "_TIMEOUT_SECONDS", 0.4)
    slow, quick = make_receiver(), make_receiver()
    slow.answers = [way, way]
    late, later, good = tested(_url(slow)), tested("http://127.0.0.1:1/"), tested(_url(quick))
    with database.write() as session:
        webhooks.announce_test(session, session.get_one(WebhookDelivery, late).webhook_id)
    began = time.monotonic()
    assert set(_deliver_due(settings, database)) == {late, later, good}
    assert time.monotonic() - began < 3
    assert _row(database, late) == ("pending", 1, None, "no response within 0.4 s")
    assert "no response" in _row(database, later)[3]
    assert _row(database, good)[0] == "delivered"


@both_databases
def test_a_webhook_with_a_long_list_holds_up_nobody(settings, database, receiver, register):
    """500 jobs end while its receiver is away; each round it is tried once, so the list would take hours to become short."""
    dead, good = register("http://127.0.0.1:1/"), register(_url(receiver))
    with database.write() as session:
        for _ in range(1001):
            webhooks.announce_test(session, dead)
        session.flush()
        last = webhooks.announce_test(session, good).id
    assert last in _deliver_due(settings, database)
    assert _row(database, last)[0] == "delivered"


def test_a_sender_of_ours_that_breaks_holds_up_nobody(settings, database, receiver, tested, monkeypatch):
    delivery = tested(_url(receiver))

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(sender, "send", broken)
    _deliver_due(settings, database)
    assert _row(database, delivery)[:3] == ("pending", 1, None)
    assert "ZeroDivisionError" in _row(database, delivery)[3]


def _resolver(*answers):
    """A look-up of names that gives these addresses in turn, and the hosts that were looked up."""
    hosts, left = [], list(answers)

    def look_up(host, port, *_, **__):
        hosts.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in left.pop(0)]

    return look_up, hosts


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["169.254.169.254"]])
def test_a_name_that_leads_inside_is_refused(settings, database, tested, monkeypatch, addresses):
    look_up, _ = _resolver(addresses)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    delivery = tested("https://hooks.example/in")
    _deliver_due(settings.model_copy(update={"webhooks_to_private_addresses": False}), database)
    state, _, status, message = _row(database, delivery)
    assert (state, status) == ("pending", None)
    assert message.startswith(f"refused: {addresses[-1]} is")


def test_plain_http_stays_on_this_machine(settings, database, tested, monkeypatch):
    look_up, _ = _resolver(["10.0.0.1"])
    delivery = tested("http://localhost/in")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    _deliver_due(settings, database)
    assert "must begin with https://" in _row(database, delivery)[3]


def test_the_name_that_was_registered_is_the_one_that_is_looked_up(settings, database, tested, monkeypatch):
    """`xn--strae-oqa` is straße; Python's own look-up of that is of strasse, which may be somebody else's."""
    look_up, hosts = _resolver(["169.254.169.254"])
    delivery = tested("https://xn--strae-oqa.example/in")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    _deliver_due(settings, database)
    assert hosts == ["xn--strae-oqa.example"]
    assert _row(database, delivery)[0] == "pending"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with the openssl command")
@pytest.mark.parametrize("name", ["hooks.example", "other.example"])
def test_the_certificate_is_the_names_and_the_name_is_looked_up_once(
    settings, database, make_receiver, tested, tmp_path, monkeypatch, name
):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=x"]
    new += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(new, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    names = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    receiver = make_receiver(tls)
    look_up, hosts = _resolver(["127.0.0.1"], ["93.184.215.14"])
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(sender, "_certificates", lambda: ssl.create_default_context(cafile=str(certificate)))
    delivery = tested(f"https://hooks.example:{receiver.port}/in")
    _deliver_due(settings, database)
    assert names == ["hooks.example"]
    assert hosts == ["hooks.example"]
    if name == "hooks.example":
        assert _row(database, delivery) == ("delivered", 1, 204, None)
        assert receiver.requests[0][1]["host"] == f"hooks.example:{receiver.port}"
    else:
        assert "certificate" in _row(database, delivery)[3]
        assert receiver.requests == []


def test_an_api_process_sends_by_itself(settings, database, receiver, tested):
    delivery = tested(_url(receiver))
    sending = Deliverer(settings.model_copy(update={"reconcile_seconds": 0.05}), database)
    sending.start()
    try:
        deadline = time.monotonic() + 10
        while _row(database, delivery)[0] == "pending" and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        sending.close()
    assert _row(database, delivery)[0] == "delivered"


def test_the_documented_way_to_verify(settings, database, receiver, tested):
    tested(_url(receiver))
    _deliver_due(settings, database)
    defined: dict = {}
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    exec(compile(page.partition("```python\n")[2].partition("```")[0], "docs/operations.md", "exec"), defined)  # noqa: S102 (the lines themselves)
    with database.read() as session:
        secret = Box([KEY]).open(session.query(Webhook).one().secret)
    _, headers, body = receiver.requests[0]
    assert defined["verified"](secret, headers, body)
    other = webhooks.SECRET_PREFIX + base64.b64encode(bytes(32)).decode()
    old = str(int(headers["webhook-timestamp"]) - 400)
    resigned = {"webhook-timestamp": old, "webhook-signature": sender.signature(secret, headers["webhook-id"], int(old), body)}
    for forged in ((other, headers, body), (secret, headers, body + b" "), (secret, headers | resigned, body)):
        assert not defined["verified"](*forged)


def _stored(database):
    with database.read() as session:
        return session.query(Webhook).one().secret


def _signed_with(receiver, secret):
    """Whether the newest request is signed with this secret."""
    _, headers, body = receiver.requests[-1]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = _hmac_sha256(base64.b64decode(secret.removeprefix("whsec_")), signed)
    return headers["webhook-signature"] == "v1," + base64.b64encode(expected).decode()


@both_databases
@pytest.mark.parametrize("keys", ["", OTHER_KEY])
def test_without_the_right_key_deliveries_wait_and_nothing_is_lost(settings, database, receiver, tested, caplog, keys):
    delivery = tested(_url(receiver))
    wrong = settings.model_copy(update={"webhook_keys": keys})
    for _ in range(3):
        assert _deliver_due(wrong, database) == []
    state, attempts, status, message = _row(database, delivery)
    assert (state, attempts, status, receiver.requests) == ("pending", 0, None, [])
    assert "PARITY_WEBHOOK_KEYS" in message
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # once, not at every look
    assert _deliver_due(settings, database) == [delivery]
    assert _row(database, delivery) == ("delivered", 1, 204, None)
    assert _signed_with(receiver, Box([KEY]).open(_stored(database)))


@both_databases
def test_a_secret_of_an_earlier_version_signs_as_before_and_is_encrypted_once_there_is_a_key(settings, database, receiver, tested):
    plain = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    tested(_url(receiver))
    with database.write() as session:
        session.query(Webhook).one().secret = plain
    _deliver_due(settings.model_copy(update={"webhook_keys": ""}), database)
    assert _signed_with(receiver, plain)
    with database.write() as session:
        assert [webhooks.encrypt_all(session, Box([KEY])) for _ in range(2)] == [1, 0]
    assert plain not in _stored(database)
    assert "whsec" not in _stored(database)
    _make_due(database)
    with database.write() as session:
        webhooks.announce_test(session, session.query(Webhook).one().id)
    _deliver_due(settings, database)
    assert len(receiver.requests) == 2
    assert _signed_with(receiver, plain)


def test_a_key_is_replaced_by_listing_the_new_one_first(database, tested, receiver):
    tested(_url(receiver))
    secret = Box([KEY]).open(_stored(database))
    with database.write() as session:
        assert webhooks.encrypt_all(session, Box([OTHER_KEY])) == 0  # what it cannot decrypt is left alone
        assert [webhooks.encrypt_all(session, Box([OTHER_KEY, KEY])) for _ in range(2)] == [1, 0]
    assert Box([OTHER_KEY]).open(_stored(database)) == secret


def test_an_api_process_encrypts_what_an_earlier_version_left(settings, database, tested, receiver):
    tested(_url(receiver))
    plain = "whsec_" + base64.b64encode(bytes(32)).decode()
    with database.write() as session:
        session.query(Webhook).one().secret = plain
    sending = Deliverer(settings.model_copy(update={"reconcile_seconds": 0.05}), database)
    sending.start()
    try:
        deadline = time.monotonic() + 10
        while _stored(database) == plain and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        sending.close()
    assert Box([KEY]).open(_stored(database)) == plain
