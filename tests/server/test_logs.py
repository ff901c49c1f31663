"""Lines of the log: JSON or text, with the ids at hand, and without secrets."""

import io
import json
import logging
import time

import pytest

from server import logs

TOKEN = "parity_t019aa5c1f2e0-8f3c1d2e4b_Ab_c-dEfGh"  # noqa: S105
URL = "redis://:hunter2secret@broker:6379/0"


@pytest.fixture(params=[logs.Lines(), logs.Text("%(levelname)s %(message)s")], ids=["json", "text"])
def written(request):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(request.param)
    logger = logging.getLogger("parity-test-logs")
    logger.propagate = False
    logger.handlers[:] = [handler]
    return logger, stream


def test_a_line_says_what_is_bound_and_what_is_extra(written):
    logger, stream = written
    with logs.bound(run="r1"), logs.bound(attempt=2):
        logger.warning("stopped", extra={"status": 9})
    logger.warning("later")
    first, second = stream.getvalue().splitlines()
    assert all(part in first for part in ("stopped", "r1", "attempt", "9"))
    assert "r1" not in second


def test_no_secret_is_written_whatever_wrote_it(written):
    logger, stream = written
    try:
        raise ConnectionError(f"cannot reach {URL} as {TOKEN}")
    except ConnectionError:
        logger.exception("with %s and postgresql+psycopg://parity:pass-word@db/parity", TOKEN)
    text = stream.getvalue()
    for secret in ("hunter2secret", "pass-word", "Ab_c-dEfGh"):
        assert secret not in text
    for kept in ("t019aa5c1f2e0-8f3c1d2e4b", "broker:6379", "ConnectionError", "parity:"):
        assert kept in text


def test_values_between_quotes_are_secrets_too(written):
    logger, stream = written
    logger.warning('sent {"password": "hunter2secret", "PARITY_TOKEN": "abc-secret"}', extra={"asked": '{"api_key": "k-secret"}', "n": 1})
    logger.warning("with %r", {"secret": "s-secret"}, extra={"settings": {"redis_password": "r-secret"}})
    text = stream.getvalue()
    assert not [secret for secret in ("hunter2secret", "abc-secret", "k-secret", "s-secret", "r-secret") if secret in text]
    assert text.count("***") == 5
    for line in text.splitlines():
        if line.startswith("{"):
            json.loads(line)


def test_a_line_of_json_is_one_object_whatever_is_in_it():
    record = logging.makeLogRecord({"msg": 'two\nlines, a "quote" and %s', "args": (b"bytes",), "levelname": "INFO"})
    line = logs.Lines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "two\nlines, a \"quote\" and b'bytes'"


def test_a_line_made_to_be_slow_is_not():
    """Anybody can ask for such a path, and its line is written before the next request is served."""
    began = time.process_time()
    assert logs.without_secrets("/" + "secret" * 5000) == "/" + "secret" * 5000
    assert time.process_time() - began < 1.0  # seconds; 4 where each "secret" is followed to the end of the path


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("postgresql://parity:p@ss@w0rd@db:5432/x", "postgresql://parity:***@db:5432/x"),
        ("redis://:p@ss@h:1 and http://host:80/a@b", "redis://:***@h:1 and http://host:80/a@b"),
        ("token hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "token hf_***"),
        ("ghp_" + "a1B2" * 9, "ghp_***"),
        ("github_pat_" + "11AA_" * 9, "github_pat_***"),
        ("id AKIAIOSFODNN7EXAMPLE", "id AKIA***"),
        ("sent eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN, then", "sent eyJ***, then"),
        ("wandb login " + "0123456789" * 4, "wandb login ***"),
        ("wandb login --relogin local-" + "0123456789" * 4, "wandb login --relogin local-***"),
        ("commit " + "0123456789" * 4, "commit " + "0123456789" * 4),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nafter",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE, cut", "-----BEGIN PRIVATE KEY-----***"),
        ("hf_transfer and ghp_x are words; eyJ.a.b too", "hf_transfer and ghp_x are words; eyJ.a.b too"),
    ],
)
def test_keys_are_known_by_their_form(line, kept):
    assert logs.without_secrets(line) == kept


@pytest.mark.parametrize("part", ["wandb", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa.", "x://x:", "x://x:@"])
def test_lines_made_of_beginnings_are_not_slow(part):
    began = time.process_time()
    logs.without_secrets(part * 5000)
    assert time.process_time() - began < 1.0  # seconds
