"""What the setting of webhooks refuses, and that it shows no secret."""

import json

import pytest
from pydantic import ValidationError

from server.process_settings import setting_problems
from server.settings import Settings

SECRET = "whsec_" + 43 * "A" + "="
HOOK = {"url": "https://hooks.example/T0K3N", "secret": SECRET, "events": ["job.ended"]}


def test_settings_show_neither_secret_nor_url_of_a_webhook(monkeypatch):
    monkeypatch.setenv("PARITY_WEBHOOKS", json.dumps([HOOK]))
    (hook,) = Settings().webhooks
    assert (str(hook.url), hook.secret.get_secret_value(), hook.events) == (
        HOOK["url"],
        HOOK["secret"],
        ("job.ended",),
    )
    assert hook.id.startswith("hooks.example#")
    assert not any(secret in repr(Settings()) + hook.id for secret in ("T0K3N", SECRET))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"url": "http://hooks.example/T0K3N"}, "begins with http://, expected https://"),
        ({"url": "ftp://hooks.example/T0K3N"}, "an address that begins with http or https"),
        ({"url": "https://me:T0K3N@hooks.example/"}, "has a user"),
        ({"url": "https://hooks.example/#T0K3N"}, "a fragment"),
        ({"secret": "T0K3N"}, "not 24 to 64 bytes in base64"),
        ({"events": []}, "at least 1 of them"),
        ({"events": ["job.started"]}, "job.ended, verdict.given"),
        ({"name": "mine"}, "unknown key"),
    ],
)
def test_what_is_refused_without_being_shown(change, problem):
    with pytest.raises(ValidationError) as refused:
        Settings(webhooks=[HOOK | change])
    (line,) = setting_problems(refused.value)
    assert line.startswith("PARITY_WEBHOOKS, entry 1")
    assert problem in line
    assert "T0K3N" not in str(refused.value) + line


def test_plain_http_reaches_this_machine_and_a_url_has_one_webhook():
    assert Settings(
        webhooks=[
            HOOK | {"url": f"http://{host}:9/"} for host in ("localhost", "127.0.0.1", "[::1]")
        ]
    )
    with pytest.raises(ValidationError, match="expected one with the events of both"):
        Settings(webhooks=[HOOK, HOOK | {"events": ["verdict.given"]}])
