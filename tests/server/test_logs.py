"""Lines of the log: JSON or text, with the ids at hand, and without secrets."""

import io
import json
import logging
import subprocess
import sys
import threading
import time

import pytest

from server import logs
from server.settings import CHECKOUT
from tests.conftest import some_of

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
    logger.warning(
        'sent {"password": "hunter2secret", "PARITY_TOKEN": "abc-secret"}',
        extra={"asked": '{"api_key": "k-secret"}', "n": 1},
    )
    logger.warning(
        "with %r", {"secret": "s-secret"}, extra={"settings": {"redis_password": "r-secret"}}
    )
    text = stream.getvalue()
    assert not [
        secret
        for secret in ("hunter2secret", "abc-secret", "k-secret", "s-secret", "r-secret")
        if secret in text
    ]
    assert text.count("***") == 5
    for line in text.splitlines():
        if line.startswith("{"):
            json.loads(line)


def test_a_line_of_json_is_one_object_whatever_is_in_it():
    record = logging.makeLogRecord(
        {"msg": 'two\nlines, a "quote" and %s', "args": (b"bytes",), "levelname": "INFO"}
    )
    line = logs.Lines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "two\nlines, a \"quote\" and b'bytes'"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("postgresql://parity:p@ss@w0rd@db:5432/x", "postgresql://parity:***@db:5432/x"),
        ("redis://:p@ss@h:1 and http://host:80/a@b", "redis://:***@h:1 and http://host:80/a@b"),
        ("token hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "token hf_***"),
        ("ghp_" + "a1B2" * 9, "ghp_***"),
        ("github_pat_" + "11AA_" * 9, "github_pat_***"),
        ("id AKIAIOSFODNN7EXAMPLE", "id AKIA***"),
        ("x sk-ant-" + "api03-Ab_c9" * 3 + " y", "x sk-ant-*** y"),
        ("sk-proj-" + "Ab-c_9" * 6, "sk-proj-***"),
        ("sk-" + "aB3" * 16, "sk-***"),
        ("glpat-" + "a1B-" * 5 + ", xoxb-" + "12345-" * 4 + "aBc", "glpat-***, xoxb-***"),
        (
            "nvapi-" + "a_B1" * 16 + " npm_" + "aB12" * 9 + " AIza" + "Sy-_" * 8,
            "nvapi-*** npm_*** AIza***",
        ),
        (
            "glrt-"
            + "t1_aB" * 4
            + " hvs."
            + "CAES" * 6
            + " pypi-"
            + "AgEI" * 8
            + " sk-or-v1-"
            + "0a" * 20,
            "glrt-*** hvs.*** pypi-*** sk-or-***",
        ),
        (
            "X-Api-Key: abc-1 access_token=abc&x refreshToken: 'abc' passphrase=abc",
            "X-Api-Key: *** access_token=*** refreshToken: '***' passphrase=***",
        ),
        (
            "train --wandb-token abc --api-key 'k' --password=p --steps 5",
            "train --wandb-token *** --api-key '***' --password=*** --steps 5",
        ),
        ("argv ['--hub-token', 'abc', '--lr', '1']", "argv ['--hub-token', '***', '--lr', '1']"),
        (
            "tokens: 12 and token 3, --token-count 5 --tokens 7 --no-secret --lr 1",
            "tokens: 12 and token 3, --token-count 5 --tokens 7 --no-secret --lr 1",
        ),
        (
            "sk-learn-contrib-of-1 and task-sk-1 and glpat-x are words",
            "sk-learn-contrib-of-1 and task-sk-1 and glpat-x are words",
        ),
        (
            "sent eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN, then",
            "sent eyJ***, then",
        ),
        ("wandb login " + "0123456789" * 4, "wandb login ***"),
        ("wandb login --relogin local-" + "0123456789" * 4, "wandb login --relogin local-***"),
        ("commit " + "0123456789" * 4, "commit " + "0123456789" * 4),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
            "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nafter",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE, cut", "-----BEGIN PRIVATE KEY-----***"),
        (
            "hf_transfer and ghp_x are words; eyJ.a.b too",
            "hf_transfer and ghp_x are words; eyJ.a.b too",
        ),
    ],
)
def test_keys_are_known_by_their_form(line, kept):
    assert logs.without_secrets(line) == kept


def test_a_line_is_looked_at_only_where_a_pattern_could_match():
    lines = [
        line
        for secret in SECRETS
        for line in (secret, secret.upper(), secret.lower(), f"x{secret}")
    ]
    for line in lines:
        whole = line
        for _, pattern, replacement in logs._SECRETS:
            whole = pattern.sub(replacement, whole)
        assert logs.without_secrets(line) == whole


