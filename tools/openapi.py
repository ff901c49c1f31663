"""The API's description as a file, so that a review shows its changes: `python -m tools.openapi >
docs/openapi.json`.
"""

from __future__ import annotations

import json
import sys

from server.app import create_app
from server.settings import Settings


def text() -> str:
    """The OpenAPI document of the application, the same text in every process."""
    return (
        json.dumps(
            create_app(Settings(database_url="sqlite://")).openapi(), indent=1, sort_keys=True
        )
        + "\n"
    )


if __name__ == "__main__":
    sys.stdout.write(text())
