"""Secrets that are stored as hashes only: made here, compared in constant time.

A secret has 256 random bits, so its plain SHA-256 is enough: nobody can guess it, and no salt or
slow hash would add to that.
"""

import hashlib
import hmac
import secrets


def new_secret() -> str:
    """A new secret, 43 characters from A-Z a-z 0-9 - _."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is stored of a secret: its SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(secret: str, stored: str | None) -> bool:
    """Whether a secret has this digest. Takes the same time without a digest, so that it reveals
    nothing about ids.
    """
    right = hmac.compare_digest(digest(secret), stored or digest(""))
    return right and stored is not None