# What each pattern looks for: all of its beginnings, repeated, are what a stranger would ask for to
# stop the log.
SECRETS = [
    TOKEN,
    "parity_r019aa5c1f2e0-8f3c1d2e4b-12_Ab_c-dEf",
    "whsec_Ab+/=-c",
    "x://user:pass@host",
    "hf_AbCdEfGhIjKlMnOpQrSt",
    "github_pat_AbCdEfGhIjKlMnOpQrSt",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-ant-AbCdEfGh-IjKlMn_Op",
    "sk-" + "aB3x" * 8,
    "xoxb-AbCdEfGh-IjKlMn_Op",
    "eyJhbGci-iJ_.eyJz-WIi_iI.dozj",
    "wandb login --relogin local-" + "0123456789" * 4,
    "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
    "Bearer   abcdefgh.-~+/=",
    "my_secret_key_1' : 'value",
    "A_TOKEN' = 'value",
    "--my-api-key value",
    "--x-token', 'value",
]


def _seconds(pattern, line):
    began = time.thread_time()
    pattern.sub("", line)
    return time.thread_time() - began


@pytest.mark.parametrize("index", range(len(logs._SECRETS)))
def test_the_time_of_a_pattern_grows_with_the_line_and_not_with_its_square(index):
    """Anybody can ask for such a path, and its line is written whoever asks. A square would be 16
    times as long for 4 times the length.
    """
    _, pattern, _ = logs._SECRETS[index]
    parts = {
        secret[:end] + joint
        for secret in SECRETS
        for end in range(1, len(secret) + 1)
        for joint in ("", "-")
    }
    slow = []
    for part in some_of(sorted(parts), 4, index):
        short, long = (part * (length // len(part) + 1) for length in (4_000, 16_000))
        growth = _seconds(pattern, long) / max(_seconds(pattern, short), 2e-4)
        if growth >= 8:  # again, with the shortest of several times
            growth = min(_seconds(pattern, long) for _ in range(5)) / max(
                min(_seconds(pattern, short) for _ in range(5)), 2e-4
            )
        if growth >= 8:
            slow.append((part, growth))
    assert slow == []


@pytest.fixture
def forger():
    return "x\n2026-11-24 00:00:00 ERROR forged\r\x1b[31m\x9b\u2028\x00"


def test_nobody_can_forge_a_line_of_text(forger):
    logger, stream = logging.getLogger("parity-test-forged"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.Text("%(levelname)s %(message)s"))
    logger.propagate = False
    logger.handlers[:] = [handler]
    logger.error("path %s", forger, extra={"path": forger})
    try:
        raise ValueError(forger)
    except ValueError:
        logger.exception("two\nlines", extra={"password": "hunter2secret"})
    lines = stream.getvalue().split("\n")
    assert [line[:5] for line in lines if line and not line.startswith("    ")] == [
        "ERROR",
        "ERROR",
    ]
    text = stream.getvalue()
    assert not [character for character in "\r\x1b\x9b\u2028\x00" if character in text]
    assert "\\x1b[31m" in text
    assert "hunter2secret" not in text
    assert "Traceback (most recent call last):" in text  # honest lines stay readable
    assert [line for line in lines if line.endswith("    lines")] == ["    lines"]


def test_lines_are_written_in_a_thread_of_their_own_with_what_was_bound():
    stream = io.StringIO()
    threads = []

    class Handler(logging.StreamHandler):
        def emit(self, record):
            threads.append(threading.current_thread())
            super().emit(record)

    handler = Handler(stream)
    handler.setFormatter(logs.Lines())
    aside = logs.Aside(handler)
    logger = logging.getLogger("parity-test-aside")
    logger.propagate = False
    logger.handlers[:] = [aside]
    facts = {"n": 1}
    with logs.bound(request_id="q1"):
        logger.warning("with %s and %s", facts, TOKEN, extra={"status": 9})
        facts["n"] = 2
    aside.close()
    aside.close()  # a process may end while it does
    line = json.loads(stream.getvalue())
    assert (line["message"], line["request_id"], line["status"]) == (
        f"with {{'n': 1}} and {TOKEN[:32]}***",
        "q1",
        9,
    )
    assert threads
    assert threading.current_thread() not in threads


def test_a_process_that_ends_has_written_its_lines():
    program = (
        "import logging; from server import logs; logs.configure('text', aside=True); "
        "logging.getLogger('x').error('the last words')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    assert "ERROR x: the last words" in done.stderr
