"""Secrets that are stored encrypted: what is refused, and the key file of `make serve`."""

import pytest
from pydantic import ValidationError

from server.database.sealed import Box, SealError, box_of, make_key_file
from server.settings import Settings

KEYS = ["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY="]


def test_a_secret_comes_back_and_a_changed_text_does_not():
    sealed = Box(KEYS[:1]).seal("whsec_x")
    assert "whsec" not in sealed
    assert len(Box(KEYS).seal("whsec_" + 44 * "x")) <= 255  # the column
    assert Box([KEYS[1], KEYS[0]]).open(sealed) == "whsec_x"
    for box, text in ((Box(KEYS[1:]), sealed), (Box(KEYS), sealed[:-4] + "AAAA"), (Box(KEYS), "whsec_x"), (Box(KEYS), "")):
        with pytest.raises(SealError):
            box.open(text)


@pytest.mark.parametrize("keys", ["secret", KEYS[0] + "," + KEYS[1][:-4], "ä" * 43 + "="])
def test_what_is_no_key_is_refused_without_being_shown(keys):
    with pytest.raises(ValidationError) as refused:
        Settings(webhook_keys=keys)
    (problem,) = refused.value.errors()
    assert problem["type"] == "webhook_keys"
    assert keys not in str(refused.value)


def test_settings_show_no_key():
    settings = Settings(webhook_keys=f" {KEYS[0]} ,{KEYS[1]}")
    assert settings.webhook_key_list == KEYS
    assert KEYS[0] not in repr(settings)


def test_the_key_file_is_private_kept_and_used_only_without_a_setting(tmp_path):
    settings = Settings(state_dir=tmp_path, webhook_keys="")
    assert box_of(settings) is None
    for _ in range(2):
        make_key_file(settings.webhook_key_file)
        assert settings.webhook_key_file.stat().st_mode & 0o777 == 0o600
    sealed = box_of(settings).seal("x")
    assert box_of(settings).open(sealed) == "x"
    with pytest.raises(SealError):
        box_of(settings.model_copy(update={"webhook_keys": KEYS[0]})).open(sealed)
