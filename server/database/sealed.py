"""Secrets that are stored encrypted, because they are needed again: those that sign webhooks.

Fernet of the package `cryptography` (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec). The first key encrypts, every key
decrypts, so a new key is put before the old one until all rows are encrypted with it.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from server.settings import Settings

HOW_TO_MAKE = "openssl rand -base64 32 | tr +/ -_"


class SealError(Exception):
    """A secret that none of the keys decrypts."""


class Box:
    """Encrypts and decrypts with the operator's keys, each 32 bytes in URL-safe base64."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._newest = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])

    def seal(self, secret: str) -> str:
        """The secret, encrypted with the first key; 140 characters for 50."""
        return self._newest.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str:
        """The secret again; SealError if no key fits or the text was changed."""
        try:
            return self._all.decrypt(sealed).decode()
        except InvalidToken:
            raise SealError("none of the keys in PARITY_WEBHOOK_KEYS decrypts it; set the key that it was encrypted with") from None

    def with_newest_key(self, sealed: str) -> str:
        """The same secret encrypted with the first key; unchanged if it already is. SealError as in `open`."""
        try:
            self._newest.decrypt(sealed)
        except InvalidToken:
            return self.seal(self.open(sealed))
        return sealed


def box_of(settings: Settings) -> Box | None:
    """The box of the keys in the settings, else of the key file in the state folder; None without either."""
    keys = settings.webhook_key_list
    if not keys and settings.webhook_key_file.exists():
        keys = [settings.webhook_key_file.read_text(encoding="ascii").strip()]
    return Box(keys) if keys else None


def make_key_file(path: Path) -> None:
    """Write a new key to a file that only its owner can read; an existing file is kept."""
    key = base64.urlsafe_b64encode(secrets.token_bytes(32))
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(key + b"\n")
