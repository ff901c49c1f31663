"""The digest of JSON that is stored with jobs and runs."""

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def digest(content: object) -> str:
    """SHA-256 of JSON, as it is stored with jobs and runs."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
